"""Random networks of synapses, products, gates and sums against a machine that counts events while it runs.

The machine is the network itself, run on plain tensors with a ledger: every operation knows what each spike in it
costs, pair by pair, and what it makes. It shares nothing with the structural pass.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import picojoule as pj

SIZE = 4


class Fires(nn.Module):
    """Ones and zeros; the gradient is that of the identity."""

    def forward(self, u: Tensor) -> Tensor:
        return (u > 0.3).float() + (u - u.detach())


@dataclass
class Ledger:
    """What was spent while the network ran."""

    accumulates: float = 0.0
    unit: float = 0.0
    macs: float = 0.0
    on: bool = False


@dataclass
class Value:
    """A map [B, 4, 4] of spikes or analog values."""

    map: Tensor
    spikes: bool
    binary: bool = False
    loose: Tensor | float = 0.0
    """Spikes that are in an analog sum and have met no weight yet."""


@dataclass
class Program:
    """A list of operations, each on values made before it."""

    seed: int
    length: int
    lines: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.lines = [
            (chance.choice(OPERATIONS), chance.randrange(100), chance.randrange(100)) for _ in range(self.length)
        ]


class Net(nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program, self.ledger = program, Ledger()
        self.event = pj.declare_spiking(nn.Identity())
        lines = range(program.length)
        self.weights = nn.ModuleList(nn.Linear(SIZE, SIZE) if self._is(i, "weights") else nn.Identity() for i in lines)
        self.fires = nn.ModuleList(pj.declare_spiking(Fires()) if self._is(i, "fire") else nn.Identity() for i in lines)

    def _is(self, line: int, operation: str) -> bool:
        return self.program.lines[line][0] == operation

    def forward(self, x: Tensor) -> Tensor:
        values = [Value(self.event(x), spikes=True, binary=True)]
        for line, (operation, first, second) in enumerate(self.program.lines):
            one, other = values[-1 - first % min(3, len(values))], values[-1 - second % min(3, len(values))]
            values.append(getattr(self, f"_{operation}")(line, one, other))
        return torch.stack([value.map for value in values]).sum(0)

    def _pay(self, accumulates: Tensor | float = 0.0, macs: float = 0.0, unit: Tensor | float = 0.0) -> None:
        if self.ledger.on:
            self.ledger.accumulates += float(accumulates) + float(unit)
            self.ledger.unit += float(unit)
            self.ledger.macs += macs

    def _weights(self, line: int, x: Value, _: Value) -> Value:
        if x.spikes:
            self._pay(x.map.detach().sum() * SIZE)
        else:
            self._pay(macs=x.map.numel() * SIZE)
        return Value(self.weights[line](x.map), spikes=False)

    def _fire(self, line: int, x: Value, _: Value) -> Value:
        arrived = x.map.detach().sum() if x.spikes else x.loose
        self._pay(unit=arrived)
        return Value(self.fires[line](x.map), spikes=True, binary=True)

    def _product(self, line: int, a: Value, b: Value) -> Value:
        if self.ledger.on:
            one, other = (v.map.detach() if v.spikes else torch.ones_like(v.map) for v in (a, b))
            meetings = float((one[:, :, :, None] * other[:, None]).sum())  # sample, row, contracted, column
            paid = {"accumulates": meetings} if a.spikes or b.spikes else {"macs": meetings}
            self._pay(**paid)
        return Value(a.map @ b.map, spikes=False)

    def _gate(self, line: int, a: Value, b: Value) -> Value:
        if a.spikes and b.spikes:
            return Value(a.map * b.map, spikes=True, binary=a.binary and b.binary)
        for spiking in (a, b):
            if spiking.spikes:
                self._pay(spiking.map.detach().sum())
        if not a.spikes and not b.spikes:
            self._pay(macs=a.map.numel())
        return Value(a.map * b.map, spikes=False)

    def _and_not(self, line: int, a: Value, b: Value) -> Value:
        if not (a.spikes and b.spikes and b.binary):
            return a
        return Value(a.map * (1 - b.map), spikes=True, binary=a.binary)

    def _plus(self, line: int, a: Value, b: Value) -> Value:
        if a.spikes and b.spikes:
            return Value(a.map + b.map, spikes=True)
        loose = sum(v.map.detach().sum() if v.spikes else v.loose for v in (a, b))
        return Value(a.map + b.map, spikes=False, loose=loose)

    def _pool(self, line: int, a: Value, _: Value) -> Value:
        return Value(F.max_pool1d(a.map, 3, 1, 1), a.spikes, a.binary)

    def _turn(self, line: int, a: Value, _: Value) -> Value:
        return Value(a.map.transpose(1, 2).flip(1), a.spikes, a.binary, a.loose)

    def _norm(self, line: int, a: Value, _: Value) -> Value:
        return Value(F.layer_norm(a.map, (SIZE,)), spikes=False)


OPERATIONS = [
    "weights",
    "weights",
    "fire",
    "fire",
    "product",
    "product",
    "gate",
    "gate",
    "and_not",
    "plus",
    "pool",
    "turn",
    "norm",
]


def check(seed: int, length: int) -> tuple[pj.Synapses, Ledger]:
    torch.manual_seed(seed)
    net = Net(Program(seed, length))
    x = (torch.rand(4, SIZE, SIZE) < 0.5).float()
    synapses = pj.trace(net, torch.zeros(2, SIZE, SIZE))
    meter, penalty = pj.EnergyMeter(synapses), pj.Penalty(synapses, normalized=False)
    net.ledger = ledger = Ledger(on=True)
    with pj.watch(net) as activity:
        net(x)
    meter.update(activity)
    report = meter.compute()
    assert report.synops * len(x) == ledger.accumulates
    assert report.unit_synops * len(x) == ledger.unit
    assert report.analog_macs * len(x) == ledger.macs
    assert report.encoder_macs == 0
    for p in (1, 2):
        with torch.no_grad():
            omega = pj.Penalty(synapses, normalized=False, p=p)(activity).item() * p
        if p == 1 or all(bool((activity[name] <= 1).all()) for name in activity):
            assert omega == pytest.approx(report.synops, rel=1e-5)
    assert penalty.at_one == synapses.synapses
    return synapses, ledger


@given(st.integers(0, 10**6), st.integers(3, 10))
@settings(max_examples=25, deadline=None)
def test_random_networks_cost_what_their_events_cost(seed: int, length: int) -> None:
    check(seed, length)


def test_the_random_networks_have_all_kinds() -> None:
    found = [check(seed, 8) for seed in range(12)]
    assert any(synapses.products for synapses, _ in found)
    assert any(synapses.analog for synapses, _ in found)
    assert any(layer.relay and not layer.product for synapses, _ in found for layer in synapses.values())
    assert any(ledger.unit for _, ledger in found)
