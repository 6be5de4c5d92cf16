"""Random chains of gates and of what moves, scales, adds up and pools spikes, against the same chain on whole numbers.

The oracle runs each operation twice: on what spikes are worth, as the network does, and on how many they are. A gate by
1 − s of spikes that are not worth 1 is no gate, and has to be refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError

WIDTH, OUTPUTS, CHAINS = 4, 5, 60
MASK = torch.tensor([1.0, 0, 1, 1])
Operation = Callable[[Tensor, Tensor, int], Tensor]

MOVES: dict[str, Operation] = {
    "flip": lambda x, y, n: x.flip(-1),
    "roll": lambda x, y, n: x.roll(n, -1),
    "permute": lambda x, y, n: x[..., [3, 1, 0, 2]],
    "cut": lambda x, y, n: torch.cat([x, y], -1)[..., n : n + WIDTH],
    "detach": lambda x, y, n: x.detach(),
    "sum": lambda x, y, n: x + y,
    "mask": lambda x, y, n: x * MASK,
    "gate": lambda x, y, n: x * y,
    "gate in place": lambda x, y, n: x.clone().mul_(y),
    "hold back": lambda x, y, n: x * (1 - y),
    "pool": lambda x, y, n: F.max_pool1d(x, 3, 1, 1),
}
"""The same for values and for numbers of spikes."""
SCALES: dict[str, Operation] = {
    "scale": lambda x, y, n: x * (0.5, 2.0, 0.25, 3.0)[n],
    "negate": lambda x, y, n: -x,
}
"""Numbers of spikes stay as they are."""


class Chain(nn.Module):
    """Three layers of spikes, a chain of operations on them, and weights or a product behind it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = random.Random(seed)
        self.fires = nn.ModuleList(pj.declare_spiking(nn.Identity()) for _ in range(3))
        names, length = [*MOVES, *SCALES, *["hold back"] * 3, *SCALES], chance.randint(1, 6)
        self.lines = [
            (chance.choice(names), chance.randrange(i), chance.randrange(i), chance.randrange(4))
            for i in range(3, 3 + length)
        ]
        self.factor = chance.choice([None, chance.randrange(3 + length)])
        self.head = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        values = [fire(x[:, i]) for i, fire in enumerate(self.fires)]
        for name, one, other, number in self.lines:
            values.append((MOVES | SCALES)[name](values[one], values[other], number))
        weighted: Tensor = self.head(values[-1]).sum((1, 2))
        return weighted if self.factor is None else weighted + (values[-1] @ values[self.factor].mT).sum((1, 2))

    def spent(self, x: Tensor) -> tuple[float, bool]:
        """Count what a batch costs; whether something was held back by spikes that are not worth 1."""
        worth, counts, no_gate = list(x.unbind(1)), list(x.unbind(1)), False
        for name, one, other, number in self.lines:
            no_gate |= name == "hold back" and not torch.equal(worth[other], counts[other])
            worth.append((MOVES | SCALES)[name](worth[one], worth[other], number))
            counts.append(counts[one] if name in SCALES else MOVES[name](counts[one], counts[other], number))
            if name in ("gate", "gate in place", "hold back", "pool"):
                no_gate |= bool((counts[-1] < 0).any())
        cost = counts[-1].sum() * OUTPUTS
        if self.factor is not None:
            cost = cost + (counts[-1] @ counts[self.factor].mT).sum()
        return float(cost) / len(x), no_gate


def billed(net: Chain, x: Tensor) -> float | None:
    """What picojoule counts; None if it refuses to."""
    try:
        synapses = pj.trace(net, torch.zeros(2, *x.shape[1:]))
        with torch.no_grad(), pj.watch(net) as activity:
            net(x)
        meter = pj.EnergyMeter(synapses)
        meter.update(activity)
    except PicojouleError:
        return None
    return meter.compute().synops


@pytest.mark.parametrize("first", range(0, CHAINS, 20))
def test_chains_of_gates_are_counted_or_refused(first: int) -> None:
    counted = 0
    for seed in range(first, first + 20):
        torch.manual_seed(seed)
        net, x = Chain(seed), (torch.rand(3, 3, 2, WIDTH) < 0.5).float()
        (expected, no_gate), bill = net.spent(x), billed(net, x)
        counted += bill is not None
        assert bill is None or not no_gate, (seed, net.lines)
        assert bill is None or bill == pytest.approx(expected, rel=1e-12), (seed, net.lines)
    assert counted >= 5
