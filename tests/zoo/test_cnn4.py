"""CNN4: frames of events, billed as spikes from the first synapse on."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import picojoule as pj
from picojoule.errors import PicojouleError

STEPS = 3


def net(**options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return pj.zoo.create("cnn4", steps=STEPS, neuron=partial(pj.LIF, threshold=0.5), **options).eval()  # type: ignore[arg-type]


def events() -> torch.Tensor:
    return torch.poisson(torch.full((STEPS, 2, 2, 34, 34), 0.2), torch.Generator().manual_seed(1))


def test_input_spikes_cost_what_they_reach() -> None:
    """Counted one by one: a convolution of ones tells how many outputs each event reaches."""
    model, frames = net(), events()
    synapses = pj.trace(model, frames[:, :1], steps=STEPS)
    assert synapses.encoder_macs == 0
    assert synapses["input"].neurons == 0
    assert synapses.neurons == 16 * 17**2 + 32 * 9**2 + 64 * 5**2
    with pj.watch(model, steps=STEPS) as activity:
        model(frames)
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    report = meter.compute()
    ones = torch.ones(1, 2, 3, 3)
    reached = torch.nn.functional.conv2d(frames.flatten(0, 1), ones, stride=2, padding=1).sum() * 16 / 2
    assert report.layers[0].name == "input"
    assert report.layers[0].synops == reached.item()
    penalty = pj.Penalty(synapses, normalized=False)(activity)
    assert penalty.item() == pytest.approx(report.synops)


def test_a_penalty_trains_what_it_can() -> None:
    model = net().train()
    synapses = pj.trace(model, events()[:, :1], steps=STEPS)
    with pj.watch(model, steps=STEPS) as activity:
        model(events())
    pj.Penalty(synapses)(activity).backward()
    assert model.conv1.weight.grad is not None
    assert bool(model.conv1.weight.grad.any())


def test_currents_are_an_encoder() -> None:
    synapses = pj.trace(net(spiking_input=False), events()[:, :1], steps=STEPS)
    assert "input" not in synapses
    assert synapses.encoder_macs == STEPS * pj.trace(net(), events()[:, :1], steps=STEPS)["input"].synapses


def test_spikes_come_in_at_one_place_only() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), pj.Spike(), pj.InputSpikes(), torch.nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match=r"'2' is where spikes from outside come in, but it is fed by"):
        pj.trace(model, torch.zeros(1, 3))
