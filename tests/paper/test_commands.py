"""`picojoule paper` as its users meet it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from picojoule.cli import main
from picojoule.paper import EXPERIMENTS, SIZES

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PICOJOULE_DATA", str(tmp_path / "empty"))

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["picojoule", "paper", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return command


@pytest.mark.slow
def test_a_table_is_printed_and_written(command: Command) -> None:
    status, out, _ = command("run", "totals", "layers-cnn7")
    assert status == 0
    assert "98895888" in out
    assert "827 367 424" in out  # the misprint is named
    assert Path("paper/totals/totals.csv").read_text().splitlines()[1].endswith(",98895888,98895888,0")
    assert Path("paper/layers-cnn7/shares.png").is_file()


def test_json_is_one_document(command: Command) -> None:
    status, out, _ = command("run", "hyperparameters", "--scale", "smoke", "--json", "--out", "elsewhere")
    (made,) = json.loads(out)
    assert status == 0
    assert (made["name"], made["place"], made["failures"]) == ("hyperparameters", "Table 6", [])
    assert len(made["tables"]["hyperparameters"]["rows"]) == 8
    assert json.loads(Path("elsewhere/hyperparameters/summary.json").read_text()) | {"files": []} == made | {
        "files": []
    }


@pytest.mark.slow
def test_numbers_are_numbers_in_json(command: Command) -> None:
    status, out, _ = command("run", "totals", "--json")
    (made,) = json.loads(out)
    assert status == 0
    assert 98_895_888 in made["tables"]["totals"]["rows"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "total"), "unknown experiment 'total': did you mean 'totals'?"),
        (("run", "totals", "--scale", "big"), "unknown --scale 'big': choose one of full, small, mini, quick, smoke"),
        (("run", "totals", "--on", "moon"), "unknown --on 'moon'"),
        (("run", "totals", "--seeds", "0"), "0 seeds are not possible: take a whole number from 1 to 1000"),
    ],
)
def test_a_mistake_is_one_sentence(command: Command, arguments: tuple[str, ...], words: str) -> None:
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_the_list(command: Command) -> None:
    status, out, _ = command("list", "--json")
    lines = json.loads(out)
    assert status == 0
    assert [line["name"] for line in lines] == list(EXPERIMENTS)
    assert {line["place"] for line in lines} >= {"Table 1", "Figure 3 (D), Table 20", "Figure 4"}
    for line in lines:
        assert set(line["scales"]) == set(SIZES)
        runs, seconds = ([line["scales"][size][key] for size in SIZES] for key in ("runs", "seconds"))
        assert [*runs[:2], *runs[3:]] == sorted([*runs[:2], *runs[3:]], reverse=True)
        assert not runs[0] or seconds[0] > seconds[1] > seconds[2] > seconds[3] > seconds[4] > 0
        gpu = [line["scales"][size]["gpu_seconds"] for size in SIZES]
        assert not runs[0] or 0 < gpu[0] < seconds[0]
