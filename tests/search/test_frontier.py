from __future__ import annotations

import itertools
import json
import math
import signal
from pathlib import Path

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.search.frontier import Plan, frontier, recipes
from picojoule.search.limits import Limits
from picojoule.search.pick import pick
from picojoule.training import fit
from tiny import Watcher, signal_to_self

RECIPE = tiny.recipe("training.epochs=4", "penalty.strength=0", "optimizer.lr=0.02")
PLAN = Plan(points=4, first=4.0, ratio=16.0)


def points(walked: object) -> list[dict[str, object]]:
    return walked.to_dict()["points"]  # type: ignore[attr-defined,no-any-return]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    folder = tmp_path_factory.mktemp("frontier")
    return folder, frontier(RECIPE, folder, PLAN)


def test_each_point_is_an_ordinary_run_that_begins_where_the_one_before_ended(walked: tuple[Path, object]) -> None:
    folder, curve = walked
    chain = recipes(RECIPE, PLAN)
    assert [recipe.penalty.strength for recipe in chain] == [0, 4, 64, 1024]
    assert [recipe.training.epochs for recipe in chain] == [4, 2, 2, 2]
    assert [recipe.optimizer.lr for recipe in chain] == [0.02, 0.01, 0.01, 0.01]
    assert [Path(point["run"]).name for point in points(curve)] == [recipe.name for recipe in chain]  # type: ignore[arg-type]
    for before, recipe in itertools.pairwise(chain):
        assert recipe.training.start_from == before.name
        by_hand = pj.fit(recipe, folder)
        assert by_hand.finished
    evaluated = pj.evaluate(folder / chain[2].name, trust=True)
    assert evaluated.energy is not None
    assert evaluated.energy.joules == points(curve)[2]["test"]["joules"]  # type: ignore[index]


def test_the_baseline_is_the_recipe_without_penalty(walked: tuple[Path, object], tmp_path: Path) -> None:
    folder, _ = walked
    alone = pj.fit(RECIPE, tmp_path)
    same = pj.Run(folder / recipes(RECIPE, PLAN)[0].name)
    assert all(torch.equal(value, same.weights[name]) for name, value in alone.weights.items())


def test_energy_falls_and_the_cost_is_told(walked: tuple[Path, object]) -> None:
    _, curve = walked
    content = curve.to_dict()  # type: ignore[attr-defined]
    assert content["cost"] == (4 + 2 + 2 + 2) / 4
    assert [point["epochs"] for point in content["points"]] == [4, 6, 8, 10]
    assert content["points"][0]["test"]["energy"] == 1
    assert content["points"][-1]["test"]["energy"] < 0.8
    json.dumps(content)
    assert len(curve.table().rows) == 4  # type: ignore[attr-defined]


def test_a_frontier_that_was_stopped_goes_on_to_the_same_end(walked: tuple[Path, object], tmp_path: Path) -> None:
    _, whole = walked
    with pytest.raises(fit.Interrupted):
        frontier(
            RECIPE,
            tmp_path,
            PLAN,
            reporters=lambda title: (
                (Watcher(after_batch={3: signal_to_self(signal.SIGTERM)}),) if title.startswith("point 2") else ()
            ),
        )
    again = frontier(RECIPE, tmp_path, PLAN)
    for mine, yours in zip(points(again), points(whole), strict=True):
        assert (mine["validation"], mine["test"]) == (yours["validation"], yours["test"])


def test_a_ramp_rises_from_batch_to_batch(tmp_path: Path) -> None:
    plan = Plan(points=3, first=2.0, ratio=4.0, schedule="ramp")
    chain = recipes(RECIPE, plan)
    assert [recipe.penalty.rise_from for recipe in chain] == [None, 0, 2]
    pj.fit(chain[0], tmp_path)
    run = pj.fit(chain[1], tmp_path)
    assert [entry.strength for entry in run.metrics] == pytest.approx([2 / 3, 4 / 3, 2])


def test_steps_lower_the_learning_rate() -> None:
    chain = recipes(RECIPE, Plan(points=4, schedule="steps"))
    assert [recipe.optimizer.lr for recipe in chain] == pytest.approx([0.02, 0.01, 0.006, 0.002])


def test_the_curve_ends_where_the_accuracy_breaks(tmp_path: Path) -> None:
    said: list[str] = []
    curve = frontier(
        RECIPE.override("optimizer.lr=0.05"),
        tmp_path,
        Plan(points=6, first=1e4, ratio=2, stretch=4),
        say=said.append,
    )
    assert curve.broken
    assert len(curve.runs) < 6
    assert "broke" in said[0]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("penalty.budget=30%",), "raises the strength"),
        (("neuron.kind=relu",), "raises the strength"),
        (("penalty.normalized=false",), "normalised"),
    ],
)
def test_what_has_no_frontier(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(pj.PicojouleError, match=words):
        recipes(RECIPE.override(*overrides))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"points": 1}, {"first": 0}, {"ratio": 1}, {"stretch": 0}, {"schedule": "up"}),
        *({"first": math.nan}, {"first": math.inf}, {"ratio": math.nan}, {"ratio": math.inf}, {"ratio": 1e40}),
    ],
    ids=str,
)
def test_a_plan_that_is_none(wrong: dict[str, object]) -> None:
    with pytest.raises(pj.PicojouleError):
        Plan(**wrong)  # type: ignore[arg-type]


def test_pick_reads_a_frontier(walked: tuple[Path, object]) -> None:
    folder, curve = walked
    choice = pick(folder, Limits(max_loss=1.0))
    energies = [point["validation"]["joules"] for point in points(curve)]  # type: ignore[index]
    assert choice.chosen is not None
    assert choice.chosen.mean("validation", "joules") == min(energies)
