"""How a budget run ended, in one sentence, wherever it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
import tiny
from picojoule import cli
from picojoule.runs.result import RunResult
from picojoule.runs.verdict import missed, verdict
from tiny import Watcher


def ended(guard: bool | None = None, **outcome: object) -> dict[str, Any]:
    """A result of 30 % where 20 % was asked for."""
    budget = {"target_joules": 2e-6, "met": False, "epoch": 6, "baseline_joules": None, "silenced": [], "held": []}
    recipe = {"penalty": {"guard": guard}}
    return {
        "test": tiny.figures(),
        "reference_joules": 1e-5,
        "validation": tiny.figures(joules=3e-6),
        "budget": budget | outcome,
        "recipe": recipe,
    }


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({}, "spends 3.00 µJ (30.0%); train for more epochs, or ask for more energy"),
        ({"baseline_joules": 6e-6}, "(30.0%, and 50.0% of the fully trained baseline's 6.00 µJ); train"),
        (
            {"held": ["spike2"]},
            "(30.0%); the guard holds spike2 at the least firing rate; ask for more energy, or train with "
            "penalty.guard=false, which may silence what the guard holds",
        ),
        (
            {"silenced": [{"layer": "spike1", "epoch": 4, "joules": 1e-6}], "guard": False},
            "(30.0%); the layer spike1 fell silent in epoch 5, at 1.00 µJ; ask for more energy, or train with "
            "penalty.guard=true, which keeps layers from falling silent",
        ),
        *(  # on already, also where the recipe has nothing to say of it
            (
                {"silenced": [{"layer": "spike1", "epoch": 4, "joules": 1e-6}], "guard": guard},
                "(30.0%); the layer spike1 fell silent in epoch 5, at 1.00 µJ; train for more epochs, or ask for more",
            )
            for guard in (True, None)
        ),
    ],
)
def test_a_missed_budget_in_one_sentence(outcome: dict[str, Any], words: str) -> None:
    said = verdict(RunResult.parse(ended(**outcome)))
    assert said is not None
    head = "the budget of 2.00 µJ (20.0% of the unpenalised 10.0 µJ) is missed: the nearest network, that of epoch 7, "
    assert said.startswith(head)
    assert words in said


def test_a_budget_met_in_one_sentence() -> None:
    assert verdict(RunResult.parse(ended(met=True, target_joules=3e-6, held=["spike2"]))) == (
        "the budget of 3.00 µJ (30.0% of the unpenalised 10.0 µJ) is met: the network, that of epoch 7, spends 3.00 µJ "
        "(30.0%)"
    )
    assert verdict(RunResult.parse({"test": tiny.figures(), "validation": tiny.figures()})) is None


@pytest.mark.parametrize("met", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_commands_on_a_run_that_missed_its_budget_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], met: bool
) -> None:
    run = pj.fit(
        tiny.recipe("penalty.strength=0", "training.epochs=4", "penalty.budget=50%"), tmp_path, reporters=[Watcher()]
    )
    run.write_text(
        "result.json", json.dumps(run.result.to_dict() | {"budget": run.result.budget.to_dict() | {"met": met}})
    )
    recipe = str(run.path / "recipe.toml")
    for arguments in (
        ("train", recipe, "--into", str(tmp_path)),
        ("evaluate", str(run.path), "--trust"),
        ("evaluate", str(run.path), "--trust", "--json"),
    ):
        monkeypatch.setattr("sys.argv", ["picojoule", *arguments])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
        captured = capsys.readouterr()
        assert ("is missed" in captured.err) == (not met)
        assert "missed" not in captured.out
    assert json.loads(captured.out)["split"] == "test"


@pytest.mark.parametrize(
    "damage",
    [
        {"budget": 3},
        {"budget": {"met": False}},
        {"reference_joules": None},
        {"reference_joules": 0},
        {"validation": {}},
        {"validation": tiny.figures() | {"joules": "few"}},
    ],
    ids=str,
)
def test_a_result_with_a_damaged_budget_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    run = pj.Run(tmp_path)
    result = ended()
    run.write_text("result.json", json.dumps(result))
    assert missed(run) == verdict(RunResult.parse(result))
    run.write_text("result.json", json.dumps(result | damage))
    with pytest.raises(pj.PicojouleError, match=r"result\.json is not a valid result .*: remove it and run"):
        missed(run)
