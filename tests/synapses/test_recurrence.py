"""Recurrence written by hand: a spike at step t reaches ψ now and more at step t + 1, if there is one.

The oracle are the layers of weights themselves: hooks add up, in the real forward pass, each spike that arrives times
the rows of the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.spikes.layout import TimeLayout

STEPS, SAMPLES, INPUTS, HIDDEN, CLASSES = 4, 3, 5, 8, 2


class Recurrent(nn.Module):
    """Linear → Spike → Linear, and a Linear from the spikes of the step before; `begins` makes the first state."""

    def __init__(self, begins: Callable[[Tensor], Tensor | None], loops: bool, readout: str = "sum") -> None:
        super().__init__()
        self.encoder, self.spike = nn.Linear(INPUTS, HIDDEN), Spike(0.1)
        self.back, self.head = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.begins, self.loops, self.readout = begins, loops, readout
        self.z: Tensor | None = None

    def fire(self, x: Tensor, z: Tensor | None) -> Tensor:
        u = self.encoder(x)
        z = self.begins(u) if z is None else z
        spikes: Tensor = self.spike(u if z is None else u + self.back(z))
        return spikes

    def forward(self, x: Tensor) -> Tensor:
        if not self.loops:
            self.z = self.fire(x, self.z)
            return self.head(self.z)  # type: ignore[no-any-return]
        z, outputs = None, []
        for frame in x:
            z = self.fire(frame, z)
            outputs.append(self.head(z) if self.readout == "sum" else z)
        return torch.stack(outputs).sum(0) if self.readout == "sum" else self.head(outputs[-1])


class Arrivals:
    """Spikes that arrive at layers of weights, each times the synapses that it meets there."""

    def __init__(self, net: nn.Module, *names: str) -> None:
        self.synops = dict.fromkeys(names, 0)
        for name in names:
            net.get_submodule(name).register_forward_pre_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[..., None]:
        def arrive(module: nn.Module, args: Any) -> None:
            self.synops[name] += round(args[0].sum().item()) * module.weight.shape[0]

        return arrive


BEGINS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "nothing": lambda u: None,
    "zeros": torch.zeros_like,
    "new zeros": lambda u: u.new_zeros(u.shape),
}


def run(net: Recurrent, x: Tensor) -> None:
    net.z = None
    for frame in [x] if net.loops else x:
        net(frame)


def example(net: Recurrent) -> tuple[Tensor, int]:
    return (torch.zeros(STEPS, 1, INPUTS), STEPS) if net.loops else (torch.zeros(1, INPUTS), 1)


def traced(net: Recurrent) -> pj.Synapses:
    x, steps = example(net)
    return pj.trace(net, x, steps=steps)


@pytest.mark.parametrize("begins", BEGINS)
@pytest.mark.parametrize("loops", [True, False], ids=["steps in forward", "a step a call"])
def test_the_bill_is_what_arrives(begins: str, loops: bool) -> None:
    torch.manual_seed(2)
    net, x = Recurrent(BEGINS[begins], loops), torch.rand(STEPS, SAMPLES, INPUTS)
    synapses = traced(net)
    arrivals = Arrivals(net, "back", "head")
    with pj.watch(net, steps=STEPS) as activity:
        run(net, x)
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    report = meter.compute()
    assert arrivals.synops["back"] > 0
    by_target = dict(zip((t.name for t in synapses["spike"].targets), report.layers[0].synops_by_target, strict=True))
    assert by_target == pytest.approx({name: n / SAMPLES for name, n in arrivals.synops.items()}, rel=1e-12)
    assert report.synops == pytest.approx(sum(arrivals.synops.values()) / SAMPLES, rel=1e-12)
    penalty = pj.Penalty(synapses, normalized=False)(activity)
    assert penalty.item() == pytest.approx(report.synops)
    assert (synapses.synapses, synapses.encoder_macs) == (HIDDEN * (HIDDEN + CLASSES), (STEPS if loops else 1) * 40)
    assert synapses.dense_macs == INPUTS * HIDDEN + HIDDEN * HIDDEN + HIDDEN * CLASSES


@pytest.mark.parametrize("loops", [True, False], ids=["steps in forward", "a step a call"])
def test_gradients_and_omega_of_ones(loops: bool) -> None:
    net = Recurrent(BEGINS["zeros"], loops)
    synapses = traced(net)
    activity = pj.Activity(TimeLayout(STEPS))
    spikes = [torch.ones(SAMPLES, HIDDEN, requires_grad=True) for _ in range(STEPS)]
    for each in spikes:
        activity.record("spike", each)
    omega = STEPS * HIDDEN * CLASSES + (STEPS - 1) * HIDDEN * HIDDEN
    assert pj.Penalty(synapses, normalized=False)(activity).item() == omega
    assert pj.Penalty(synapses)(activity).item() == pytest.approx(1)
    assert pj.Penalty(synapses, p=2)(activity).item() == pytest.approx(1)
    assert pj.Penalty(synapses, "total")(activity).item() == pytest.approx(1)
    assert pj.Penalty(synapses, pj.hardware.get("horowitz-45nm-fp32"))(activity).item() == pytest.approx(1)
    pj.Penalty(synapses, normalized=False)(activity).backward()
    for t, each in enumerate(spikes):
        expected = (CLASSES + (HIDDEN if t < STEPS - 1 else 0)) / SAMPLES
        assert each.grad is not None
        assert torch.allclose(each.grad, torch.tensor(expected))
    shares = pj.Penalty(synapses, normalized=False).by_layer_at_one(STEPS)
    assert shares == {"spike": omega}


def test_a_stream_feeds_back_the_last_step_too() -> None:
    torch.manual_seed(2)
    net, x = Recurrent(BEGINS["zeros"], loops=False), torch.rand(2 * STEPS, SAMPLES, INPUTS)
    meter = pj.EnergyMeter(traced(net))
    arrivals = Arrivals(net, "back", "head")
    for part, stream in ((x[:STEPS], True), (x[STEPS:], False)):
        with pj.watch(net, steps=STEPS, stream=stream) as activity:
            for frame in part:
                net(frame)
        meter.update(activity)
    assert meter.compute().synops * 2 == pytest.approx(sum(arrivals.synops.values()) / SAMPLES, rel=1e-12)


def test_a_network_that_loops_is_counted_in_the_steps_that_were_traced() -> None:
    net = Recurrent(BEGINS["zeros"], loops=True)
    synapses = traced(net)
    with pj.watch(net, steps=2 * STEPS) as activity:
        net(torch.rand(2 * STEPS, SAMPLES, INPUTS))
    with pytest.raises(PicojouleError, match=r"'spike' depends on the time step; it was traced with 4 .* 8 steps in 1"):
        pj.EnergyMeter(synapses).update(activity)
    with pj.watch(net, steps=2 * STEPS) as activity:  # two sequences, one behind the other
        net(torch.rand(STEPS, SAMPLES, INPUTS))
        net(torch.rand(STEPS, SAMPLES, INPUTS))
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    spikes = activity["spike"]
    fed_back = spikes.sum() - spikes[STEPS - 1].sum() - spikes[-1].sum()
    assert meter.compute().synops * SAMPLES == pytest.approx((CLASSES * spikes.sum() + HIDDEN * fed_back).item())


def test_a_readout_of_the_last_step() -> None:
    torch.manual_seed(1)
    net = Recurrent(BEGINS["nothing"], loops=True, readout="last")
    synapses = traced(net)
    arrivals = Arrivals(net, "back", "head")
    with pj.watch(net, steps=STEPS) as activity:
        net(torch.rand(STEPS, SAMPLES, INPUTS))
    assert pj.Penalty(synapses, normalized=False)(activity).item() * SAMPLES == sum(arrivals.synops.values())
    assert synapses["spike"].fan_out.unique().tolist() == [HIDDEN + CLASSES]


def test_a_state_of_an_earlier_run_must_be_reset() -> None:
    net = Recurrent(BEGINS["nothing"], loops=False)
    net(torch.rand(1, INPUTS))
    with pytest.raises(PicojouleError, match="'back' is fed by a tensor whose origin cannot be seen"):
        traced(net)
    assert net.z is not None
    net.z = net.z.detach() + 1
    with pytest.raises(PicojouleError, match=r"'back' is fed by a constant.* if this is a state, reset it to zeros"):
        traced(net)
    net.z = torch.zeros(1, HIDDEN)
    assert traced(net).synapses == HIDDEN * (HIDDEN + CLASSES)
    net.z = None
    assert traced(net).synapses == HIDDEN * (HIDDEN + CLASSES)


class Kept(Recurrent):
    """Feeds back what `keep` makes of the state and the spikes."""

    def __init__(self, keep: Callable[..., Tensor], loops: bool) -> None:
        super().__init__(torch.zeros_like, loops)
        self.keep = keep
        self.held: Tensor | None = None

    def fire(self, x: Tensor, z: Tensor | None) -> Tensor:
        u = self.encoder(x)
        held = torch.zeros_like(u) if z is None else self.held
        z = self.spike(u + self.back(held))
        self.held = self.keep(held, z)
        return z


@pytest.mark.parametrize("loops", [True, False], ids=["steps in forward", "a step a call"])
def test_a_trace_of_spikes_is_refused(loops: bool) -> None:
    net = Kept(lambda held, z: 0.9 * held + z, loops)
    with pytest.raises(PicojouleError, match=r"reach .* in all steps that follow|next call and in those behind it"):
        traced(net)


class Lateral(nn.Module):
    """Two layers; the first's spikes arrive at the second without a weight, one step later."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.one, self.two, self.head = nn.Linear(4, 4), Spike(), Spike(), nn.Linear(4, 3)
        self.z: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        u = self.encoder(x)
        before, self.z = self.z, self.one(u)
        return self.head(self.two(u if before is None else u + before))  # type: ignore[no-any-return]


