"""Delays: a kernel over time that is built from taps; a spike reaches each output once for each tap within the time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj

STEPS, LONGEST, INPUTS, OUTPUTS, TAPS = 6, 4, 3, 5, 2


def scattered(m: Delays) -> Tensor:
    return torch.zeros(OUTPUTS, INPUTS, LONGEST).scatter(2, m.positions.long(), m.weight)


def scattered_in_place(m: Delays) -> Tensor:
    kernel = torch.zeros(OUTPUTS, INPUTS, LONGEST)
    kernel.scatter_add_(2, m.positions.long(), m.weight)
    return kernel


def chosen(m: Delays) -> Tensor:
    return (F.one_hot(m.positions.long(), LONGEST).float() * m.weight.unsqueeze(-1)).sum(2)


def interpolated(m: Delays) -> Tensor:
    """Each tap between two steps, as while its position is learned."""
    low = m.positions.clamp(0, LONGEST - 1).float().floor()
    part = m.positions + 0.25 - low
    wide = torch.zeros(OUTPUTS, INPUTS, LONGEST + 1)
    wide = wide.scatter_add(2, low.long(), m.weight * (1 - part)).scatter_add(2, low.long() + 1, m.weight * part)
    return wide[..., :LONGEST]


class Delays(nn.Module):
    """Events, a convolution over time whose kernel has a few taps for each pair of neurons, neurons, weights."""

    positions: Tensor

    def __init__(self, kernel: Callable[[Delays], Tensor], learned: bool) -> None:
        super().__init__()
        self.events, self.fire, self.head = pj.declare_spiking(nn.Identity()), pj.Spike(), nn.Linear(OUTPUTS, 2)
        self.weight, self.kernel = nn.Parameter(torch.randn(OUTPUTS, INPUTS, TAPS)), kernel
        positions = torch.stack([torch.randperm(LONGEST)[:TAPS] for _ in range(OUTPUTS * INPUTS)])
        positions = positions.view(OUTPUTS, INPUTS, TAPS)
        if learned:
            self.positions = nn.Parameter(positions.float())
        else:
            self.register_buffer("positions", positions)

    def forward(self, x: Tensor) -> Tensor:
        """[T, B, inputs]; the kernel's last tap is the present."""
        over_time = F.pad(self.events(x).permute(1, 2, 0), (LONGEST - 1, 0))
        currents = F.conv1d(over_time, self.kernel(self)).permute(2, 0, 1)
        return self.head(self.fire(currents))  # type: ignore[no-any-return]


@pytest.mark.parametrize("kernel", [scattered, scattered_in_place, chosen, interpolated])
@pytest.mark.parametrize("learned", [True, False], ids=["learned", "fixed"])
def test_a_spike_reaches_as_many_taps_as_there_are(kernel: Callable[[Delays], Tensor], learned: bool) -> None:
    torch.manual_seed(0)
    net, timed = Delays(kernel, learned), {"steps": STEPS, "time_axis": 0}
    synapses = pj.trace(net, torch.zeros(STEPS, 1, INPUTS), **timed)
    taps = (kernel(net) != 0).sum(0)  # [inputs, positions]
    x = (torch.rand(STEPS, 1, INPUTS) > 0.4).float()
    arrivals = sum(
        int(taps[i, position])
        for t in range(STEPS)
        for i in range(INPUTS)
        for position in range(LONGEST)
        if x[t, 0, i] and t + LONGEST - 1 - position < STEPS  # later than the last step it reaches nobody
    )
    with torch.no_grad(), pj.watch(net, **timed) as activity:
        net(x)
        assert pj.Penalty(synapses, normalized=False).by_layer(activity)["events"].item() == arrivals
    (target,) = synapses["events"].targets
    assert target.weights == int(taps.sum())
    assert synapses["events"].fan_out.tolist() == [int(n) for n in taps.sum(1)]
    assert synapses.dense_macs > 0
