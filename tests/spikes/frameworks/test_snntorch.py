"""Networks of snnTorch, with hidden states, explicit states and a loop over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from frameworks import BATCH, STEPS, Form, check_example, check_form, classes_of, need, pixels, run_example
from picojoule.errors import PicojouleError
from picojoule.spikes.frameworks import SNNTORCH, Refused, kind_of

snn = need("snntorch")


def neurons(hidden: bool) -> list[nn.Module]:
    return [
        snn.Leaky(beta=0.8, init_hidden=hidden),
        snn.Synaptic(alpha=0.7, beta=0.9, init_hidden=hidden, reset_mechanism="zero"),
        snn.Leaky(beta=0.9, init_hidden=hidden, output=True),
    ]


def synapses() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3), nn.Linear(32, 10)]


def hidden() -> nn.Module:
    (conv1, conv2, linear), (lif1, lif2, lif3) = synapses(), neurons(True)
    return nn.Sequential(conv1, lif1, nn.MaxPool2d(2), conv2, lif2, nn.Flatten(), linear, lif3).eval()


class Explicit(nn.Module):
    """States given and returned, in a loop over time as in the framework's tutorials."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.linear = synapses()
        self.lif1, self.lif2, self.lif3 = neurons(False)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        mem1, (syn2, mem2), mem3 = self.lif1.init_leaky(), self.lif2.init_synaptic(), self.lif3.init_leaky()
        out = []
        for step in x:
            spk1, mem1 = self.lif1(self.conv1(step), mem1)
            spk2, syn2, mem2 = self.lif2(self.conv2(self.pool(spk1)), syn2, mem2)
            spk3, mem3 = self.lif3(self.linear(spk2.flatten(1)), mem3)
            out.append(spk3)
        return torch.stack(out)


def called(net: nn.Module) -> Tensor:
    return torch.stack([net(step)[0] for step in pixels()])


def looped(net: nn.Module) -> Tensor:
    out: Tensor = net(pixels())
    return out


def reset(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, snn.SpikingNeuron):
            module.reset_mem()


def test_all_forms_give_the_same_bill() -> None:
    all_steps = pixels()[:, :1]
    inside, timed = {"steps": STEPS}, {"steps": STEPS, "time_axis": 0}
    forms = [
        Form(hidden(), pixels()[0, :1], called, {}, inside),
        Form(Explicit().eval(), all_steps, looped, inside, inside, encoder="conv1"),
        Form(Explicit().eval(), all_steps, looped, timed, timed, encoder="conv1"),
    ]
    first, *others = (check_form(form, reset) for form in forms)
    assert all(bill == first for bill in others)


def test_a_tuple_of_states_reaches_the_network_unchanged() -> None:
    net, plain = hidden(), hidden()
    with pj.watch(net, steps=STEPS) as activity:
        out = [net(step) for step in pixels()]
    expected = [plain(step) for step in pixels()]
    assert all(torch.equal(a, b) for one, two in zip(out, expected, strict=True) for a, b in zip(one, two, strict=True))
    assert torch.equal(activity["7"], torch.stack([spikes for spikes, _ in out]))


def test_one_neuron_module_at_two_places_is_an_error() -> None:
    lif = snn.Leaky(beta=0.9, init_hidden=True)
    net = nn.Sequential(nn.Linear(4, 4), lif, nn.Linear(4, 4), lif)
    with pytest.raises(PicojouleError, match="make two modules"):
        pj.trace(net, torch.zeros(1, 4))


# -------------------------------------------------------------------------------------------------------- other neurons


def test_every_name_in_the_table_is_a_class_of_the_framework() -> None:
    import snntorch._neurons.leakykernel  # noqa: F401

    assert set(SNNTORCH.kinds) <= set(classes_of("snntorch"))


FIRING: list[Callable[[], nn.Module]] = [
    lambda: snn.Leaky(beta=0.9),
    lambda: snn.Leaky(beta=0.9, reset_mechanism="none", learn_beta=True, learn_threshold=True),
    lambda: snn.Synaptic(alpha=0.8, beta=0.9),
    lambda: snn.Alpha(alpha=0.9, beta=0.8),
    lambda: snn.Lapicque(beta=0.9),
]


