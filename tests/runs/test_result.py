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
from picojoule.io import files
from picojoule.runs.folder import find_runs
from picojoule.runs.metrics import EpochMetrics, metrics_text, read_metrics
from picojoule.runs.result import RunResult, read_result
from picojoule.runs.stored import InvalidContent

RESULTS = Path(__file__).parents[2] / "results"
RECIPE = tiny.recipe("penalty.strength=0", "training.epochs=2")
LAYER = {"name": "spike1", "neurons": 3, "synops": 1.0, "joules": 1e-12, "rate": 0.1, "dead_rate": 0.0}

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
    assert RunResult.parse(result()).to_dict() == result()
    with pytest.raises(InvalidContent, match=rf"^{split}.*({'|'.join(wrong)})"):
        RunResult.parse(result() | {split: tiny.figures() | wrong})


def test_every_result_of_the_project_is_read_and_would_be_written_as_it_is() -> None:
    runs = [run for run in find_runs(RESULTS) if run.finished]
    assert len(runs) > 300
    for run in runs:
        path = run.path / "result.json"
        assert read_result(path).to_json() == files.read_bytes(path).decode(), path
        lines = run.path / "metrics.jsonl"
        number, metrics = read_metrics(lines)
        assert number == len(metrics) == run.recipe.training.epochs
        assert metrics_text(metrics) == files.read_bytes(lines).decode(), lines


def test_what_a_newer_picojoule_wrote_passes_through() -> None:
    odd = {"of_tomorrow": [{"deep": None}]}
    content = result(**odd, layers=[LAYER | odd]) | odd
    assert RunResult.parse(content).to_dict() == content
    assert EpochMetrics.parse(tiny.epoch() | odd).to_dict() == tiny.epoch() | odd


def test_results_and_metrics_do_not_change() -> None:
    read = RunResult.parse(result())
    with pytest.raises(ValueError, match="frozen"):
        read.test.accuracy = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        EpochMetrics.parse(tiny.epoch()).epoch = 3  # type: ignore[misc]


def test_what_a_run_writes_is_what_is_read(tmp_path: Path) -> None:
    run = pj.fit(RECIPE, tmp_path)
    assert json.loads((run.path / "result.json").read_text()) == run.result.to_dict()
    assert [line.epoch for line in run.metrics] == [0, 1]


def test_a_network_that_diverged_far_has_a_result() -> None:
    assert RunResult.parse(result(loss=3e38)).test.loss == 3e38
    assert EpochMetrics.parse(tiny.epoch() | {"train_loss": 3e38, "strength": 1e200}).strength == 1e200


@pytest.mark.parametrize(
    "line",
    [
        *(3, {}, {"epoch": 1}, tiny.epoch(-1), tiny.epoch() | {"joules": "few"}, tiny.epoch() | {"joules": -1.0}),
        tiny.epoch() | {"train_loss": math.nan},
    ],
    ids=str,
)
def test_a_line_that_is_not_an_epoch_is_named(line: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{json.dumps(tiny.epoch())}\n{json.dumps(line)}\n")
    with pytest.raises(InvalidContent, match="line 2: "):
        read_metrics(path)


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
    stored = run.result.to_dict()
    for split in ("test", "validation"):
        damaged = stored | {split: stored[split] | WRONG[wrong]}
        (run.path / "result.json").write_text(json.dumps(damaged))
        monkeypatch.setattr(sys, "argv", ["picojoule", *COMMANDS[command](run)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert stop.value.code == (1 if command == "sweep" else 2), said.err
        sentences = [line for line in said.err.splitlines() if "is not a valid result" in line]
        assert len(sentences) == (2 if command == "sweep" else 1), said.err  # as it happens, and at the end
        assert f"({split}.joules: " in sentences[0]
        assert sentences[0].endswith("remove it and run `picojoule train` with the same recipe again")
        assert "Traceback" not in said.err
        assert "nan" not in said.out


def test_evaluate_measures_the_weights_and_says_that_the_result_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pj.fit(RECIPE, tmp_path)
    stored = run.result.to_dict()
    (run.path / "result.json").write_text(json.dumps(stored | {"test": stored["test"] | WRONG["text"]}))
    monkeypatch.setattr(sys, "argv", ["picojoule", "evaluate", str(run.path), "--json", "--trust"])
    with pytest.raises(SystemExit, match="0"):
        main()
    said = capsys.readouterr()
    assert "is not a valid result (test.joules: " in said.err
    assert json.loads(said.out)["accuracy"] == stored["test"]["accuracy"]
