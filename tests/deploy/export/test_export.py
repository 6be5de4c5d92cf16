"""`picojoule export`: a trained run to a file that other software runs, within the bounds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import nir
import pytest
import torch
from torch import nn

import picojoule as pj
import tiny
from agreement import compare, nir_executor, onnx_executor
from command_line import Command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    recipe = tiny.recipe("data.limit=1000", "training.epochs=8", "penalty.strength=0.1")
    return pj.fit(recipe, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("to", ["nir", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_trained_run_keeps_the_bounds(run: pj.Run, command: Command, tmp_path: Path, to: Any) -> None:
    """Layer by layer, end to end (1 spike in 10 000) and by class (99.9 % of 1 000 images), of a network that works."""
    status, out, err = command("export", str(run.path), "--trust", "--to", to, "--out", str(tmp_path / f"digits.{to}"))
    assert (status, err) == (0, "")
    path = Path(out.strip())
    assert path == tmp_path / f"digits.{to}"
    assert sorted(tmp_path.iterdir()) == [path, pj.export.beside(path)]
    model, data = pj.load_model(run), pj.data.load("digits")
    images = data.normalization(torch.cat([data.test.images, data.validation.images, data.train.images])[:1000] / 255)
    execute = nir_executor(nir.read(path)) if to == "nir" else onnx_executor(path.read_bytes(), ["spike1", "spike2"])
    found = compare(model, execute, images, batch=250)
    print(to, found)
    assert found.samples == 1000
    assert found.within_bounds
    assert run.result.test.accuracy > 0.7  # it is a network that has learned something


def test_the_file_goes_into_the_run_and_is_written_again_alike(run: pj.Run, command: Command) -> None:
    status, out, _ = command("export", str(run.path), "--trust", "--to", "nir")
    assert (status, out) == (0, f"{run.path / 'network.nir'}\n")
    before = (run.path / "network.nir").read_bytes()
    command("export", str(run.path), "--trust", "--to", "nir")
    assert (run.path / "network.nir").read_bytes() == before


def test_json_is_one_document(run: pj.Run, command: Command, tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    status, out, err = command("export", str(run.path), "--trust", "--to", "onnx", "--out", str(path), "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "run": str(run.path),
        "to": "onnx",
        "path": str(path),
        "bytes": len(path.read_bytes()),
        "input_shape": [1, 32, 32],
        "normalized_input": True,
        "facts": f"{path}.json",
    }


def test_mistakes_are_one_sentence(
    run: pj.Run, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relu = pj.fit(tiny.recipe("neuron.kind=relu", "penalty.strength=0", "training.epochs=1"), tmp_path)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    for arguments, parts in {
        (str(run.path), "--to", "nirr"): ("'nirr'", "did you mean 'nir'"),
        (str(tmp_path), "--to", "nir"): ("not a run folder",),
        (str(relu.path), "--to", "nir"): ("no spiking layer",),
        (str(run.path), "--to", "nir", "--out", str(tmp_path / "no" / "a.nir")): ("does not exist", "--out"),
        (str(run.path), "--to", "nir", "--out", "."): ("is a folder", "--out"),
        (str(run.path), "--to", "nir", "--out", str(tmp_path)): ("is a folder", "--out"),
        (str(run.path), "--to", "onnx"): ("onnxscript", "pip install 'picojoule[onnx]'"),
    }.items():
        status, out, err = command("export", "--trust", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert all(part in err for part in parts), err
    assert not list(tmp_path.glob("*.nir")) + list(tmp_path.glob("no"))


def test_a_grouped_convolution_is_written_with_a_word_on_how_to_read_it(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, groups=2), pj.Spike())
    said: list[str] = []
    path = pj.export.write(net, torch.zeros(1, 2, 5, 5), "nir", tmp_path / "a.nir", said.append)
    assert ["type_check=False" in text for text in said] == [True]
    nir.read(path, type_check=False)
    with pytest.raises(ValueError, match="mismatch"):  # when this passes, nir has been mended and the word can go
        nir.read(path)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match=r"unknown format 'nrr'.*did you mean 'nir'"):
        pj.export.write(torch.nn.Sequential(pj.Spike()), torch.zeros(1, 2), "nrr", tmp_path / "a")  # type: ignore[arg-type]


def test_nothing_is_left_of_a_file_for_which_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata beside it are small enough to be written."""
    put = pj.export.write_atomically

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".nir":
            raise pj.PicojouleError("cannot write (File too large)")
        put(path, content)

    monkeypatch.setattr(pj.export, "write_atomically", full)
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike())
    with pytest.raises(pj.PicojouleError, match="too large"):
        pj.export.write(net, torch.zeros(1, 4), "nir", tmp_path / "net.nir", facts={"classes": 3})
    assert list(tmp_path.iterdir()) == []


def test_a_place_beside_that_is_no_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net.nir.json")
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike())
    with pytest.raises(pj.PicojouleError, match="is a pipe, not a file"):
        pj.export.write(net, torch.zeros(1, 4), "nir", tmp_path / "net.nir", facts={"classes": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["net.nir.json"]
