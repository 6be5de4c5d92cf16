"""`picojoule sweep` as its users meet it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import picojoule as pj
import tiny
from picojoule.cli import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("TINY_MARKS", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")

    def sweep(text: str, *arguments: str) -> tuple[int, str, str]:
        (tmp_path / "sweep.toml").write_text(text)
        runs = str(tmp_path / "runs")
        monkeypatch.setattr(sys, "argv", ["picojoule", "sweep", f"{tmp_path}/sweep.toml", *arguments, "--into", runs])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capfd.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return sweep


SWEEP = tiny.RECIPE.replace("tiny:net", "tiny:marked") + "\n[[axes]]\npenalty.strength = [0, 1]\n"


@pytest.mark.slow
def test_a_table_and_then_json_of_the_same_runs(sweep: Command, tmp_path: Path) -> None:
    status, out, err = sweep(SWEEP, "training.epochs=1")
    assert status == 0
    assert "built" not in out  # what a model prints is no result
    recipes = pj.sweep.load(tmp_path / "sweep.toml", "training.epochs=1")
    for recipe in recipes:
        assert recipe.name in out
        assert f"{recipe.name} done: accuracy " in err
    status, out, err = sweep(SWEEP, "training.epochs=1", "--json")
    assert (status, err) == (0, "")
    content = json.loads(out)
    assert content["failures"] == []
    assert [entry["varied"] for entry in content["runs"]] == [{"penalty.strength": 0}, {"penalty.strength": 1}]
    for entry, recipe in zip(content["runs"], recipes, strict=True):
        run = pj.Run.at(entry["path"])
        assert run.recipe == recipe
        assert run.result.test.accuracy == entry["accuracy"]


def test_a_run_that_fails_is_named_with_its_reason(sweep: Command) -> None:
    text = tiny.RECIPE + '\n[[axes]]\nmodel.name = ["tiny:net", "tiny:exits"]\n'
    status, out, err = sweep(text, "training.epochs=1", "--json")
    assert status == 1
    content = json.loads(out)
    assert [entry["varied"] for entry in content["runs"]] == [{"model.name": "tiny:net"}]
    (failure,) = content["failures"]
    assert failure["reason"].startswith("SystemExit: tiny:exits ended the process (SystemExit: enough)")
    assert err.splitlines()[-1] == f"picojoule: {failure['name']} failed: {failure['reason']}"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--on", "cluster"], "unknown --on 'cluster': choose one of local, ray"),
        (["--workers", "0"], "0 workers"),
        (["--address", "auto"], "Ray cluster"),
        (["penalty.strength=3"], "penalty.strength=3 has no effect"),
        (["penalty.p=0"], "penalty.p = 0 is not allowed"),
    ],
)
def test_mistakes(sweep: Command, arguments: list[str], part: str) -> None:
    status, out, err = sweep(SWEEP, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("picojoule: ")
    assert err.count("\n") == 1
    assert part in err
