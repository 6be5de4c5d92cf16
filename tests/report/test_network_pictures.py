"""`picojoule show` draws a trained network at work, or says in a sentence why it cannot."""

from __future__ import annotations

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
