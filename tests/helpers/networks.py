"""Small networks with an oracle each: their synaptic operations counted by plain loops that know nothing of ψ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

import picojoule as pj
from picojoule.spikes.layout import TimeLayout

Spikes = dict[str, NDArray[Any]]


class Network(nn.Module):
    """A network without memory: `step` is one time step, `forward` that, or a loop over the first axis."""

    loops = False

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.step(now) for now in x]) if self.loops else self.step(x)

    def step(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Mixed(nn.Module):
    """A layer of spikes, and between it and the last synapses whatever a function makes of them."""

    def __init__(self, mix: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.encoder, self.spike, self.head, self.mix = nn.Linear(4, 4), pj.Spike(), nn.Linear(4, 3), mix

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.mix(self.spike(self.encoder(x))))
        return result


class Chain(Network):
    """One layer after the other. With a time axis, spiking layers see [T, B, …] or [B, T, …], others see it folded."""

    time_axis: int | None = None

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    def step(self, x: Tensor) -> Tensor:
        for layer in self.children():
            if self.time_axis is None or isinstance(layer, pj.Spike):
                x = layer(x)
            else:
                x = layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return x


class Residual(Network):
    def __init__(self) -> None:
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 4)
        self.s1, self.s2 = spike(), spike()

    def step(self, x: Tensor) -> Tensor:
        first = self.s1(self.l1(x))
        out: Tensor = self.l3(first + self.s2(self.l2(first)))
        return out


def spike() -> pj.Spike:
    return pj.Spike(threshold=0.1)


def linear() -> Chain:
    return Chain(l1=nn.Linear(6, 5), s1=spike(), l2=nn.Linear(5, 4), s2=spike(), l3=nn.Linear(4, 3))


def convolutional() -> Chain:
    return Chain(
        c1=nn.Conv2d(2, 4, 3, padding=1),
        s1=spike(),
        c2=nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        s2=spike(),
        flat=nn.Flatten(),
        l3=nn.Linear(54, 7),
    )


def pooled() -> Chain:
    return Chain(
        c1=nn.Conv2d(1, 3, 3, padding=1),
        s1=spike(),
        pool=nn.AvgPool2d(3, stride=2, padding=1),
        c2=nn.Conv2d(3, 2, 2),
        s2=spike(),
        flat=nn.Flatten(),
        l3=nn.Linear(8, 5),
    )


def relayed() -> Chain:
    return Chain(
        c1=nn.Conv2d(1, 3, 3),
        s1=spike(),
        pool=nn.MaxPool2d(2),
        c2=nn.Conv2d(3, 4, 2, padding=1),
        s2=spike(),
        flat=nn.Flatten(),
        l3=nn.Linear(36, 5),
    )


def conv_ops(x: NDArray[Any], outputs: int, k: int, stride: int = 1, padding: int = 0, groups: int = 1) -> float:
    """Every window, every place in it, every channel: what is there goes to each output channel of its group."""
    channels, height, width = x.shape
    total = 0.0
    for top in range(-padding, height + padding - k + 1, stride):
        for left in range(-padding, width + padding - k + 1, stride):
            for row in range(top, top + k):
                for column in range(left, left + k):
                    if 0 <= row < height and 0 <= column < width:
                        for channel in range(channels):
                            total += x[channel, row, column] * (outputs // groups)
    return total


def covering_windows(x: NDArray[Any], k: int, stride: int, padding: int) -> NDArray[Any]:
    """What enters each window of a pool."""
    channels, height, width = x.shape
    tops = range(-padding, height + padding - k + 1, stride)
    lefts = range(-padding, width + padding - k + 1, stride)
    out = np.zeros((channels, len(tops), len(lefts)))
    for i, top in enumerate(tops):
        for j, left in enumerate(lefts):
            out[:, i, j] = x[:, max(top, 0) : top + k, max(left, 0) : left + k].sum((1, 2))
    return out


@dataclass(frozen=True)
class Case:
    """A network, and its operations by layer for the spikes of one sample in one step."""

    build: Callable[[], Network]
    input_shape: tuple[int, ...]
    operations: Callable[[Spikes], dict[str, float]]
    encoder_macs: float
    """Multiply-accumulates of the synapses fed by the input."""
    inner_macs: float
    """Those of all other synapses, in the dense twin."""

    def inputs(self, *leading: int) -> Tensor:
        return torch.randn(*leading, *self.input_shape)

    def trace(self, net: Network, psi: Any = "exact") -> pj.Synapses:
        return pj.trace(net, torch.zeros(1, *self.input_shape), psi=psi)

    @cache  # noqa: B019  # there are five cases
    def synapses(self, psi: Any = "exact") -> pj.Synapses:
        """What `trace` gives for any network as it is built: ψ does not depend on the weights."""
        with torch.random.fork_rng(devices=[]):
            return self.trace(self.build(), psi)

    def by_hand(self, activity: pj.Activity) -> dict[str, float]:
        """Synaptic operations of everything in the block, by layer."""
        maps = {name: activity[name].detach().float().numpy() for name in activity}
        if activity.steps == 1:
            maps = {name: m[None] for name, m in maps.items()}
        steps, samples = next(iter(maps.values())).shape[:2]
        total = dict.fromkeys(maps, 0.0)
        for t in range(steps):
            for b in range(samples):
                for name, operations in self.operations({name: m[t, b] for name, m in maps.items()}).items():
                    total[name] += operations
        return total


CASES = {
    "linear": Case(linear, (6,), lambda s: {"s1": s["s1"].sum() * 4, "s2": s["s2"].sum() * 3}, 6 * 5, 5 * 4 + 4 * 3),
    "convolutional": Case(
        convolutional,
        (2, 5, 5),
        lambda s: {"s1": conv_ops(s["s1"], 6, 3, stride=2, padding=1, groups=2), "s2": s["s2"].sum() * 7},
        conv_ops(np.ones((2, 5, 5)), 4, 3, padding=1),
        conv_ops(np.ones((4, 5, 5)), 6, 3, stride=2, padding=1, groups=2) + 54 * 7,
    ),
    "pooled": Case(
        pooled,
        (1, 6, 6),
        lambda s: {"s1": conv_ops(covering_windows(s["s1"], 3, 2, 1), 2, 2), "s2": s["s2"].sum() * 5},
        conv_ops(np.ones((1, 6, 6)), 3, 3, padding=1),
        conv_ops(np.ones((3, 3, 3)), 2, 2) + 8 * 5,
    ),
    "residual": Case(
        Residual,
        (6,),
        lambda s: {"s1": s["s1"].sum() * (5 + 4), "s2": s["s2"].sum() * 4},
        6 * 5,
        5 * 5 + 5 * 4,
    ),
    "relayed": Case(
        relayed,
        (1, 6, 6),
        lambda s: {"s1": 0.0, "pool": conv_ops(s["pool"], 4, 2, padding=1), "s2": s["s2"].sum() * 5},
        conv_ops(np.ones((1, 6, 6)), 3, 3),
        conv_ops(np.ones((3, 2, 2)), 4, 2, padding=1) + 36 * 5,
    ),
}


@contextmanager
def laid_out(net: Network, x: Tensor, layout: str) -> Iterator[pj.Activity]:
    """The spikes of x [T, B, …], run through the network in one of the ways in which time can pass."""
    steps = len(x)
    arguments: dict[str, Any] = {"steps": steps}
    if layout == "calls":
        batches = list(x)
    elif layout == "loop":
        net.loops, batches = True, [x]
    elif layout in ("axis 0", "axis 1"):
        assert isinstance(net, Chain)
        net.time_axis = arguments["time_axis"] = int(layout[-1])
        batches = [x.transpose(0, net.time_axis)]
    else:
        arguments["folded"] = layout.removeprefix("folded ")
        batches = [(x if arguments["folded"] == "time" else x.transpose(0, 1)).flatten(0, 1)]
    with pj.watch(net, **arguments) as activity:
        for batch in batches:
            net(batch)
    net.loops = False
    if isinstance(net, Chain):
        net.time_axis = None
    yield activity


LAYOUTS = ("calls", "loop", "axis 0", "axis 1", "folded time", "folded batch")


def metered(samples: slice) -> pj.EnergyMeter:
    """A meter that has seen some of the same ten samples of two layers."""
    random = torch.Generator().manual_seed(7)
    shapes = {"a": (3, 4, 4), "b": (6,)}
    layers = {name: pj.Layer(name, torch.randint(9, shape, generator=random)) for name, shape in shapes.items()}
    meter = pj.EnergyMeter(pj.Synapses(layers, psi="exact", input_shape=(1,), steps=1, encoder_macs=0, dense_macs=0))
    activity = pj.Activity(TimeLayout())
    for name, shape in shapes.items():
        activity.record(name, torch.randint(3, (10, *shape), generator=random)[samples])
    meter.update(activity)
    return meter


def metered_in_a_process(rank: int, world: int, folder: Path) -> None:
    """Count this process's share of the samples (7 and 3); the first process gathers all counts and writes them."""
    meter = metered(slice(rank * 7, (rank + 1) * 7))
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world, timeout=timedelta(minutes=10)
    )
    try:
        gathered = [{key: torch.empty_like(value) for key, value in meter.state_dict().items()} for _ in range(world)]
        for key, value in meter.state_dict().items():
            dist.all_gather([state[key] for state in gathered], value)
    finally:
        dist.destroy_process_group()
    if rank == 0:
        whole = pj.EnergyMeter(meter.synapses)
        for state in gathered:
            part = pj.EnergyMeter(meter.synapses)
            part.load_state_dict(state)
            whole.merge(part)
        torch.save(whole.state_dict(), folder / "whole.pt")
