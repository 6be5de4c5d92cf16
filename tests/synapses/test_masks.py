"""Masks that the forward pass applies by itself: what they take away is no synapse, whichever way it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.synapses.trace import trace

MASK = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]])  # of weights from 4 neurons to 3
LEFT = [3, 1, 0, 1]  # its columns, added up
KEPT = torch.tensor([1.0, 0.0, 0.0, 1.0])  # of spikes


class Masked(nn.Module):
    """pixels → Linear(4, 4) → Spike → `readout`; the masks are buffers."""

    def __init__(self, readout: Callable[..., Tensor]) -> None:
        super().__init__()
        self.encoder, self.spike, self.readout = nn.Linear(4, 4), Spike(), readout
        self.w = nn.Parameter(torch.rand(3, 4) - 0.5)
        self.gain = nn.Parameter(torch.rand(4))
        self.register_buffer("mask", MASK.clone())
        self.register_buffer("kept", KEPT.clone())
        self.register_buffer("nothing", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self, self.spike(self.encoder(x)))


def psi(model: nn.Module) -> list[int]:
    return trace(model, torch.zeros(2, 4))["spike"].fan_out.tolist()


def written(m: Masked, z: Tensor) -> Tensor:
    w = m.w.clone()
    w[m.mask == 0] = 0
    return F.linear(z, w)


def written_into_a_view(m: Masked, z: Tensor) -> Tensor:
    w = m.w * 1
    rows = w.t()[:3]
    rows.mul_(m.mask.t()[:3])
    w[1:, 3] = 0
    return F.linear(z, w)


def put_together(m: Masked, z: Tensor) -> Tensor:
    w = torch.zeros(3, 4)
    w[:] = m.w
    w *= m.mask
    return F.linear(z, torch.stack([w[0], *w[1:]]).contiguous())


WEIGHTS: dict[str, Callable[..., Tensor]] = {
    "product": lambda m, z: F.linear(z, m.w * m.mask),
    "product from the left": lambda m, z: F.linear(z, m.mask * m.w),
    "cast": lambda m, z: F.linear(z, torch.mul(m.w, m.mask.bool().float())),
    "where": lambda m, z: F.linear(z, torch.where(m.mask.bool(), m.w, 0.0)),
    "fill": lambda m, z: F.linear(z, m.w.masked_fill(m.mask == 0, 0.0)),
    "transposed": lambda m, z: z @ (m.w * m.mask).t(),
    "scaled": lambda m, z: F.linear(z, -(m.w * m.mask) / 3 * m.gain.abs()),
    "bounded": lambda m, z: F.linear(z, (m.w * m.mask).tanh().clamp(-0.1, 0.1)),
    "rectified": lambda m, z: F.linear(z, F.relu(m.w) * m.mask),
    "copied": lambda m, z: F.linear(z, (m.w * m.mask).detach().clone()),
    "written": written,
    "written into a view": written_into_a_view,
    "put together": put_together,
}


@pytest.mark.parametrize("way", WEIGHTS)
def test_masked_weights_are_no_synapses(way: str) -> None:
    assert psi(Masked(WEIGHTS[way])) == LEFT


OWN_ZEROS: dict[str, Callable[..., Tensor]] = {
    "zeros": lambda m, z: F.linear(z, m.w * 1),
    "rectified": lambda m, z: F.linear(z, F.relu(m.w)),
    "by size": lambda m, z: F.linear(z, m.w * (m.w.abs() > 0.4)),
    "largest": lambda m, z: F.linear(z, m.w * (m.w >= m.w.amax(1, keepdim=True))),
    "rounded": lambda m, z: F.linear(z, torch.round(m.w)),
    "drawn": lambda m, z: F.linear(z, m.w * torch.bernoulli(torch.full_like(m.w, 0.1))),
    "dropout of weights": lambda m, z: F.linear(z, F.dropout(m.w, 0.9, training=True)),
    "dropout of spikes": lambda m, z: F.linear(F.dropout(z, 0.9, training=True), m.w),
    "drawn for spikes": lambda m, z: F.linear(z * torch.bernoulli(torch.full_like(z, 0.1)), m.w),
    "learnt gain": lambda m, z: F.linear(z * m.gain, m.w),
}


@pytest.mark.parametrize("way", OWN_ZEROS)
def test_zeros_that_may_go_again_are_synapses(way: str) -> None:
    net = Masked(OWN_ZEROS[way])
    with torch.no_grad():
        net.w[:, 1], net.gain[1] = 0, 0
    assert psi(net) == [3, 3, 3, 3]


def assigned(m: Masked, z: Tensor) -> Tensor:
    z = z.clone()
    z[:, 1:3] *= 0
    return F.linear(z, m.w)


SPIKES: dict[str, Callable[..., Tensor]] = {
    "product": lambda m, z: F.linear(z * m.kept, m.w),
    "product from the left": lambda m, z: F.linear(m.kept.bool() * z, m.w),
    "in place": lambda m, z: F.linear(z.mul_(m.kept), m.w),
    "times nought": assigned,
    "with a learnt gain": lambda m, z: F.linear(z * (m.gain * m.kept), m.w),
}


@pytest.mark.parametrize("way", SPIKES)
def test_masked_spikes_reach_nothing(way: str) -> None:
    assert psi(Masked(SPIKES[way])) == [3, 0, 0, 3]


def test_both_masks_together() -> None:
    assert psi(Masked(lambda m, z: F.linear(z * m.kept, m.w * m.mask))) == [3, 0, 0, 1]


def test_currents_that_are_thrown_away_were_computed() -> None:
    def thrown_away(m: Masked, z: Tensor) -> Tensor:
        out = F.linear(z, m.w)
        out[:, :2] *= 0
        return out

    assert psi(Masked(thrown_away)) == [3, 3, 3, 3]


EMPTY: dict[str, Callable[..., Tensor]] = {
    "spikes": lambda m, z: F.linear(z * m.nothing, m.w),
    "weights": lambda m, z: F.linear(z, m.w * m.nothing),
}


@pytest.mark.parametrize("way", EMPTY)
def test_a_mask_that_leaves_nothing_is_refused(way: str) -> None:
    with pytest.raises(PicojouleError, match=r"zero everywhere.*trace with a value that it takes then"):
        trace(Masked(EMPTY[way]), torch.zeros(2, 4))


def test_zeros_beside_the_synapses_cost_nothing() -> None:
    assert psi(Masked(lambda m, z: F.linear(z, m.w).sum(1, keepdim=True) + z * m.nothing)) == [3, 3, 3, 3]


class Mask(nn.Module):
    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Any:
        return weight * self.mask


def test_a_masking_parametrisation_also_of_the_encoder() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), Spike(), nn.Flatten(), nn.Linear(12, 3))
    kernel = torch.zeros(3, 1, 3, 3)
    kernel[:, :, 1] = 1
    parametrize.register_parametrization(net[0], "weight", Mask(kernel))
    parametrize.register_parametrization(net[3], "weight", Mask(torch.eye(3, 12)))
    synapses = trace(net, torch.zeros(1, 1, 4, 4))
    assert synapses.encoder_macs == 3 * 4 * 3
    assert synapses.synapses == 3
    assert synapses["1"].targets[0].weights == 3


def test_parts_of_pruned_weights_are_followed_and_refused_in_one_sentence() -> None:
    def net(weight_of: Callable[[Tensor], Tensor]) -> nn.Module:
        layer = nn.Linear(4, 3)
        prune.custom_from_mask(layer, "weight", MASK)
        model = Masked(lambda m, z: F.linear(z, weight_of(m.layer.weight)) + F.linear(z, m.w).sum() * 0)
        model.layer = layer
        return model

    assert psi(net(lambda w: w[:2])) == [2 + 3, 1 + 3, 0 + 3, 1 + 3]
    with pytest.raises(PicojouleError, match="made from a pruned or masked one") as refusal:
        trace(net(lambda w: w[w.sum(1).argsort()]), torch.zeros(2, 4))
    assert str(refusal.value).count("linear") == 1


def test_everything_pruned_leaves_nothing() -> None:
    net = nn.Sequential(nn.Linear(4, 4), Spike(), nn.Linear(4, 3))
    prune.custom_from_mask(net[2], "weight", torch.zeros(3, 4))
    assert trace(net, torch.zeros(1, 4)).synapses == 0


def test_masked_analog_values_are_not_multiplied() -> None:
    model = Masked(lambda m, s: F.linear(s.softmax(-1) * m.kept, m.w))
    (analog,) = trace(model, torch.zeros(2, 4)).analog
    assert analog.macs == 3 * KEPT.sum()
