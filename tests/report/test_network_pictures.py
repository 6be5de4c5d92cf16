"""`picojoule show` draws a trained network at work, or says in a sentence why it cannot."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import picojoule as pj
import tiny
from command_line import Command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe("training.epochs=1"), into=tmp_path_factory.mktemp("runs"), accelerator="cpu")


def test_pictures_of_every_kind_are_written_beside_the_run(run: pj.Run, command: Command) -> None:
    status, out, _ = command("show", run.path, "--images", "4", "--trust", "--json")
    assert status == 0
    pictures = [Path(path) for path in json.loads(out)["pictures"]]
    assert {path.parent for path in pictures} == {run.path / "pictures"}
    names = {path.stem for path in pictures}
    assert {"raster", "rates", "potentials"} <= names
    assert {path.suffix for path in pictures} == {".svg", ".png", ".pdf"}
    for path in pictures:
        assert path.stat().st_size > 1000
    assert pj.Run.at(run.path).finished


@pytest.mark.slow
def test_the_images_that_are_drawn_can_be_chosen(run: pj.Run, command: Command, tmp_path: Path) -> None:
    def raster(*options: str) -> str:
        assert command("show", run.path, *options, "--trust", "--out", tmp_path)[0] == 0
        return (tmp_path / "raster.svg").read_text()

    assert raster("--at", "0,1") == raster("--images", "2")
    assert raster("--at", "3,2") != raster("--at", "0,1")


@pytest.mark.parametrize(
    ("at", "says"), [("3,x", "names no images"), ("-1", "no image -1"), ("0,99999", "no image 99999: the split has ")]
)
def test_images_that_are_not_there_are_named(run: pj.Run, command: Command, at: str, says: str) -> None:
    status, _, err = command("show", run.path, f"--at={at}", "--trust")
    assert status == 2
    assert says in err


@pytest.mark.slow
def test_the_report_page_shows_the_pictures_of_a_run(run: pj.Run, command: Command, tmp_path: Path) -> None:
    (run.path / "pictures").mkdir(exist_ok=True)
    (run.path / "pictures" / "raster.svg").write_text("<svg><!-- a picture --></svg>")
    assert command("report", run.path.parent, "--out", tmp_path)[0] == 0
    page = (tmp_path / "report.html").read_text()
    assert "Networks at work" in page
    assert base64.b64encode(b"<svg><!-- a picture --></svg>").decode() in page


@pytest.mark.parametrize(("images", "says"), [("0", "0 images"), ("1001", "1001 images")])
def test_too_many_or_no_images_are_a_mistake(run: pj.Run, command: Command, images: str, says: str) -> None:
    status, _, err = command("show", run.path, "--images", images, "--trust")
    assert status == 2
    assert says in err


def test_a_network_without_spikes_is_named(tmp_path: Path, command: Command) -> None:
    dense = pj.fit(
        tiny.recipe("training.epochs=1", "neuron.kind=relu", "penalty.strength=0"), into=tmp_path, accelerator="cpu"
    )
    status, _, err = command("show", dense.path, "--trust")
    assert status == 2
    assert "has no spikes" in err
