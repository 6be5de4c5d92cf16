"""SpikingJelly up to 0.0.0.0.12 and `clock_driven` in 0.0.0.0.14: the name of a neuron says where time is.

Stand-ins with the old package's module paths run everywhere; where an old package is importable, its own classes too.
"""

from __future__ import annotations

import contextlib
import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError
from picojoule.spikes.frameworks import Fires, Refused, Silent, kind_of
from picojoule.spikes.frameworks.kinds import STEP, TIME_FIRST

HOME = "spikingjelly.clock_driven.neuron"
STEPS, BATCH = 4, 3


def stand_ins() -> Any:
    class BaseNode(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x >= 0.5).float()

    class IFNode(BaseNode):
        pass

    class MultiStepIFNode(IFNode):
        def forward(self, x_seq: Tensor) -> Tensor:
            return torch.stack([super(MultiStepIFNode, self).forward(x) for x in x_seq])

    class LIAFNode(IFNode):
        pass

    classes = (BaseNode, IFNode, MultiStepIFNode, LIAFNode)
    for cls in classes:
        cls.__module__ = HOME
    return SimpleNamespace(**{cls.__name__: cls for cls in classes})


def homes() -> dict[str, Any]:
    found = {"stand-in": stand_ins()}
    with contextlib.suppress(ImportError):
        found["installed"] = importlib.import_module(HOME)
    return found


HOMES = homes()


@pytest.fixture(params=HOMES, name="neuron")
def _neuron(request: pytest.FixtureRequest) -> Any:
    return HOMES[request.param]


class Folded(nn.Module):
    """What `SeqToANNContainer` does: all steps of all samples in one batch."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x_seq: Tensor) -> Tensor:
        y: Tensor = self.part(x_seq.flatten(0, 1))
        return y.view(*x_seq.shape[:2], *y.shape[1:])


def network(neuron: Any) -> nn.Module:
    return nn.Sequential(Folded(nn.Linear(6, 5)), neuron.MultiStepIFNode(), Folded(nn.Linear(5, 7)))


def test_the_first_axis_is_time_and_never_the_batch(neuron: Any) -> None:
    net, x = network(neuron), torch.rand(STEPS, BATCH, 6)
    synapses = pj.trace(net, x[:, :1], steps=STEPS)
    assert synapses["1"].fan_out.tolist() == [7] * 5
    with pj.watch(net, steps=STEPS) as activity:
        net(x)
    assert activity["1"].shape == (STEPS, BATCH, 5)
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    assert meter.compute().samples == BATCH
    assert meter.compute().synops == 7 * activity["1"].sum().item() / BATCH


def test_without_the_number_of_steps_time_is_not_taken_for_samples(neuron: Any) -> None:
    net, x = network(neuron), torch.rand(STEPS, BATCH, 6)
    with pytest.raises(PicojouleError, match="whose axis 0 is not steps=1: check steps"):
        pj.trace(net, x)
    meter = pj.EnergyMeter(pj.trace(net, x[:, :1], steps=STEPS))
    with pj.watch(net) as activity:
        net(x)
    with pytest.raises(PicojouleError, match="whose axis 0 is not steps=1: check steps"):
        meter.update(activity)


def test_the_names_of_the_classes_say_where_time_is(neuron: Any) -> None:
    assert kind_of(neuron.IFNode()) == Fires(STEP)
    assert kind_of(neuron.MultiStepIFNode()) == Fires(TIME_FIRST)
    analog = {} if neuron is HOMES["stand-in"] else {"act": nn.ReLU(), "threshold_related": False}
    assert kind_of(neuron.LIAFNode(**analog)) == Silent("its activation, an analog value")


def test_classes_of_ones_own(neuron: Any) -> None:
    class Renamed(neuron.MultiStepIFNode):  # type: ignore[misc]
        def forward(self, x_seq: Tensor) -> Tensor:
            return super().forward(2 * x_seq)  # type: ignore[no-any-return]

    class MultiStepMine(neuron.IFNode):  # type: ignore[misc]
        def forward(self, x_seq: Tensor) -> Tensor:
            return torch.stack([super(MultiStepMine, self).forward(x) for x in x_seq])

    class Charging(neuron.IFNode):  # type: ignore[misc]
        def neuronal_charge(self, x: Tensor) -> None:
            self.v = x

    class Unnamed(neuron.IFNode):  # type: ignore[misc]
        def forward(self, x_seq: Tensor) -> Tensor:
            return torch.stack([super(Unnamed, self).forward(x) for x in x_seq])

    assert kind_of(Renamed()) == kind_of(MultiStepMine()) == Fires(TIME_FIRST)
    assert kind_of(Charging()) == Fires(STEP)
    assert isinstance(kind_of(Unnamed()), Refused)
    net = nn.Sequential(Unnamed(), nn.Linear(6, 5))
    with pytest.raises(PicojouleError, match=r"'0' .* forward of its own .* MultiStep… .*declare_spiking"):
        pj.trace(net, torch.zeros(STEPS, 1, 6))
    pj.declare_spiking(net[0])
    assert pj.trace(net, torch.zeros(STEPS, 1, 6), steps=STEPS, time_axis=0)["0"].fan_out.tolist() == [5] * 6
