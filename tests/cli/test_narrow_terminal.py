"""Every command on a terminal of 80 columns: no line is longer, nothing is cropped, and no number is split."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import picojoule as pj
from command_line import COMMANDS
from picojoule.cli import demo as demonstration
from picojoule.cli import main
from picojoule.paper import estimate
from picojoule.paper.step_time import StepTime
from picojoule.report import Comparison

WIDTH = 80
FRAME = str.maketrans(dict.fromkeys("┃│┏┓┗┛┡┩└┘━─╇┳┴┼├┤╋┷┯┿╭╮╰╯", " "))
TRAINED = "cnn7-digits-"  # how the names of runs begin


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


Shown = Callable[..., tuple[str, str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Run a command; return what it writes to a terminal of 80 columns, and what to a file."""

    def shown(*arguments: str, status: int = 0) -> tuple[str, str]:
        outputs = []
        for stream in (Terminal, io.StringIO):
            monkeypatch.setattr(sys, "argv", ["picojoule", *arguments])
            monkeypatch.setenv("TERM", "dumb")  # 80 columns, and no colours
            monkeypatch.delenv("COLUMNS", raising=False)
            out = stream()
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", stream())
            with pytest.raises(SystemExit) as stop:
                main()
            assert int(stop.value.code or 0) == status
            outputs.append(out.getvalue())
        return outputs[0], outputs[1]

    return shown


def words(text: str) -> set[str]:
    return {word.rstrip(":") for word in text.translate(FRAME).split()}


def check(narrow: str, wide: str) -> None:
    for line in narrow.splitlines():
        assert len(line) <= WIDTH or len(line.split()) == 1, line  # a path is left to the terminal, to be copied whole
    assert "…" not in narrow.replace(" … ", "")  # nothing is cropped; a … b is a range of ψ
    lost = words(wide) - words(narrow) - {"layer"}  # the heading of names, which may stand without one
    assert not lost, sorted(lost)


@pytest.fixture(scope="module")
def runs(finished_run: pj.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline and a penalised network."""
    folder = tmp_path_factory.mktemp("narrow") / "runs"
    recipe = finished_run.recipe
    for strength in (0, 8):
        pj.fit(recipe.with_values(penalty={"strength": strength}), folder, accelerator="cpu")
    return folder


SECONDS = (
    *("data.limit=10", "data.limit_validation=10", "data.limit_test=10"),
    *("training.epochs=1", "training.batch_size=5", "training.threads=1"),
)
"""Values with which a recipe trains in a second."""


def penalised(runs: Path) -> Path:
    return next(path for path in runs.glob(f"{TRAINED}*") if "-8-" in path.name)


def sweep_file(out: Path) -> Path:
    file = out / "two.toml"
    file.write_text('model.name = "cnn7"\ndata.name = "digits"\n[[axes]]\n"penalty.strength" = [0, 8]\n')
    return file


def picture(out: Path) -> Path:
    Image.new("L", (8, 8), 200).save(out / "shoe.png")
    return out / "shoe.png"


CASES: dict[tuple[str, ...], Callable[[Path, Path], list[str]]] = {
    ("profile",): lambda runs, out: ["profile", "resnet18"],
    ("demo",): lambda runs, out: ["demo", "--out", str(out)],
    ("init",): lambda runs, out: ["init", "--help"],
    ("train",): lambda runs, out: ["train", "smoke/digits", *SECONDS, "--into", str(out)],
    ("sweep",): lambda runs, out: ["sweep", str(sweep_file(out)), *SECONDS, "--into", str(out), "--workers=1"],
    ("evaluate",): lambda runs, out: ["evaluate", str(penalised(runs))],
    ("infer",): lambda runs, out: ["infer", str(penalised(runs)), str(picture(out)), "--engine", "dense"],
    ("report",): lambda runs, out: ["report", str(runs), "--out", str(out)],
    ("show",): lambda runs, out: ["show", "--help"],
    ("doctor",): lambda runs, out: ["doctor"],
    ("export",): lambda runs, out: ["export", "--help"],
    ("frontier",): lambda runs, out: [
        *("frontier", "smoke/digits", *SECONDS, "--into", str(out), "--points", "2", "--stretch", "1")
    ],
    ("pick",): lambda runs, out: ["pick", str(runs), "--max-energy", "100uJ"],
    ("pack",): lambda runs, out: ["pack", str(runs), str(out / "all.runs.zip")],
    ("schema",): lambda runs, out: ["schema", "--help"],
    ("data",): lambda runs, out: ["data"],
    ("data", "fetch"): lambda runs, out: ["data", "fetch", "digits"],
    ("paper",): lambda runs, out: ["paper", "--help"],
    ("paper", "list"): lambda runs, out: ["paper", "list", "--into", str(out)],
    ("paper", "run"): lambda runs, out: ["paper", "run", "totals", "hyperparameters", "--out", str(out)],
}
"""What each command is shown with; those that print only paths or a document, with their help."""


def test_every_command_has_its_case() -> None:
    assert set(CASES) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=" ".join)
def test_at_80_columns_nothing_is_cropped_and_no_number_split(
    shown: Shown, runs: Path, tmp_path: Path, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(*_: Any) -> Comparison:
        found = [pj.Run(folder).result.test for folder in sorted(runs.glob(f"{TRAINED}*"))]
        return Comparison("CNN7 on ten digits", ("no penalty", "Ω_syn"), (found[0], found[1]))

    monkeypatch.setattr(demonstration, "demo", compared)
    for times, measured in ((estimate.step_time, "measure"), (estimate.on_gpu, "on_gpu")):
        monkeypatch.setattr(times, measured, lambda recipe: StepTime(1e-2, 1e-3, 1e-4))
    narrow, wide = shown(*CASES[path](runs, tmp_path))
    if path == ("infer",):  # it measures milliseconds, other ones each time
        wide = re.sub(r"\S*\d\.\d+\S*", "", wide)
    check(narrow, wide)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--hardware", "all"), ("--by", "weights", "--hardware", "loihi")])
def test_chips_side_by_side(shown: Shown, runs: Path, options: tuple[str, ...]) -> None:
    check(*shown("evaluate", str(penalised(runs)), *options))


@pytest.mark.parametrize("path", CASES, ids=" ".join)
def test_every_help_fits(shown: Shown, path: tuple[str, ...]) -> None:
    narrow, _ = shown(*path, "--help")
    assert max(map(len, narrow.splitlines())) <= WIDTH
    assert "…" not in narrow.replace("[T, B, …]", "").replace("N,N…", "")
