"""Random networks of synapses, products, gates, sums and recurrence against a machine that counts events as it runs.

The machine is the network itself, run on plain tensors with a ledger: every operation knows what each spike in it
costs, pair by pair, and what it makes. It shares nothing with the structural pass. The ledger is also a polynomial in
the spikes, whose gradient is that of the penalty.
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
    polynomial: Tensor | float = 0.0
    """The accumulates, with a gradient."""


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
    recurrent: bool = False
    lines: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.lines = [
            (chance.choice(RECURRENT if self.recurrent else OPERATIONS), chance.randrange(100), chance.randrange(100))
            for _ in range(self.length)
        ]


class Net(nn.Module):
    def __init__(self, program: Program, *, loops: bool = False) -> None:
        super().__init__()
        self.program, self.ledger, self.loops = program, Ledger(), loops
        self.kept: dict[int, Tensor] = {}
        """Spikes of the step before, by the line that feeds them back."""
        self.event = pj.declare_spiking(nn.Identity())
        lines = range(program.length)
        self.weights = nn.ModuleList(
            nn.Linear(SIZE, SIZE) if self._is(i, "weights") or self._is(i, "back") else nn.Identity() for i in lines
        )
        self.fires = nn.ModuleList(pj.declare_spiking(Fires()) if self._is(i, "fire") else nn.Identity() for i in lines)

    def _is(self, line: int, operation: str) -> bool:
        return self.program.lines[line][0] == operation

    def forward(self, x: Tensor) -> Tensor:
        if not self.loops:
            return self.step(x)
        self.kept = {}
        return torch.stack([self.step(frame) for frame in x])

    def step(self, x: Tensor) -> Tensor:
        values = [Value(self.event(x), spikes=True, binary=True)]
        for line, (operation, first, second) in enumerate(self.program.lines):
            one, other = values[-1 - first % min(3, len(values))], values[-1 - second % min(3, len(values))]
            values.append(getattr(self, f"_{operation}")(line, one, other))
        return torch.stack([value.map for value in values]).sum(0)

    def _pay(self, accumulates: Tensor | float = 0.0, macs: float = 0.0, unit: Tensor | float = 0.0) -> None:
        if self.ledger.on:
            self.ledger.accumulates += _number(accumulates) + _number(unit)
            self.ledger.unit += _number(unit)
            self.ledger.macs += macs
            self.ledger.polynomial = self.ledger.polynomial + accumulates + unit

    def _weights(self, line: int, x: Value, _: Value) -> Value:
        if x.spikes:
            self._pay(x.map.sum() * SIZE)
        else:
            self._pay(macs=x.map.numel() * SIZE)
        return Value(self.weights[line](x.map), spikes=False)

    def _fire(self, line: int, x: Value, _: Value) -> Value:
        arrived = x.map.sum() if x.spikes else x.loose
        self._pay(unit=arrived)
        return Value(self.fires[line](x.map), spikes=True, binary=True)

    def _product(self, line: int, a: Value, b: Value) -> Value:
        if self.ledger.on:
            one, other = (v.map if v.spikes else torch.ones_like(v.map) for v in (a, b))
            meetings = (one[:, :, :, None] * other[:, None]).sum()  # sample, row, contracted, column
            if a.spikes or b.spikes:
                self._pay(meetings)
            else:
                self._pay(macs=meetings.item())
        return Value(a.map @ b.map, spikes=False)

    def _gate(self, line: int, a: Value, b: Value) -> Value:
        if a.spikes and b.spikes:
            return Value(a.map * b.map, spikes=True, binary=a.binary and b.binary)
        for spiking in (a, b):
            if spiking.spikes:
                self._pay(spiking.map.sum())
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
        loose = sum(v.map.sum() if v.spikes else v.loose for v in (a, b))
        return Value(a.map + b.map, spikes=False, loose=loose)

    def _pool(self, line: int, a: Value, _: Value) -> Value:
        return Value(F.max_pool1d(a.map, 3, 1, 1), a.spikes, a.binary)

    def _turn(self, line: int, a: Value, _: Value) -> Value:
        return Value(a.map.transpose(1, 2).flip(1), a.spikes, a.binary, a.loose)

    def _back(self, line: int, x: Value, _: Value) -> Value:
        """Weigh the spikes of the step before; those of this step are kept for the next."""
        if not x.spikes:
            return self._weights(line, x, x)
        before = self.kept.get(line, torch.zeros_like(x.map))
        self.kept[line] = x.map
        return self._weights(line, Value(before, spikes=True), x)

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


RECURRENT = [*OPERATIONS, *["back"] * 4]
STEPS = 3


def _number(value: Tensor | float) -> float:
    return value.item() if isinstance(value, Tensor) else float(value)


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


def check_over_time(seed: int, length: int, *, loops: bool) -> bool:
    """Whether spikes are fed back in a network that agrees with its ledger, in value, gradient and Ω(1)."""
    torch.manual_seed(seed)
    net = Net(Program(seed, length, recurrent=True), loops=loops)
    x = (torch.rand(STEPS, 4, SIZE, SIZE) < 0.5).float().requires_grad_()
    synapses = pj.trace(
        net, torch.zeros(STEPS, 2, SIZE, SIZE) if loops else torch.zeros(2, SIZE, SIZE), steps=STEPS if loops else 1
    )
    net.ledger = ledger = Ledger(on=True)
    net.kept = {}
    with pj.watch(net, steps=STEPS) as activity:
        for frame in [x] if loops else x:
            net(frame)
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    report = meter.compute()
    assert (report.synops * 4, report.unit_synops * 4) == pytest.approx((ledger.accumulates, ledger.unit), abs=1e-6)
    assert report.analog_macs * 4 == ledger.macs
    omega = pj.Penalty(synapses, normalized=False)(activity)
    assert omega.item() == pytest.approx(report.synops, rel=1e-5)
    weights = [x, *net.parameters()]
    if isinstance(ledger.polynomial, Tensor):
        ours = torch.autograd.grad(4 * omega, weights, allow_unused=True, retain_graph=True)
        theirs = torch.autograd.grad(ledger.polynomial, weights, allow_unused=True)
        for a, b, weight in zip(ours, theirs, weights, strict=True):
            a, b = (torch.zeros_like(weight) if g is None else g for g in (a, b))
            assert torch.allclose(a, b, rtol=1e-3, atol=1e-3 * max(1.0, b.abs().max().item()))
    return any(layer.by_step is not None for layer in synapses.values())


@given(st.integers(0, 10**6), st.integers(3, 10), st.booleans())
@settings(max_examples=20, deadline=None)
def test_random_recurrent_networks_cost_what_their_events_cost(seed: int, length: int, loops: bool) -> None:
    check_over_time(seed, length, loops=loops)


def test_the_random_recurrent_networks_feed_spikes_back() -> None:
    assert sum(check_over_time(seed, 8, loops=bool(seed % 2)) for seed in range(8)) > 2