@pytest.mark.parametrize("build", FIRING)
def test_neurons_that_fire_with_states_given_and_returned(build: Callable[[], nn.Module]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.lif, self.second = nn.Linear(4, 3), build(), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            spikes, *states = self.lif(self.first(x))
            return self.second(spikes), *states

    assert pj.trace(Net(), torch.zeros(2, 4))["lif"].fan_out.tolist() == [2, 2, 2]


class Stepwise(nn.Module):
    """A recurrent neuron between two layers of weights, with its states given and returned."""

    def __init__(self, neuron: nn.Module, loops: bool, *, returns: bool = True) -> None:
        super().__init__()
        self.first, self.neuron, self.second = nn.Linear(4, 3), neuron, nn.Linear(3, 2)
        self.loops, self.returns = loops, returns

    def forward(self, x: Tensor, states: tuple[Tensor, ...] | None = None) -> Any:
        states = self.neuron.reset_mem() if states is None else states
        outputs = []
        for frame in x if self.loops else [x]:
            spikes, *states = self.neuron(self.first(frame), *states)
            outputs.append(self.second(spikes))
        return (torch.stack(outputs) if self.loops else outputs[0], *(states if self.returns else ()))


RECURRENT: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "RLeaky": (lambda **options: snn.RLeaky(beta=0.9, linear_features=3, threshold=0.1, **options), 3),
    "RLeaky, one to one": (lambda **options: snn.RLeaky(beta=0.9, all_to_all=False, threshold=0.1, **options), 1),
    "RSynaptic": (lambda **options: snn.RSynaptic(alpha=0.8, beta=0.9, linear_features=3, **options), 3),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("form", ["hidden", "given and returned", "in a loop"])
def test_recurrent_neurons_feed_back_all_but_the_last_step(name: str, form: str) -> None:
    build, back = RECURRENT[name]
    loops, x = form == "in a loop", torch.rand(STEPS, BATCH, 4)
    net = (
        nn.Sequential(nn.Linear(4, 3), build(init_hidden=True), nn.Linear(3, 2))
        if form == "hidden"
        else Stepwise(build(), loops)
    )
    layer = "1" if form == "hidden" else "neuron"
    with torch.no_grad():
        next(net.parameters()).fill_(0.5)
    synapses = pj.trace(net, torch.zeros(STEPS, 1, 4) if loops else torch.zeros(1, 4), steps=STEPS if loops else 1)
    reset(net)
    with pj.watch(net, steps=STEPS) as activity:
        states: Any = None
        for frame in [x] if loops else x:
            if form == "hidden":
                net(frame)
            else:
                _, *states = net(frame, states)
    spikes = activity[layer]
    assert spikes[:-1].any()
    bill = pj.Penalty(synapses, normalized=False)(activity).item() * BATCH
    assert bill == pytest.approx((2 * spikes.sum() + back * spikes[:-1].sum()).item())
    assert synapses[layer].synapses == 3 * (2 + back)
    assert synapses.dense_macs == 12 + 3 * back + 6
    assert f"{layer}.recurrent" in {target.name for target in synapses[layer].targets}


def test_a_recurrent_neuron_whose_state_begins_anew_in_every_call_feeds_nothing_back() -> None:
    net = Stepwise(snn.RLeaky(beta=0.9, linear_features=3), loops=False, returns=False)
    assert pj.trace(net, torch.zeros(1, 4))["neuron"].fan_out.tolist() == [2, 2, 2]


def test_a_convolution_fed_by_the_spikes_of_the_step_before() -> None:
    rleaky = snn.RLeaky(beta=0.9, conv2d_channels=2, kernel_size=3, init_hidden=True)
    layer = pj.trace(
        nn.Sequential(nn.Conv2d(1, 2, 1), rleaky, nn.Flatten(), nn.Linear(32, 5)), torch.zeros(2, 1, 4, 4)
    )["1"]
    assert [kind.fan_out[0, :2, :2].tolist() for kind in layer.kinds] == [[[13, 17], [17, 23]], [[5, 5], [5, 5]]]


@pytest.mark.parametrize("hidden", [True, False])
def test_the_gates_of_an_lstm(hidden: bool) -> None:
    events = pj.declare_spiking(nn.Identity())
    net = nn.Sequential(events, snn.SLSTM(4, 3, init_hidden=True), nn.Linear(3, 2))
    if not hidden:
        net = nn.Sequential(events, Stepwise(snn.SLSTM(3, 3), loops=False))
        net[1].first = nn.Identity()
    synapses = pj.trace(net, torch.zeros(2, 4 if hidden else 3))
    assert set(synapses["0"].fan_out.tolist()) == {12}
    assert synapses.analog_macs == 4 * 3 * 3
    assert synapses["1" if hidden else "1.neuron"].fan_out.tolist() == [2, 2, 2]
    assert synapses.dense_macs == 12 * (4 if hidden else 3) + 36 + 6


def test_the_gates_of_a_convolutional_lstm() -> None:
    net = nn.Sequential(
        pj.declare_spiking(nn.Identity()), snn.SConv2dLSTM(2, 3, 3, init_hidden=True), nn.Flatten(), nn.Linear(48, 2)
    )
    synapses = pj.trace(net, torch.zeros(1, 2, 4, 4))
    assert synapses["0"].fan_out[0].tolist()[0] == [48, 72, 72, 48]  # 4·3 channels
    assert synapses.analog_macs == 12 * 3 * 100  # 100 pairs of pixels within a kernel
    assert synapses["1"].fan_out.unique().tolist() == [2]


REFUSED: list[Callable[[], nn.Module]] = [
    lambda: snn.LeakyParallel(3, 3),
    lambda: snn.LinearLeaky(0.9, 3, 3),
    lambda: snn.StateLeaky(0.9, 3, output=True),
]


@pytest.mark.parametrize("build", REFUSED)
def test_what_cannot_be_counted_is_refused_by_name(build: Callable[[], nn.Module]) -> None:
    module = build()
    assert isinstance(kind_of(module), Refused)
    with pytest.raises(PicojouleError, match=f"'1' \\({type(module).__name__} of snnTorch\\)"):
        pj.trace(nn.Sequential(nn.Linear(4, 3), module), torch.zeros(1, 4))


def test_a_neuron_called_as_a_function_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.lif = nn.Linear(4, 3), snn.Leaky(beta=0.9, init_hidden=True)
            self.second, self.third, self.fire = nn.Linear(3, 3), nn.Linear(3, 2), snn.surrogate.atan()

        def forward(self, x: Tensor) -> Tensor:
            return self.third(self.fire(self.second(self.lif(self.first(x))) - 1))  # type: ignore[no-any-return]

    import snntorch.surrogate  # noqa: F401

    with pytest.raises(PicojouleError, match=r"'third' is fed by .* declare"):
        pj.trace(Bare(), torch.zeros(2, 4))


@pytest.mark.parametrize("factor", [{"graded_spikes_factor": 2.0}, {"learn_graded_spikes_factor": True}])
def test_graded_spikes_are_no_spikes(factor: dict[str, Any]) -> None:
    """A factor scales the weights that follow; the chip's operations are those of the spikes without it."""

    def net(**options: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), snn.Leaky(beta=0.9, init_hidden=True, **options), nn.Linear(3, 2))

    assert pj.trace(net(graded_spikes_factor=1.0), torch.zeros(1, 4)).synapses == 6
    with pytest.raises(PicojouleError, match=r"graded_spikes_factor.*put it into the weights that follow"):
        pj.trace(net(**factor), torch.zeros(1, 4))


@pytest.mark.slow
def test_the_example() -> None:
    check_example(run_example("snntorch_digits.py"), steps=5)
