"""How modules of other frameworks are recognised, with stand-ins: no framework is needed here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError
from picojoule.spikes.frameworks import FRAMEWORKS, Fires, Refused, Silent, kind_of
from picojoule.spikes.layout import LayerLayout

PACKAGES = [framework.package for framework in FRAMEWORKS]
STEPS = 4


class Fire(nn.Module):
    def forward(self, u: Tensor, *state: Tensor) -> Any:
        return (u >= 0.5).float()


def of(package: str, name: str, base: type[nn.Module] = Fire, **attributes: Any) -> nn.Module:
    """A module whose class says that it is some framework's."""
    module: nn.Module = type(name, (base,), {"__module__": f"{package}.some.place"})()
    for key, value in attributes.items():
        setattr(module, key, value)
    return module


@pytest.mark.slow
def test_no_framework_is_imported() -> None:
    code = (
        "import sys, torch, picojoule as pj; net = pj.zoo.create('cnn7'); pj.trace(net, torch.zeros(1, 1, 32, 32));"
        f"sys.exit(bool(set({PACKAGES!r}) & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_every_entry_is_found_by_name_and_by_base(framework: pj.peers.Framework) -> None:
    for name in framework.kinds:
        module = of(framework.package, name, spike_fn=Fire)
        derived = type("Mine", (type(module),), {"__module__": "mine"})()
        derived.spike_fn = Fire
        assert isinstance(kind_of(module), Fires | Silent | Refused)
        assert kind_of(derived) == kind_of(module)


def test_names_of_other_packages_mean_nothing() -> None:
    assert kind_of(of("mine", "LIFNode")) is None
    assert kind_of(of("norse_like", "SNNCell")) is None
    assert kind_of(of("sinabs", "NeuromorphicReLU")) is None


def test_refused_modules_are_named_with_the_remedy() -> None:
    net = nn.Sequential(nn.Linear(4, 3), of("snntorch", "LinearLeaky"), nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match=r"'1' \(LinearLeaky of snnTorch\) holds synapses .*: use nn.Linear"):
        pj.trace(net, torch.zeros(1, 4))


def test_the_users_word_comes_first() -> None:
    neuron = pj.declare_spiking(of("snntorch", "LinearLeaky"))
    assert pj.trace(nn.Sequential(nn.Linear(4, 3), neuron, nn.Linear(3, 2)), torch.zeros(1, 4)).synapses == 6


def test_a_silent_neuron_between_spikes_and_synapses_is_refused() -> None:
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike(), nn.Linear(3, 3), of("norse", "LICell"), nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match=r"'3' \(LICell of Norse\), which emits its potential"):
        pj.trace(net, torch.zeros(1, 4), strict=True)
    assert pj.trace(net, torch.zeros(1, 4)).analog_macs == 6


@pytest.mark.parametrize(
    ("module", "layout"),
    [
        (of("spikingjelly", "BaseNode", step_mode="s"), LayerLayout()),
        (of("spikingjelly", "BaseNode", step_mode="m"), LayerLayout(time_axis=0)),
        (of("snntorch", "SpikingNeuron"), LayerLayout()),
        (of("norse", "SNNCell"), LayerLayout()),
        (of("norse", "SNN"), LayerLayout(time_axis=0)),
        (of("sinabs", "StatefulLayer", spike_fn=Fire), LayerLayout(time_axis=1)),
        (
            of("sinabs", "StatefulLayer", spike_fn=Fire, batch_size=-1, num_timesteps=4),
            LayerLayout(folded="batch", steps=4),
        ),
        (
            of("sinabs", "StatefulLayer", spike_fn=Fire, batch_size=2, num_timesteps=-1),
            LayerLayout(folded="batch", samples=2),
        ),
    ],
)
def test_where_time_is_follows_from_the_type(module: nn.Module, layout: LayerLayout) -> None:
    assert kind_of(module) == Fires(layout)


LAYOUTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "[T, B, …]": {"time_axis": 0},
    "[B, T, …]": {"time_axis": 1},
    "[B·T, …]": {"folded": "batch"},
    "[T·B, …]": {"folded": "time"},
}
NEURONS = {
    "one step a call": of("snntorch", "Leaky", type(of("snntorch", "SpikingNeuron"))),
    "[T, B, …]": of("norse", "SNN"),
    "[B, T, …]": of("sinabs", "StatefulLayer", spike_fn=Fire),
    "[B·T, …]": of("sinabs", "StatefulLayer", spike_fn=Fire, batch_size=-1, num_timesteps=STEPS),
}


SHAPES = {"one step a call": (1, 3), "[T, B, …]": (STEPS, 1, 3), "[B, T, …]": (1, STEPS, 3), "[B·T, …]": (STEPS, 3)}


