"""What a sweep reports in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

import picojoule as pj
import tiny
from picojoule.io.tables import as_text
from picojoule.search.sweep import Failure, Outcome


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("runs")
    short = "training.epochs=1"
    recipes = [
        tiny.recipe(short),
        tiny.recipe(short, "optimizer.weight_decay=0.25", "seed=2"),
        tiny.recipe(short, "neuron.kind=relu", "penalty.strength=0"),
    ]
    runs = tuple(pj.fit(recipe, folder) for recipe in recipes)
    return Outcome(runs, (Failure(tiny.recipe(short, "seed=7"), "the disk is full"),))


def test_as_json(outcome: Outcome) -> None:
    content = outcome.to_dict()
    assert list(content) == ["runs", "failures"]
    assert [entry["varied"]["seed"] for entry in content["runs"]] == [0, 2, 0]
    assert list(content["runs"][0]["varied"]) == [
        *("seed", "neuron.kind", "optimizer.weight_decay", "penalty.strength")
    ]
    for entry, run in zip(content["runs"], outcome.runs, strict=True):
        assert (Path(entry["path"]), entry["name"]) == (run.path, run.path.name)
        for measure in ("accuracy", "loss", "joules", "synops", "rate_mean", "dead_rate"):
            assert entry[measure] == getattr(run.result.test, measure)
    (failure,) = content["failures"]
    assert failure["reason"] == "the disk is full"
    assert failure["name"] == outcome.failures[0].recipe.name
    assert failure["varied"]["seed"] == 7


def test_as_table(outcome: Outcome) -> None:
    text = as_text(outcome.table())
    for run in outcome.runs:
        assert run.path.name in text
        assert f"{run.result.test.accuracy:.2%}" in text
    for title in ("neuron.kind", "optimizer.weight_decay", "0.25", "relu"):
        assert title in text
    assert "seed" not in text  # the name says it already


def test_nothing_at_all() -> None:
    assert Outcome((), ()).to_dict() == {"runs": [], "failures": []}
    assert "accuracy" in as_text(Outcome((), ()).table())