def test_spikes_that_arrive_a_step_later_without_a_weight() -> None:
    synapses = pj.trace(Lateral(), torch.zeros(2, 4))
    assert [kind.fan_out.tolist() for kind in synapses["one"].kinds] == [[1] * 4, [0] * 4]
    assert (synapses.unit_synapses, synapses["two"].synapses) == (4, 12)


class Gated(nn.Module):
    """A recurrent network with an analog hidden state, written by hand, fed by spikes."""

    def __init__(self, loops: bool) -> None:
        super().__init__()
        self.spike, self.feed, self.back = pj.declare_spiking(nn.Identity()), nn.Linear(4, 6), nn.Linear(6, 6)
        self.h: Tensor | None = None
        self.loops = loops

    def forward(self, x: Tensor) -> Tensor:
        if self.loops:
            self.h = None
            return torch.stack([self.step(frame) for frame in x])
        return self.step(x)

    def step(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 6) if self.h is None else self.h
        self.h = torch.tanh(self.feed(self.spike(x)) + self.back(h))
        return self.h


@pytest.mark.parametrize("loops", [True, False], ids=["steps in forward", "a step a call"])
def test_an_analog_state_is_multiply_accumulates_in_every_step(loops: bool) -> None:
    steps = 3 if loops else 1
    synapses = pj.trace(Gated(loops), torch.zeros((3, 2, 4) if loops else (2, 4)), steps=steps)
    assert (synapses["spike"].synapses, synapses.analog_macs) == (24, 36 * steps)
    assert [part.name for part in synapses.analog] == ["back"]
