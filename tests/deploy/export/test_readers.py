"""Other programs load our NIR files and give the same classes, by their own code; where they cannot, it is refused."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nir
import pytest
import torch
from torch import Tensor, nn

import nir_networks
import picojoule as pj
from frameworks import need
from nir_networks import ALL, CASES, network
from picojoule.errors import PicojouleError

Read = Callable[[Path, bool, int], Callable[[Tensor], Iterator[Tensor]]]
"""A file, whether its neurons fire once in a step at most, and the steps: to a run that gives the output of each."""


def norse(file: Path, once: bool, steps: int) -> Callable[[Tensor], Iterator[Tensor]]:
    read = need("norse.torch").from_nir(nir.read(file), dt=1.0)
    return lambda images: with_states(read, images, steps)


def spikingjelly(file: Path, once: bool, steps: int) -> Callable[[Tensor], Iterator[Tensor]]:
    read = need("spikingjelly.activation_based.nir_exchange").import_from_nir(file, dt=1.0)
    return lambda images: with_states(read, images, steps)


def snntorch(file: Path, once: bool, steps: int) -> Callable[[Tensor], Iterator[Tensor]]:
    read = need("snntorch.import_nir").import_from_nir(nir.read(file))
    return lambda images: with_states(read, images, steps)


def sinabs(file: Path, once: bool, steps: int) -> Callable[[Tensor], Iterator[Tensor]]:
    read = need("sinabs.nir").from_nir(nir.read(file), batch_size=nir_networks.SAMPLES)
    if once:
        for module in read.modules():
            if hasattr(module, "spike_fn"):
                module.spike_fn = need("sinabs.activation").SingleSpike

    def run(images: Tensor) -> Iterator[Tensor]:  # all steps of a sample follow each other, [B·T, …]
        rows = images.repeat_interleave(steps, 0)
        yield from read(rows)[0].unflatten(0, (-1, steps)).unbind(1)

    return run


def with_states(read: nn.Module, images: Tensor, steps: int) -> Iterator[Tensor]:
    state = None
    for _ in range(steps):
        output, state = read(images, state)
        yield output


WRITES = pytest.mark.skipif(importlib.metadata.version("nir") < "1.0.8", reason="files are written with a newer nir")
READERS: dict[str, Read] = {"norse": norse, "snntorch": snntorch, "spikingjelly": spikingjelly, "sinabs": sinabs}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of files for each reader, written beside the newest `nir`, which a reader may not have."""
    made: dict[str, Path] = {}

    def folder(reader: str) -> Path:
        if reader not in made:
            made[reader] = tmp_path_factory.mktemp(reader)
            packages = [str(Path(module.__file__ or "").parents[1]) for module in (torch, pj)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
            command = [sys.executable, nir_networks.__file__, str(made[reader]), reader]
            subprocess.run(command, check=True, env=environment)
        return made[reader]

    return folder


@pytest.mark.filterwarnings("ignore:nirtorch.load:DeprecationWarning")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CASES)
def test_it_is_read_elsewhere(name: str, reader: str, files: Callable[[str], Path]) -> None:
    need(reader)
    if reader not in CASES[name].readers:
        pytest.skip("such neurons are not read there, which the next test shows")
    file = files(reader) / f"{name}.nir"
    wanted = torch.load(file.with_suffix(".pt"))
    run = READERS[reader](file, name != "if that subtracts", wanted["steps"])
    with torch.no_grad():
        theirs = sum(run(wanted["images"]), torch.zeros(())) / wanted["steps"]
    same = (theirs.argmax(1) == wanted["expected"].argmax(1)).sum().item()
    off = (theirs - wanted["expected"]).abs().max()
    print(f"{name} in {reader}: {same} of {len(theirs)} classes, logits within {off:.1e}")
    assert same == nir_networks.SAMPLES
    assert wanted["expected"].argmax(1).unique().numel() > 2


@WRITES
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "if" else pytest.mark.slow) for name in CASES])
def test_neurons_that_a_reader_has_not_are_refused(name: str) -> None:
    net, images = network(name)
    for reader in sorted(ALL - CASES[name].readers):
        with pytest.raises(PicojouleError, match=r"the NIR export cannot express .* in the layer"):
            pj.export.to_nir(net, images[:1], reader)


@WRITES
@pytest.mark.parametrize("reader", sorted(ALL))
def test_only_nodes_that_a_reader_knows_are_written(reader: str) -> None:
    net, images = network("spike")
    graph = pj.export.to_nir(net, images[:1], reader)
    kinds = {type(node).__name__ for node in graph.nodes.values()}
    lacking: dict[str, Any] = {
        "nir": set(),
        "norse": {"AvgPool2d", "SumPool2d", "Scale"},
        "snntorch": {"AvgPool2d", "SumPool2d", "Scale", "IF"},
        "spikingjelly": {"SumPool2d", "Scale"},
        "sinabs": {"AvgPool2d", "SumPool2d", "Scale", "Linear"},
    }
    assert not kinds & lacking[reader]


@pytest.mark.slow
@WRITES
def test_steps_are_told_with_the_file(tmp_path: Path) -> None:
    net, images = network("lif")
    said: list[str] = []
    pj.export.write(net, images[:1], "nir", tmp_path / "net.nir", said.append)
    assert said == ["the graph is one time step: show it each sample 4 times, and take the mean of what it puts out"]


@WRITES
def test_wrong_readers_are_refused(tmp_path: Path) -> None:
    net, images = network("spike")
    with pytest.raises(PicojouleError, match="did you mean 'norse'"):
        pj.export.to_nir(net, images[:1], "nors")
    with pytest.raises(PicojouleError, match=r"is one of NIR files"):
        pj.export.write(net, images[:1], "onnx", tmp_path / "net.onnx", reader="norse")
    each = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 2, 3, padding=1), pj.Spike(), nn.Flatten(), nn.Linear(128, 2))
    with torch.no_grad():
        each[0].running_mean.fill_(3.0)  # a constant that differs at the border
    pj.export.to_nir(each.eval(), images[:1])
    with pytest.raises(PicojouleError, match="thresholds of their own, which snntorch does not read"):
        pj.export.to_nir(each, images[:1], "snntorch")
    grouped = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), pj.Spike(), nn.Flatten(), nn.Linear(72, 2))
    with pytest.raises(PicojouleError, match="a convolution with groups, which spikingjelly lacks"):
        pj.export.to_nir(grouped, torch.zeros(1, 2, 8, 8), "spikingjelly")


def test_a_version_of_nir_that_cannot_write_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    net, images = network("spike")
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.0.4")
    with pytest.raises(PicojouleError, match=r"needs nir 1\.0\.8 or newer, and here is 1\.0\.4"):
        pj.export.to_nir(net, images[:1])
