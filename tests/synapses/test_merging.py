"""Chains of layers without a neuron between them, merged into one, against spikes that are sent through one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError


def outputs_reached(net: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """Send one spike at a time through a linear network without negative weights, and count the outputs it changes."""
    net = net.double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter.ne(0) * (1 + torch.rand_like(parameter)))
        spikes = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).view(-1, *shape)
        changed = (net(spikes) - net(torch.zeros_like(spikes))).abs() > 1e-9
    return changed.flatten(1).sum(1).view(shape)


class Behind(nn.Module):
    """A chain of layers between spikes and neurons."""

    def __init__(self, chain: nn.Module) -> None:
        super().__init__()
        self.spike = pj.declare_spiking(nn.Identity())
        self.chain, self.fire = chain, pj.Spike()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fire(self.chain(self.spike(x)))
        return out


class Pad(nn.Module):
    """Batch norm whose border is what it makes of zeros, as in published re-parameterised convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(self.norm(x), [1, 1, 1, 1])
        for border in ((..., slice(0, 1), slice(None)), (..., slice(-1, None)), (..., slice(0, 1))):
            x[border] = 0.3
        return x


def separable(channels: int = 4, out: int = 5) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 6, 1, bias=False),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False),
        nn.Conv2d(6, out, 1),
    )


CHAINS = {
    "separable": (separable(), (4, 5, 6)),
    "padded by batch norm": (
        nn.Sequential(nn.Conv2d(3, 4, 1), Pad(4), nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2)),
        (3, 5, 5),
    ),
    "strides and gaps": (
        nn.Sequential(nn.Conv2d(2, 3, 2, stride=3), nn.Conv2d(3, 2, 2, stride=2, padding=(0, 1), dilation=2)),
        (2, 13, 11),
    ),
    "one dimension": (nn.Sequential(nn.Conv1d(2, 4, 3, groups=2), nn.Dropout(), nn.Conv1d(4, 2, 3, groups=2)), (2, 9)),
    "three dimensions": (nn.Sequential(nn.Conv3d(1, 2, 2), nn.Conv3d(2, 2, (1, 3, 3), padding="same")), (1, 3, 4, 4)),
    "three linear layers": (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 6, bias=False), nn.Linear(6, 5)), (2, 4)),
    "one layer": (nn.Conv2d(2, 3, 3, padding=1), (2, 4, 4)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_spike_costs_the_outputs_that_it_reaches(name: str) -> None:
    chain, shape = CHAINS[name]
    merged = pj.trace(Behind(chain), torch.zeros(1, *shape), chains="merged")
    assert torch.equal(merged["spike"].fan_out, outputs_reached(chain, shape))
    assert merged.analog_macs == 0
    assert merged.chains == merged.to_dict()["chains"] == "merged"


@pytest.mark.parametrize("name", CHAINS)
def test_without_it_each_layer_costs_what_it_runs(name: str) -> None:
    chain, shape = CHAINS[name]
    layers = [layer for layer in chain.modules() if hasattr(layer, "weight") and not isinstance(layer, nn.BatchNorm2d)]
    run = pj.trace(Behind(chain), torch.zeros(1, *shape))
    assert run.chains == "run"
    assert torch.equal(run["spike"].fan_out, outputs_reached(layers[0], shape))
    x, macs = torch.zeros(1, *shape, dtype=torch.float64), 0
    current = torch.ones(shape)
    for layer in chain if isinstance(chain, nn.Sequential) else [chain]:
        if layer in layers[1:]:
            macs += int((outputs_reached(layer, tuple(x.shape[1:])) * current).sum())
        x = layer.double()(x)
        padded = isinstance(layer, Pad)  # by constants, which are no currents
        current = F.pad(torch.ones_like(x[0, :, 1:-1, 1:-1]), (1, 1, 1, 1)) if padded else torch.ones_like(x[0])
    assert run.analog_macs == macs


def test_it_is_the_layer_with_the_folded_kernel() -> None:
    chain = separable()
    with torch.no_grad():
        first, depthwise, last = (chain[i].weight.detach() for i in (0, 2, 3))
        kernel = torch.einsum("om,mij,mc->ocij", last[..., 0, 0], depthwise[:, 0], first[..., 0, 0])
        folded = nn.Conv2d(4, 5, 3, padding=1, bias=False)
        folded.weight.copy_(kernel)
    example = torch.zeros(1, 4, 6, 6)
    one, other = pj.trace(Behind(chain), example, chains="merged"), pj.trace(Behind(folded), example)
    assert torch.equal(one["spike"].fan_out, other["spike"].fan_out)
    assert (one.dense_macs, one.encoder_macs) == (other.dense_macs, 0)
    (target,), (same,) = one["spike"].targets, other["spike"].targets
    assert (target.weights, target.outputs) == (same.weights, same.outputs)
    assert target.name == "chain.0·chain.2·chain.3"


@st.composite
def convolutions(draw: st.DrawFn) -> nn.Sequential:
    channels = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(2, 4)))]
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        groups = draw(st.sampled_from([n for n in range(1, 5) if before % n == after % n == 0]))
        size, gap = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        padding = draw(st.integers(0, (size - 1) * gap + 1))
        layers.append(
            nn.Conv2d(
                before, after, (size, 1), stride=draw(st.integers(1, 3)), padding=padding, dilation=gap, groups=groups
            )
        )
        layers += [nn.BatchNorm2d(after)] * draw(st.booleans())
    return nn.Sequential(*layers)


