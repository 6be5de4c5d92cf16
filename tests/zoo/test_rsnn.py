"""RSNN: its bill against what arrives at its layers, step by step."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import picojoule as pj
from picojoule.errors import PicojouleError
from picojoule.zoo import RSNN

STEPS, HIDDEN, CLASSES = 5, 128, 10


@pytest.fixture(scope="module")
def net() -> RSNN:
    torch.manual_seed(0)
    made = pj.zoo.create("rsnn", neuron=partial(pj.LIF, threshold=0.5), steps=STEPS)
    assert isinstance(made, RSNN)
    return made.train()


def frames(samples: int) -> Tensor:
    rates = torch.full((STEPS, samples, 24, 1, 1), 0.5)
    return torch.poisson(rates, torch.Generator().manual_seed(1))


def test_the_bill_is_what_arrives(net: RSNN) -> None:
    synapses = pj.trace(net, frames(1), steps=STEPS)
    x, arrived = frames(4), dict.fromkeys(("encode", "recur", "classify"), 0.0)

    def arrive(name: str, module: torch.nn.Module, args: tuple[Tensor, ...]) -> None:
        arrived[name] += args[0].sum().item() * module.get_parameter("weight").shape[0] / 4

    hooks = [net.get_submodule(name).register_forward_pre_hook(partial(arrive, name)) for name in arrived]
    with pj.watch(net, steps=STEPS) as activity:
        net(x)
    for hook in hooks:
        hook.remove()
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    report = meter.compute()
    assert min(arrived.values()) > 0
    assert {layer.name: layer.synops for layer in report.layers} == pytest.approx(
        {"input": arrived["encode"], "spike1": arrived["recur"] + arrived["classify"]}
    )
    assert pj.Penalty(synapses, normalized=False)(activity).item() == pytest.approx(report.synops)
    assert (synapses.encoder_macs, synapses.analog_macs, synapses.neurons) == (0, 0, HIDDEN)


def test_ones_cost_all_synapses_and_the_last_step_is_not_fed_back(net: RSNN) -> None:
    synapses = pj.trace(net, frames(1), steps=STEPS)
    spikes = activity_of_ones(synapses)
    omega = pj.Penalty(synapses, normalized=False)(spikes).item()
    assert omega == STEPS * HIDDEN * (24 + CLASSES) + (STEPS - 1) * HIDDEN * HIDDEN


def activity_of_ones(synapses: pj.Synapses) -> pj.Activity:
    activity = pj.Activity(pj.TimeLayout(STEPS))
    for name in synapses:
        for _ in range(STEPS):
            activity.record(name, torch.ones(2, *synapses[name].shape, requires_grad=True))
    return activity


def test_it_steps_as_its_equations_say(net: RSNN) -> None:
    x = frames(3)
    with pj.watch(net.eval(), steps=STEPS) as activity, torch.no_grad():
        logits = net(x)
        s, v, total = torch.zeros(3, HIDDEN), torch.zeros(3, HIDDEN), torch.zeros(3, CLASSES)
        for t in range(STEPS):
            u = 0.5 * v + net.norm(x[t].flatten(1) @ net.encode.weight.T) + s @ net.recur.weight.T
            s = (u >= 0.5).float()
            v = u - 0.5 * s
            assert torch.equal(activity["spike1"][t], s)
            total += s @ net.classify.weight.T / STEPS
    net.train()
    assert torch.allclose(logits, total, atol=1e-5)


def test_neurons_that_take_all_steps_at_once_are_refused() -> None:
    class Folded(pj.Spike):
        def __init__(self, steps: int) -> None:
            super().__init__()

    with pytest.raises(PicojouleError, match=r"rsnn feeds spikes back .* Folded .*: take IF or LIF"):
        pj.zoo.create("rsnn", neuron=Folded, steps=3)
    assert pj.zoo.create("rsnn")(frames(2)[0]).shape == (2, CLASSES)
