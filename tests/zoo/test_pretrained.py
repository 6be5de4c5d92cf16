"""Weights that ship with picojoule: each of them is what the index says, and a damaged one is refused."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
import torch

import picojoule as pj
from picojoule.cli import main
from picojoule.errors import PicojouleError
from picojoule.io.tensors import pack_tensors, read_tensors
from picojoule.runs.folder import Run
from picojoule.zoo import pretrained

NAMES = sorted(pretrained.index())
LARGEST = 2_000_000
"""Bytes of one file."""


def test_there_are_some() -> None:
    assert "cnn7/fashion-mnist-baseline" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_index(name: str) -> None:
    known, run = pretrained.index()[name], Run.at(name)
    content = (run.path / pretrained.WEIGHTS).read_bytes()
    assert len(content) < LARGEST
    assert hashlib.sha256(content).hexdigest() == known.sha256
    assert (run.recipe.digest, run.recipe.model.name) == (known.recipe, name.partition("/")[0])
    assert (run.result.test.accuracy, run.result.test.joules) == (known.accuracy, known.joules)
    assert run.result.digest == known.recipe
    if name.endswith("baseline"):
        assert known.accuracy >= 0.9
        assert not run.recipe.penalised


@pytest.mark.parametrize("name", NAMES)
def test_a_trained_network_answers_as_its_run(name: str) -> None:
    model, _, weights = name.partition("/")
    network = pj.zoo.create(model, weights=weights)
    assert not network.training
    state = Run.at(name).weights
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())
    images = torch.rand(4, *network.input_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), pj.watch(network) as activity:
        assert network(images).shape == (4, 10)
    meter = pj.EnergyMeter(pj.trace(network, images[:1]))
    meter.update(activity)
    assert meter.compute().joules > 0


def test_rounding_to_int8(tmp_path: Path) -> None:
    state = {"conv": torch.randn(4, 3, 5, 5), "norm": torch.randn(4), "zero": torch.zeros(2, 3)}
    path = tmp_path / "weights.safetensors"
    path.write_bytes(pack_tensors(state, {"note": 1}, ["conv", "zero"]))
    read, notes = read_tensors(path)
    assert notes == {"note": 1}
    assert read.keys() == state.keys()
    steps = state["conv"].abs().amax(dim=(1, 2, 3), keepdim=True) / 127
    assert ((read["conv"] - state["conv"]).abs() <= steps * 0.5001).all()
    assert torch.equal(read["norm"], state["norm"])
    assert torch.equal(read["zero"], state["zero"])


def test_unknown_and_unfit_weights() -> None:
    with pytest.raises(PicojouleError, match="unknown weights of cnn7 'fashion-mnist-baselin': did you mean"):
        pj.zoo.create("cnn7", weights="fashion-mnist-baselin")
    with pytest.raises(PicojouleError, match="unknown weights of vgg11 'fashion-mnist-baseline'"):
        pj.zoo.create("vgg11", weights="fashion-mnist-baseline")
    with pytest.raises(PicojouleError, match="are not for this cnn7: leave out classes, in_channels and neuron"):
        pj.zoo.create("cnn7", classes=7, weights="fashion-mnist-baseline")


def test_a_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(pretrained.HOME, tmp_path / "home")
    monkeypatch.setattr(pretrained, "HOME", tmp_path / "home")
    path = tmp_path / "home" / "cnn7" / "fashion-mnist-baseline" / pretrained.WEIGHTS
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(PicojouleError, match="its content does not match its hash"):
        pj.zoo.create("cnn7", weights="fashion-mnist-baseline")
    with pytest.raises(PicojouleError, match="its content does not match its checksum"):
        _ = Run.at("cnn7/fashion-mnist-baseline").weights


@pytest.mark.slow
def test_a_shipped_network_is_exported_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nir")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["picojoule", "export", "cnn7/fashion-mnist-baseline", "--to", "nir"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert capsys.readouterr().out.strip() == "network.nir"
    assert (tmp_path / "network.nir").stat().st_size > 1_000_000
