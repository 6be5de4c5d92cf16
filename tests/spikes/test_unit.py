"""Spikes in units of another value than 1, and negative ones: the bill is of |n|, as is the gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError


class Levels(nn.Module):
    """Emits what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def network(**worth: Any) -> nn.Module:
    return nn.Sequential(pj.declare_spiking(Levels(), **worth), nn.Linear(3, 5))


@pytest.mark.parametrize("unit", [1 / 4, 1 / 3, 0.1, 2.0, 1])
@pytest.mark.parametrize("signed", [False, True])
def test_the_bill_is_of_numbers_of_spikes(unit: float, signed: bool) -> None:
    net = network(unit=unit, signed=signed)
    synapses = pj.trace(net, torch.zeros(1, 3))
    n = torch.tensor([[0.0, 1.0, 3.0], [4.0, 7.0, 2.0]])
    x = (n * unit * (torch.tensor([1.0, -1.0, 1.0]) if signed else 1)).requires_grad_()
    with pj.watch(net) as activity:
        out = net(x)
    assert torch.equal(activity["0"], n)
    assert torch.equal(out, net[1](x))
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    assert meter.compute().synops == 5 * n.sum().item() / 2
    penalty = pj.Penalty(synapses, normalized=False)(activity)
    assert penalty.item() == 5 * n.sum().item() / 2
    penalty.backward()
    assert x.grad is not None
    expected = 5 / 2 / unit * (x.detach().sign() if signed else torch.ones_like(x))
    assert torch.allclose(x.grad, expected)


def test_a_class_may_be_declared_and_a_copy_knows() -> None:
    import copy

    @lambda cls: pj.declare_spiking(cls, unit=0.5)
    class Half(Levels):
        pass

    net = copy.deepcopy(nn.Sequential(Half(), nn.Linear(3, 5)))
    with pj.watch(net) as activity:
        net(torch.full((1, 3), 1.5))
    assert activity["0"].tolist() == [[3.0, 3.0, 3.0]]


def test_what_is_no_multiple_of_the_unit_is_refused() -> None:
    net = network(unit=1 / 4)
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 3)))
    for value, message in ((0.3, r"not whole numbers .* declare it with unit="), (-0.25, "negative .* signed=True")):
        with pj.watch(net) as activity:
            net(torch.full((1, 3), value))
        with pytest.raises(PicojouleError, match=message):
            meter.update(activity)


@pytest.mark.parametrize("unit", [0, -1, float("nan"), float("inf"), True, "a"])
def test_a_unit_is_a_finite_number_above_0(unit: Any) -> None:
    with pytest.raises(PicojouleError, match="is not the value of a spike: give a finite number above 0"):
        pj.declare_spiking(Levels(), unit=unit)


class Pooled(nn.Module):
    def __init__(self, functional: bool, **worth: Any) -> None:
        super().__init__()
        self.fire, self.pool, self.head = pj.declare_spiking(Levels(), **worth), nn.MaxPool1d(2), nn.Linear(2, 5)
        self.functional = functional

    def forward(self, x: Tensor) -> Tensor:
        z = self.fire(x)
        return self.head(nn.functional.max_pool1d(z, 2) if self.functional else self.pool(z))  # type: ignore[no-any-return]


@pytest.mark.parametrize("functional", [False, True])
def test_max_pools_of_units_are_refused(functional: bool) -> None:
    assert pj.trace(Pooled(functional), torch.zeros(1, 2, 4)).synapses == 20
    with pytest.raises(PicojouleError, match="takes spikes of 'fire', which are declared with unit="):
        pj.trace(Pooled(functional, unit=0.5), torch.zeros(1, 2, 4))


class Gated(nn.Module):
    def __init__(self, held_back: bool) -> None:
        super().__init__()
        self.a, self.b = (pj.declare_spiking(Levels(), unit=0.5, signed=True) for _ in range(2))
        self.head, self.held_back = nn.Linear(3, 5), held_back

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a(x), self.b(x.flip(-1))
        return self.head(a * (1 - b) if self.held_back else a * b)  # type: ignore[no-any-return]


def test_gates_pass_on_as_many_spikes_as_meet() -> None:
    synapses = pj.trace(Gated(False), torch.zeros(1, 3))
    x = torch.tensor([[0.5, -1.0, 1.5]])
    with pj.watch(net := Gated(False)) as activity:
        net(x)
    assert pj.Penalty(synapses, normalized=False)(activity).item() == 5 * (1 * 3 + 2 * 2 + 3 * 1)
    with pytest.raises(PicojouleError, match="takes 1 - s of spikes that are declared"):
        pj.trace(Gated(True), torch.zeros(1, 3))
