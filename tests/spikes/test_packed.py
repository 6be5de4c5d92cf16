"""Spikes that are kept as bits: the same numbers, the same gradients, and none of the memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import picojoule as pj
from picojoule.spikes.packed import pack


@given(
    st.integers(1, 70),
    st.sampled_from(((64,), (3, 8, 8), (64, 5, 3), (128, 1, 1), (2, 32))),
    st.sampled_from((torch.float32, torch.bfloat16)),
    st.booleans(),
    st.floats(0, 1),
)
def test_bits_are_the_spikes(batch: int, shape: tuple[int, ...], kind: torch.dtype, last: bool, rate: float) -> None:
    spikes = (torch.rand(batch, *shape) < rate).to(kind)
    if last and len(shape) == 3:
        spikes = spikes.contiguous(memory_format=torch.channels_last)
    kept = pack(spikes)
    assert kept is not None
    assert kept.bits.numel() * 64 == spikes.numel()
    assert torch.equal(kept.values(), spikes)
    assert kept.values().stride() == spikes.stride()
    assert torch.equal(kept.summed(), spikes.float().sum(0))
    assert kept.summed().stride() == spikes.stride()[1:]


@pytest.mark.parametrize(
    "spikes",
    [
        torch.ones(3, 65),
        torch.ones(3, 64, dtype=torch.float64),
        torch.ones(64),
        torch.ones(0, 64),
        torch.ones(64, 3).t(),
        torch.ones(3, 128)[:, ::2],
        torch.ones(1, 64).expand(3, 64),
    ],
)
def test_what_does_not_fill_words_is_not_packed(spikes: Tensor) -> None:
    assert pack(spikes) is None


def test_nothing_is_packed_where_kernels_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pack(torch.ones(1, 64)) is not None
    monkeypatch.setenv("PICOJOULE_SPARSE", "0")
    assert pack(torch.ones(1, 64)) is None


def network() -> nn.Sequential:
    torch.manual_seed(0)
    first = (nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), pj.Spike())
    second = (nn.Conv2d(8, 6, 3, bias=False), nn.BatchNorm2d(6), pj.Spike())
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(216, 3))


IMAGES = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def found(packed: bool, p: float, layout: torch.memory_format) -> tuple[Tensor, ...]:
    net = network().to(memory_format=layout)
    penalty = pj.Penalty(pj.trace(net, IMAGES[:1]), p=p)
    with pj.watch(net, packed=packed) as activity:
        logits = net(IMAGES.contiguous(memory_format=layout))
    meter = pj.EnergyMeter(pj.trace(net, IMAGES[:1]))
    meter.update(activity)
    omega, own = penalty(activity), (activity["2"] * torch.arange(64.0).view(8, 8)).sum()
    gradients = torch.autograd.grad(logits.square().sum() + 3 * omega + own, list(net.parameters()))
    return omega.detach(), own.detach(), activity["5"].detach(), torch.tensor(meter.compute().synops), *gradients


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("p", [1, 2.5])
def test_penalty_bill_and_gradients_are_those_of_the_spikes_themselves(p: float, layout: torch.memory_format) -> None:
    for a, b in zip(found(True, p, layout), found(False, p, layout), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)  # gradients add up in another order


def test_the_gradient_of_a_penalty_is_the_same_to_the_bit() -> None:
    def gradients(packed: bool) -> tuple[Tensor, ...]:
        net = network()
        penalty = pj.Penalty(pj.trace(net, IMAGES[:1]))
        with pj.watch(net, packed=packed) as activity:
            logits = net(IMAGES)
        return torch.autograd.grad(logits.square().sum() + penalty(activity), list(net.parameters()))

    assert all(torch.equal(a, b) for a, b in zip(gradients(True), gradients(False), strict=True))


def test_the_memory_of_the_spikes_is_free_once_the_network_has_used_them() -> None:
    net, emitted = pj.sparse(network()), []
    net[3].register_forward_pre_hook(lambda module, args: emitted.append(weakref.ref(args[0])))
    net[3].event_choice.break_even = 1.0
    for packed in (False, True):
        for _ in range(2):  # after the first call the convolution has made up its mind
            with pj.watch(net, packed=packed) as activity:
                logits = net(IMAGES)
        assert net[3].event_choice.by_events
        assert (emitted[-1]() is None) is packed
        assert activity["2"].shape == (5, 8, 8, 8)
        logits.sum().backward()


def test_steps_and_layers_that_emit_more_than_one_are_not_packed() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * (x > 0).float()

    net = nn.Sequential(nn.Linear(4, 64), pj.declare_spiking(Twice()), nn.Linear(64, 64), pj.Spike(), nn.Linear(64, 2))
    with pj.watch(net, steps=3, packed=True) as activity:
        for _ in range(3):
            net(torch.ones(2, 4))
    calls: Any = activity._calls
    assert [[call.packed is not None for call in calls[name]] for name in ("1", "3")] == [[False] * 3, [True] * 3]
    assert activity["3"].shape == (3, 2, 64)
    with pj.watch(net, steps=3, folded="time", packed=True) as activity:
        net(torch.ones(6, 4))
    assert activity["3"].shape == (3, 2, 64)
