"""The runs beside which a run is measured: which will do as a reference, and what a damaged one leads to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
import tiny
from tiny import Watcher

SHORT = ("penalty.strength=0", "training.epochs=4")


def test_a_reference_without_spikes_is_refused(tmp_path: Path) -> None:
    mute = pj.fit(tiny.recipe("neuron.threshold=1e6", "penalty.strength=0", "training.epochs=1"), tmp_path)
    target = ("penalty.kind=target", "penalty.target=0.5", f"penalty.reference={mute.path.name}")
    with pytest.raises(pj.PicojouleError, match="spends nothing"):
        pj.fit(tiny.recipe(*target), tmp_path)


TARGET, BUDGET = ("penalty.kind=target", "penalty.target=0.5"), ("penalty.budget=50%",)


@pytest.mark.parametrize(
    ("key", "other", "wanted"),
    [
        ("model.name", "tiny:plain", TARGET),
        ("data.name", "fashion-mnist", BUDGET),
        ("neuron.kind", "relu", TARGET),
        ("energy.psi", "uniform", BUDGET),
    ],
)
def test_a_reference_that_cannot_be_compared_is_refused(
    tmp_path: Path, key: str, other: str, wanted: tuple[str, ...]
) -> None:
    base = ("penalty.strength=0",)
    reference = pj.Run(tmp_path / tiny.recipe(*base, f"{key}={other}").name)
    reference.path.mkdir()
    reference.write_text("recipe.toml", tiny.recipe(*base, f"{key}={other}").to_toml())
    reference.write_text("result.json", json.dumps(dict.fromkeys(("test", "validation"), tiny.figures())))
    recipe = tiny.recipe(*base, *wanted, f"penalty.reference={reference.path.name}")
    with pytest.raises(pj.PicojouleError, match=rf"is a run with {key} = '{other}'.*: name a run with the same"):
        pj.fit(recipe, tmp_path)
    assert not (tmp_path / recipe.name).exists()
    same = pj.Run(tmp_path / tiny.recipe(*base).name)  # but for that key it would have done
    same.path.mkdir()
    same.write_text("recipe.toml", tiny.recipe(*base).to_toml())
    same.write_text("result.json", (reference.path / "result.json").read_text())
    pj.fit(tiny.recipe(*base, *wanted, f"penalty.reference={same.path.name}"), tmp_path)


def test_steps_of_a_reference_are_compared_too(tmp_path: Path) -> None:
    over_time = ("model.name=tiny:over_time", "neuron.kind=lif", "penalty.strength=0", "training.epochs=1")
    short = pj.fit(tiny.recipe(*over_time, "neuron.steps=2"), tmp_path)
    target = ("penalty.kind=target", "penalty.target=0.5", f"penalty.reference={short.path.name}")
    with pytest.raises(pj.PicojouleError, match=r"neuron\.steps = 2, and this one has 3"):
        pj.fit(tiny.recipe(*over_time, *target, "neuron.steps=3"), tmp_path)


DAMAGED: tuple[dict[str, Any], ...] = (
    {},
    {"validation": 3},
    {"validation": {}},
    {"validation": tiny.figures() | {"joules": "few"}},
    {"validation": tiny.figures() | {"joules": math.nan}},
    {"validation": tiny.figures() | {"joules": -1e-8}},
)


@pytest.mark.parametrize("validation", DAMAGED, ids=str)
def test_a_damaged_result_is_no_reference(tmp_path: Path, validation: dict[str, Any]) -> None:
    baseline = pj.Run(tmp_path / tiny.recipe(*SHORT).name)
    baseline.path.mkdir()
    baseline.write_text("recipe.toml", tiny.recipe(*SHORT).to_toml())
    baseline.write_text("result.json", json.dumps({"test": tiny.figures()} | validation))
    recipe = tiny.recipe(*SHORT, "penalty.budget=50%", f"penalty.reference={baseline.path.name}")
    with pytest.raises(pj.PicojouleError, match=r"result\.json is not a valid result \(validation.*: remove"):
        pj.fit(recipe, tmp_path)


@pytest.mark.parametrize("content", ["{", json.dumps(DAMAGED[0])])
def test_a_damaged_baseline_beside_a_budget_run_is_named_and_left_out(tmp_path: Path, content: str) -> None:
    baseline = pj.Run(tmp_path / tiny.recipe(*SHORT).name)
    baseline.path.mkdir()
    baseline.write_text("result.json", content)
    watcher = Watcher()
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=90%"), tmp_path, reporters=[watcher])
    assert run.result.budget.baseline_joules is None
    (said,) = (text for text in watcher.said if "left out of the result" in text)
    assert str(baseline.path / "result.json") in said