@pytest.mark.parametrize("said", LAYOUTS)
@pytest.mark.parametrize("true", NEURONS)
def test_a_wrong_layout_of_time_is_an_error_and_a_missing_one_follows_from_the_type(true: str, said: str) -> None:
    net = nn.Sequential(nn.Linear(3, 3), NEURONS[true], nn.Linear(3, 2))
    example = torch.zeros(SHAPES[true])
    if said in (true, "nothing") and true != "one step a call":
        synapses = pj.trace(net, example, steps=STEPS, **LAYOUTS[said])
        assert synapses["1"].fan_out.tolist() == [2, 2, 2]
        assert (synapses.input_shape, synapses.dense_macs) == ((3,), 15)
    else:
        with pytest.raises(PicojouleError, match=r"'1' emits its spikes|'1' takes one time step|was called 1 times"):
            pj.trace(net, example, steps=STEPS, **LAYOUTS[said])


@pytest.mark.parametrize("true", [true for true in NEURONS if true != "one step a call"])
def test_a_wrong_number_of_steps_is_an_error(true: str) -> None:
    net = nn.Sequential(nn.Linear(3, 3), NEURONS[true], nn.Linear(3, 2))
    for steps in (1, STEPS - 1, STEPS + 1):
        with pytest.raises(PicojouleError, match=r"the layer '1' .*steps"):
            pj.trace(net, torch.zeros(SHAPES[true]), steps=steps)


def test_an_example_whose_axes_cannot_be_told_apart_is_an_error() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.spike = nn.Linear(3, 3), nn.Linear(3, 2), NEURONS["one step a call"]

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.second(self.spike(step)) for step in self.first(x)])

    synapses = pj.trace(Loop(), torch.zeros(STEPS, 1, 3), steps=STEPS)
    assert (synapses.dense_macs, synapses.encoder_macs, synapses.input_shape) == (15, STEPS * 9, (3,))
    assert str(pj.trace(Loop(), torch.zeros(STEPS, 2, 3), steps=STEPS)) == str(synapses)
    with pytest.raises(PicojouleError, match="as many samples as time steps"):
        pj.trace(Loop(), torch.zeros(STEPS, STEPS, 3), steps=STEPS)


class Steps(nn.Module):
    """Calls its part once for each step of [T, B, …]."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.part(step) for step in x])


class Folds(Steps):
    """Calls its part once, with time folded into the batch."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.part(x.flatten(0, 1))
        return out.unflatten(0, x.shape[:2])


class Whole(nn.MaxPool2d):
    """Pools [T, B, …] and keeps its axes, as SpikingJelly's does."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x.flatten(0, 1))
        return out.unflatten(0, x.shape[:2])


@pytest.mark.parametrize("axis", [0, 1])
def test_a_max_pool_is_read_however_time_reaches_it(axis: int) -> None:
    neuron = NEURONS["[T, B, …]" if axis == 0 else "[B, T, …]"]
    spikes = torch.rand(STEPS, 3, 2, 4, 4).transpose(0, axis)
    activities, traced = [], []
    pools = [Folds(nn.MaxPool2d(2)), Whole(2)] + [Steps(nn.MaxPool2d(2))] * (axis == 0)
    for pool in pools:
        net = nn.Sequential(neuron, pool, Folds(nn.Conv2d(2, 5, 1)))
        said = {"steps": STEPS, "time_axis": axis}
        synapses = pj.trace(net, spikes.narrow(1 - axis, 0, 1), **said)
        (relay,) = (layer for layer in synapses.values() if layer.relay)
        with pj.watch(net, **said) as activity:
            net(spikes)
        activities.append(activity[relay.name])
        traced.append(relay.fan_out)
        assert pj.Penalty(synapses, normalized=False)(activity) == 5 * activity[relay.name].sum() / 3
    assert all(torch.equal(activity, activities[0]) for activity in activities)
    assert activities[0].shape == (STEPS, 3, 2, 2, 2)
    assert all(torch.equal(fan_out, torch.full((2, 2, 2), 5)) for fan_out in traced)


def test_a_network_may_loop_over_the_steps_of_its_input() -> None:
    net = Steps(nn.Sequential(nn.Linear(3, 3), pj.Spike(), nn.Linear(3, 2)))
    for said in ({"steps": STEPS}, {"steps": STEPS, "time_axis": 0}):
        if "time_axis" in said:
            net.part[1] = NEURONS["one step a call"]
        synapses = pj.trace(net, torch.zeros(STEPS, 1, 3), **said)
        assert synapses["part.1"].fan_out.tolist() == [2, 2, 2]
        assert (synapses.input_shape, synapses.dense_macs, synapses.encoder_macs) == ((3,), 15, 9 * STEPS)
