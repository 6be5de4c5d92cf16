"""Copies of spikes that add up to the spikes again cost what the spikes cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from networks import Mixed
from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.synapses.trace import trace


def without_gradient(z: Tensor) -> Tensor:
    with torch.no_grad():
        part = 0.7 * z
    return part + z * 0.3


def overwritten(z: Tensor) -> Tensor:
    part = (0.7 * z).detach()
    part += z
    return part + 0.3 * z


SAME: dict[str, Callable[[Tensor], Tensor]] = {
    "two parts": lambda z: 0.3 * z + (0.7 * z).detach(),
    "the other way round": lambda z: (0.7 * z.detach()) + z * 0.3,
    "larger gradient": lambda z: 3 * z - (2 * z).detach(),
    "reversed gradient": lambda z: -z + 2 * z.detach(),
    "divided": lambda z: z / 4 + (z * 3 / 4).data,
    "three parts": lambda z: 0.25 * z + (0.25 * z).detach() + 0.5 * z.clone(),
    "with a factor": lambda z: torch.add(z * 0.5, z.detach(), alpha=0.5),
    "without a gradient": without_gradient,
    "then scaled": lambda z: 2 * (0.3 * z + (0.7 * z).detach()),
}
SEVERAL: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "twice": (lambda z: z + z, 2),
    "twice, detached": (lambda z: z + z.detach(), 2),
    "a residual": (lambda z: 0.5 * z + (0.5 * z).flip(1).detach(), 2),
    "not detached": (lambda z: 2 * z - z, 2),
    "overwritten": (overwritten, 3),
}


def synapses(mix: Callable[[Tensor], Tensor]) -> int:
    return trace(Mixed(mix), torch.zeros(2, 4)).synapses


@pytest.mark.parametrize("way", SAME)
def test_a_scaled_gradient_leaves_the_cost_as_it_is(way: str) -> None:
    z = torch.tensor([[0.0, 1.0]])
    mixed = SAME[way](z)
    assert torch.allclose(mixed, mixed.max() * z)  # the oracle: the values are those of the spikes, times a number
    assert synapses(SAME[way]) == 12


@pytest.mark.parametrize("way", SEVERAL)
def test_other_sums_count_each_term(way: str) -> None:
    mix, times = SEVERAL[way]
    assert synapses(mix) == 12 * times


class Trained(nn.Module):
    """Gradients scaled by factors that are tensors of the model."""

    def __init__(self, mix: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.encoder, self.spike, self.head, self.mix = nn.Linear(4, 4), Spike(), nn.Linear(4, 3), mix
        self.register_buffer("a", torch.tensor(0.3))
        self.register_buffer("each", torch.rand(4))
        self.factor = nn.Parameter(torch.tensor(0.4))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.mix(self, self.spike(self.encoder(x))))
        return result


def in_place(model: nn.Module, z: Tensor) -> Tensor:
    y = 0.3 * z
    y += (0.7 * z).detach()
    return y


FACTORS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a buffer": lambda m, z: z * m.a + (z * (1 - m.a)).detach(),
    "a parameter": lambda m, z: z * m.factor + (z - z * m.factor).detach(),
    "a number for each neuron": lambda m, z: z * m.each + (z - z * m.each).detach(),
    "in place": in_place,
    "of halved spikes": lambda m, z: 0.3 * (z * 0.5) + (0.7 * (z * 0.5)).detach(),
}


@pytest.mark.parametrize("way", FACTORS)
def test_a_gradient_scaled_by_tensors_leaves_the_cost_as_it_is(way: str) -> None:
    assert trace(Trained(FACTORS[way]), torch.zeros(2, 4)).synapses == 12


UNKNOWN: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "joined and added up": lambda m, z: torch.stack([0.3 * z, (0.7 * z).detach()]).sum(0),
    "overwritten factors": lambda m, z: (z * 1).mul_(0.3) + (0.7 * z).detach(),
}


@pytest.mark.parametrize("way", UNKNOWN)
def test_copies_whose_factors_cannot_be_seen_are_refused(way: str) -> None:
    with pytest.raises(PicojouleError, match="a copy of them without their gradient"):
        trace(Trained(UNKNOWN[way]), torch.zeros(2, 4))
