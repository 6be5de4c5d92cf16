"""Networks for other readers of NIR, written to files together with samples and what the network gives for them.

Run as a program, `python nir_networks.py FOLDER READER`, because a reader may need another `nir` than the writer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.neurons.time_steps import present, readout

SAMPLES = 1000


class OverTime(nn.Sequential):
    """Layers that see the same sample in each of several steps, whose outputs are averaged."""

    def __init__(self, steps: int, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        return readout(super().forward(present(x, self.steps)), self.steps)


def convolutional(*neurons: nn.Module) -> list[nn.Module]:
    """Max pool, average pool at the end, a linear layer without bias: all that some reader lacks."""
    first, second, third = neurons
    return [
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), first, nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), second, nn.Conv2d(8, 16, 2), nn.BatchNorm2d(16), third),
        *(nn.AvgPool2d(3), nn.Flatten(), nn.Linear(16, 10, bias=False)),
    ]


def fully_connected(neuron: nn.Module) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(64, 32), neuron, nn.Linear(32, 10)]


@dataclass(frozen=True)
class Case:
    steps: int
    layers: Callable[[], list[nn.Module]]
    readers: frozenset[str]
    """Those that have such neurons; all others refuse them."""


ALL = frozenset({"nir", "norse", "snntorch", "spikingjelly", "sinabs"})
ONCE = {"reset": "zero", "max_spikes": 1, "floor": None, "threshold": 0.5}


def _of(kind: Any, steps: int, **settings: Any) -> Callable[[], list[nn.Module]]:
    return lambda: convolutional(*(kind(steps=steps, **settings) for _ in range(3)))


CASES = {
    "spike": Case(1, lambda: convolutional(*(pj.Spike(0.3) for _ in range(3))), ALL),
    "if": Case(4, _of(pj.IF, 4, **ONCE), ALL - {"sinabs"}),
    "lif": Case(4, _of(pj.LIF, 4, leak=0.3, **ONCE), ALL - {"sinabs"}),
    "lif that subtracts": Case(4, lambda: fully_connected(pj.LIF(steps=4, leak=0.3)), frozenset({"sinabs"})),
    "if that subtracts": Case(4, lambda: fully_connected(pj.IF(steps=4)), frozenset({"sinabs"})),
}


def network(name: str) -> tuple[nn.Module, Tensor]:
    """A network with random weights and statistics as after training, and samples for it."""
    torch.manual_seed(0)
    case = CASES[name]
    net, images = OverTime(case.steps, *case.layers()), torch.randn(SAMPLES, 1, 8, 8)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(images)
    return net.eval(), images


def write(folder: Path, reader: str) -> None:
    for name, case in CASES.items():
        if reader in case.readers:
            net, images = network(name)
            file = pj.export.write(net, images[:4], "nir", folder / f"{name}.nir", reader=reader, facts={"classes": 10})
            with torch.no_grad():
                torch.save({"images": images, "expected": net(images), "steps": case.steps}, file.with_suffix(".pt"))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