@settings(max_examples=60, deadline=None)
@given(chain=convolutions(), size=st.integers(5, 9))
def test_random_chains(chain: nn.Sequential, size: int) -> None:
    shape = (chain[0].in_channels, size, 3)
    try:
        chain(torch.zeros(2, *shape))
    except (RuntimeError, ValueError):  # no place is left for an output
        return
    merged = pj.trace(Behind(chain.eval()), torch.zeros(1, *shape), chains="merged")
    assert torch.equal(merged["spike"].fan_out, outputs_reached(chain, shape))


class Paths(nn.Module):
    """Currents of two layers of spikes that are added, that fire, and that go into two further layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (pj.declare_spiking(nn.Identity()) for _ in range(2))
        self.fire, self.last = (pj.declare_spiking(nn.Hardtanh()) for _ in range(2))
        self.from_a, self.from_b = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 3, padding=1)
        self.to_left, self.to_right = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        b = self.b(x)
        potential = self.from_a(self.a(x)) + 0.5 * self.from_b(b)
        self.fire(potential)
        potential += torch.nn.functional.pad(b, (0, 0, 0, 0, 0, 1))  # a shortcut of spikes
        out: Tensor = self.last(self.to_left(potential) + self.to_right(potential))
        return out


def test_currents_that_also_fire_are_billed_there_too() -> None:
    net, shape = Paths(), (2, 4, 4)
    synapses = pj.trace(net, torch.zeros(1, *shape), chains="merged")
    left, right = net.to_left, net.to_right
    by_hand = {
        "a": [net.from_a, nn.Sequential(net.from_a, left), nn.Sequential(net.from_a, right)],
        "b": [net.from_b, nn.Sequential(net.from_b, left), nn.Sequential(net.from_b, right)],
    }
    expected = {name: sum(outputs_reached(chain, shape) for chain in chains) for name, chains in by_hand.items()}
    shortcut = outputs_reached(left, (3, 4, 4))[:2] + outputs_reached(right, (3, 4, 4))[:2]
    assert torch.equal(synapses["a"].fan_out, expected["a"])
    assert torch.equal(synapses["b"].fan_out, expected["b"] + shortcut)
    assert synapses.analog_macs == 0


def test_bill_and_penalty_are_one_number() -> None:
    net = Behind(separable())
    spikes = (torch.rand(3, 4, 5, 5) < 0.3).float()
    synapses = pj.trace(net, spikes[:1], chains="merged")
    with pj.watch(net) as activity:
        net(spikes)
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    psi = outputs_reached(net.chain, (4, 5, 5))
    assert meter.compute().synops * 3 == (spikes * psi).sum()
    penalty = pj.Penalty(synapses, normalized=False)(activity)
    assert penalty.item() == pytest.approx(meter.compute().synops)


def test_the_input_feeds_the_merged_encoder() -> None:
    chain = separable()
    net = nn.Sequential(chain, pj.Spike(), nn.Flatten(), nn.Linear(5 * 25, 3))
    merged = pj.trace(net, torch.zeros(1, 4, 5, 5), chains="merged")
    assert merged.encoder_macs == outputs_reached(chain, (4, 5, 5)).sum()
    assert merged.analog == ()
    assert pj.trace(net, torch.zeros(1, 4, 5, 5), chains="merged", strict=True).encoder_macs == merged.encoder_macs


def test_time_folded_into_the_batch_and_back() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spike, self.fire = pj.declare_spiking(nn.Identity()), pj.Spike()
            self.one, self.other = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            steps = x.shape[:2]
            currents = self.one(self.spike(x).flatten(0, 1)).unflatten(0, steps)
            out: Tensor = self.fire(self.other(currents.flatten(0, 1)).view(*steps, 2, 4, 4))
            return out

    net = Steps()
    synapses = pj.trace(net, torch.zeros(3, 1, 2, 4, 4), steps=3, time_axis=0, chains="merged")
    expected = outputs_reached(nn.Sequential(net.one, net.other), (2, 4, 4))
    assert torch.equal(synapses["spike"].fan_out, expected)
    assert synapses.dense_macs == expected.sum()


class Between(nn.Module):
    def __init__(self, between: object, last: nn.Module) -> None:
        super().__init__()
        self.spike, self.one, self.last, self.between = pj.Spike(), nn.Conv2d(1, 2, 3, padding=1), last, between

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.between(self.one(self.spike(x))))  # type: ignore[operator]
        return out


REFUSED = {
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), nn.Conv2d(2, 2, 1)),
    "flatten": (lambda x: x.flatten(1), nn.Linear(32, 2)),
    "index": (lambda x: x[:, :, 1:], nn.Conv2d(2, 2, 1)),
    "cat": (lambda x: torch.cat([x, x], 1), nn.Conv2d(4, 2, 1)),
    "transpose": (lambda x: x.mT, nn.Conv2d(2, 2, 1)),
    "written through a view": (lambda x: (x[:, :1].add_(x[:, 1:]), x)[1], nn.Conv2d(2, 2, 1)),
    "transposed convolution": (lambda x: x, nn.ConvTranspose2d(2, 2, 2)),
    "other axes": (lambda x: x, nn.Linear(4, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_folded_is_refused_and_runs(name: str) -> None:
    net, example = Between(*REFUSED[name]), torch.zeros(1, 1, 4, 4)
    with pytest.raises(PicojouleError, match=r"cannot be merged with the layers of weights before it.*chains='run'"):
        pj.trace(net, example, chains="merged")
    assert pj.trace(net, example).analog_macs


def test_single_pruned_weights_are_refused_and_whole_kernels_are_not() -> None:
    net = Behind(separable())
    mask = torch.ones_like(net.chain[0].weight)
    mask[1:3, 2] = 0
    nn.utils.prune.custom_from_mask(net.chain[0], "weight", mask)
    psi = pj.trace(net, torch.zeros(1, 4, 5, 5), chains="merged")["spike"].fan_out
    assert torch.equal(psi, outputs_reached(separable(), (4, 5, 5)))  # the other kernels reach every output
    mask = torch.ones_like(net.chain[2].weight)
    mask[0, 0, 1, 1] = 0
    nn.utils.prune.custom_from_mask(net.chain[2], "weight", mask)
    with pytest.raises(PicojouleError, match="single weights are pruned"):
        pj.trace(net, torch.zeros(1, 4, 5, 5), chains="merged")


def test_behind_what_is_not_linear_another_chain_begins() -> None:
    net = Between(torch.sigmoid, nn.Sequential(nn.Conv2d(2, 3, 1), nn.Conv2d(3, 2, 3, padding=1)))
    synapses = pj.trace(net, torch.zeros(1, 1, 4, 4), chains="merged")
    assert torch.equal(synapses["spike"].fan_out, outputs_reached(net.one, (1, 4, 4)))
    (apart,) = synapses.analog
    assert (apart.name, apart.macs) == ("last.0·last.1", outputs_reached(net.last, (2, 4, 4)).sum())


@pytest.mark.parametrize(
    ("given", "message"), [("folded", "is not known"), ("merged", "not defined for psi='uniform'")]
)
def test_other_conventions_are_refused(given: str, message: str) -> None:
    with pytest.raises(PicojouleError, match=message):
        pj.trace(Behind(separable()), torch.zeros(1, 4, 5, 5), psi="uniform", chains=given)  # type: ignore[arg-type]
