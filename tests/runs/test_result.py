"""What stands in `result.json` and `metrics.jsonl` is figures, or every command says in a sentence that it is not."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
import synthetic
import tiny
from picojoule.cli import main
from picojoule.runs.result import Damage, checked_metrics, checked_result

RESULTS = Path(__file__).parents[2] / "results"
RECIPE = tiny.recipe("penalty.strength=0", "training.epochs=2")

WRONG: dict[str, dict[str, Any]] = {
    "text": {"joules": "few"},
    "NaN": {"joules": math.nan},
    "infinity": {"joules": math.inf},
    "negative energy": {"joules": -1e-6},
    "negative operations": {"synops": -1},
    "negative rate": {"rate_mean": -0.1},
    "a number as text": {"accuracy": "0.5"},
    "accuracy in percent": {"accuracy": 91.5},
    "true": {"accuracy": True},
    "null": {"accuracy": None},
    "a list": {"dead_rate": [0.1]},
    "half of the bill": {"synops": None},
    "a loss of text": {"loss": "small"},
    "a loss that is NaN": {"loss": math.nan},
}


def result(**changes: Any) -> dict[str, Any]:
    return {"test": tiny.figures() | changes, "validation": tiny.figures()}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("split", ["test", "validation"])
def test_what_is_no_figure_is_named(wrong: dict[str, Any], split: str) -> None:
    assert checked_result(result()) == result()
    with pytest.raises(Damage, match=rf"^{split}.*({'|'.join(wrong)})"):
        checked_result(result() | {split: tiny.figures() | wrong})


def test_the_results_of_the_project_are_results() -> None:
    runs = [pj.Run(path.parent) for path in sorted(RESULTS.glob("*/runs/*/result.json"))[::10]]
    assert len(runs) > 10
    for run in runs:
        assert run.result["test"]["accuracy"] > 0
        assert len(run.metrics) == run.recipe.training.epochs


def test_what_a_run_writes_is_what_is_read(tmp_path: Path) -> None:
    run = pj.fit(RECIPE, tmp_path)
    assert checked_result(json.loads((run.path / "result.json").read_text())) == run.result
    assert [line["epoch"] for line in run.metrics] == [0, 1]


def test_a_network_that_diverged_far_has_a_result() -> None:
    assert checked_result(result(loss=3e38))
    assert checked_metrics([{"epoch": 0, "train_loss": 3e38, "strength": 1e200}])


@pytest.mark.parametrize("line", [3, {}, {"epoch": -1}, {"epoch": 0, "joules": "few"}, {"epoch": 0, "joules": -1.0}])
def test_a_line_that_is_no_epoch_is_named(line: Any) -> None:
    with pytest.raises(Damage, match="line 2: "):
        checked_metrics([{"epoch": 0}, line])


COMMANDS: dict[str, Callable[[pj.Run], tuple[str, ...]]] = {
    "train": lambda run: ("train", str(run.path / "recipe.toml"), "--into", str(run.path.parent)),
    "pick": lambda run: ("pick", str(run.path.parent), "--max-energy", "1J"),
    "sweep": lambda run: ("sweep", str(run.path.parent / "sweep.toml"), "--into", str(run.path.parent)),
}


@pytest.mark.parametrize("wrong", ["text", "NaN", "negative energy"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_damaged_result_is_one_sentence(
    command: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.write(tmp_path, RECIPE)
    axes = '[[axes]]\n"penalty.strength" = [0]\n'
    (tmp_path / "sweep.toml").write_text(RECIPE.to_toml() + axes)
    stored = run.result
    for split in ("test", "validation"):
        damaged = stored | {split: stored[split] | WRONG[wrong]}
        (run.path / "result.json").write_text(json.dumps(damaged))
        monkeypatch.setattr(sys, "argv", ["picojoule", *COMMANDS[command](run)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert stop.value.code == (1 if command == "sweep" else 2), said.err
        sentences = [line for line in said.err.splitlines() if "no result of picojoule" in line]
        assert len(sentences) == (2 if command == "sweep" else 1), said.err  # as it happens, and at the end
        assert f"({split}.joules: " in sentences[0]
        assert sentences[0].endswith("remove it and run `picojoule train` with the same recipe again")
        assert "Traceback" not in said.err
        assert "nan" not in said.out


def test_evaluate_measures_the_weights_and_says_that_the_result_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pj.fit(RECIPE, tmp_path)
    stored = run.result
    (run.path / "result.json").write_text(json.dumps(stored | {"test": stored["test"] | WRONG["text"]}))
    monkeypatch.setattr(sys, "argv", ["picojoule", "evaluate", str(run.path), "--json", "--trust"])
    with pytest.raises(SystemExit, match="0"):
        main()
    said = capsys.readouterr()
    assert "is no result of picojoule (test.joules: " in said.err
    assert json.loads(said.out)["accuracy"] == stored["test"]["accuracy"]
