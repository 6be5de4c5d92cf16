"""Networks of SpikingJelly, in single-step and multi-step mode and in its containers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from frameworks import BATCH, STEPS, Form, check_example, check_form, classes_of, need, pixels, run_example
from picojoule.errors import PicojouleError
from picojoule.spikes.frameworks import SPIKINGJELLY, Fires, Refused, Silent, kind_of

need("spikingjelly")
from spikingjelly.activation_based import encoding, functional, layer, neuron, rnn  # noqa: E402

TIMED = {"steps": STEPS, "time_axis": 0}


def network(mode: str) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        layer.Conv2d(1, 4, 3, padding=1),
        layer.BatchNorm2d(4),
        neuron.LIFNode(),
        layer.MaxPool2d(2),
        layer.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
        neuron.IFNode(v_reset=None),
        layer.Flatten(),
        layer.Linear(32, 10),
        neuron.ParametricLIFNode(),
    )
    functional.set_step_mode(net, mode)
    return net.eval()


def contained(*parts: nn.Module) -> nn.Module:
    """The same network in SpikingJelly's containers: stateless parts see [T·B, …], or one step after the other."""
    conv1, norm, spike1, pool, conv2, spike2, flat, linear, spike3 = network("s")
    spike1.step_mode = spike2.step_mode = "m"
    return nn.Sequential(
        layer.SeqToANNContainer(conv1, norm),
        spike1,
        layer.SeqToANNContainer(pool, conv2),
        spike2,
        layer.MultiStepContainer(flat, linear, spike3),
    ).eval()


def called(net: nn.Module) -> Tensor:
    return torch.stack([net(step) for step in pixels()])


def at_once(net: nn.Module) -> Tensor:
    out: Tensor = net(pixels())
    return out


class Looping(nn.Module):
    """Takes [T, B, …] and runs a single-step network over it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = network("s")

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.steps(step) for step in x])


def forms() -> dict[str, Form]:
    one, all_steps = pixels()[0, :1], pixels()[:, :1]
    return {
        "single-step": Form(network("s"), one, called, {}, {"steps": STEPS}),
        "multi-step": Form(network("m"), all_steps, at_once, TIMED, TIMED),
        "multi-step, known by type": Form(network("m"), all_steps, at_once, {"steps": STEPS}, {"steps": STEPS}),
        "loop": Form(Looping(), all_steps, at_once, {"steps": STEPS}, {"steps": STEPS}, encoder="steps.0"),
        "containers": Form(contained(), all_steps, at_once, TIMED, TIMED, encoder="0.0"),
    }


def test_all_forms_give_the_same_bill() -> None:
    bills = {name: check_form(form, functional.reset_net) for name, form in forms().items()}
    assert all(bill == bills["single-step"] for bill in bills.values())


def test_the_spikes_have_time_first() -> None:
    functional.reset_net(net := network("m"))
    with pj.watch(net, **TIMED) as activity:
        out = net(pixels())
    assert torch.equal(activity["8"], out)
    assert activity["3"].shape == (STEPS, BATCH, 4, 4, 4)


@pytest.mark.parametrize("said", [{"steps": STEPS, "time_axis": 1}, {"folded": "time"}])
def test_a_multi_step_network_has_time_first_and_nowhere_else(said: dict[str, int]) -> None:
    net = network("m")
    with pytest.raises(PicojouleError, match=r"'2' emits its spikes as \[T, B, …\], not as .*: leave out time_axis"):
        pj.trace(net, pixels()[:, :1], **said)
    with pytest.raises(PicojouleError, match=r"'2' emits its spikes as \[T, B, …\]"), pj.watch(net, **said):
        pass


def test_the_number_of_steps_must_be_said() -> None:
    net = network("m")
    with pytest.raises(PicojouleError, match="whose axis 0 is not steps=1: check steps"):
        pj.trace(net, pixels()[:, :1])
    with pj.watch(net) as activity:
        net(pixels())
    with pytest.raises(PicojouleError, match="whose axis 0 is not steps=1: check steps"):
        pj.EnergyMeter(pj.trace(net, pixels()[:, :1], steps=STEPS)).update(activity)


def test_a_single_step_neuron_cannot_hold_all_steps_in_one_call() -> None:
    net = nn.Sequential(nn.Linear(4, 3), neuron.IFNode(), nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match="'1' takes one time step per call"):
        pj.trace(net, torch.zeros(STEPS, 1, 4), **TIMED)


# -------------------------------------------------------------------------------------------------------- other neurons


def test_every_name_in_the_table_is_a_class_of_the_framework() -> None:
    import spikingjelly.activation_based.neuron.noisy
    import spikingjelly.activation_based.neuron.spikezip  # noqa: F401

    assert set(SPIKINGJELLY.kinds) <= set(classes_of("spikingjelly"))


FIRING = [
    neuron.IFNode,
    neuron.SimpleIFNode,
    neuron.HalfThresholdIFNode,
    neuron.LIFNode,
    neuron.ParametricLIFNode,
    neuron.QIFNode,
    neuron.EIFNode,
    neuron.IzhikevichNode,
    neuron.KLIFNode,
    neuron.CUBALIFNode,
    neuron.ComplementaryLIFNode,
    neuron.ILIFNode,
    neuron.SLTTLIFNode,
    neuron.OTTTLIFNode,
    neuron.RAFNode,
]


@pytest.mark.parametrize("build", FIRING, ids=lambda build: build.__name__)
def test_neurons_that_fire(build: type[nn.Module]) -> None:
    net = nn.Sequential(nn.Linear(4, 3), build(), nn.Linear(3, 2))
    assert pj.trace(net, torch.zeros(2, 4))["1"].fan_out.tolist() == [2, 2, 2]


def test_an_encoder_fires() -> None:
    net = nn.Sequential(encoding.PoissonEncoder(), nn.Linear(4, 3), neuron.IFNode())
    synapses = pj.trace(net, torch.zeros(2, 4))
    assert synapses["0"].fan_out.tolist() == [3, 3, 3, 3]
    assert synapses.encoder_macs == 0


def test_several_spikes_in_one_value_count_as_that_many() -> None:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), neuron.ILIFNode(), nn.Linear(1, 5))
    nn.init.ones_(net[0].weight)
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 1)))
    with pj.watch(net) as activity:
        net(torch.full((1, 1), 3.2))
    assert activity["1"].item() == 3
    meter.update(activity)
    assert meter.compute().synops == 3 * 5


@pytest.mark.parametrize("mode", "sm")
def test_containers_feed_back_all_but_the_last_step(mode: str) -> None:
    torch.manual_seed(0)
    x = (torch.rand(STEPS, BATCH, 4) > 0.3).float()
    options = TIMED if mode == "m" else {"steps": STEPS}
    container = layer.LinearRecurrentContainer(neuron.IFNode(v_threshold=0.2), 4, 4, step_mode=mode)
    net = nn.Sequential(pj.declare_spiking(nn.Identity()), container, nn.Linear(4, 2))
    synapses = pj.trace(net, x[:, :1] if mode == "m" else x[0], **(options if mode == "m" else {}))
    with pj.watch(net, **options) as activity:
        for frame in [x] if mode == "m" else x:
            net(frame)
    spikes = activity["1.sub_module"]
    assert spikes[:-1].any()
    bill = pj.Penalty(synapses, normalized=False)(activity).item() * BATCH
    assert bill == pytest.approx((4 * x.sum() + 2 * spikes.sum() + 4 * spikes[:-1].sum()).item())
    assert (synapses.synapses, synapses.dense_macs) == (16 + 4 * 6, 32 + 8)


def test_spikes_that_a_layer_gives_back_to_itself_meet_no_weights() -> None:
    container = layer.ElementWiseRecurrentContainer(neuron.IFNode(), torch.add)
    synapses = pj.trace(nn.Sequential(nn.Linear(4, 4), container, nn.Linear(4, 2)), torch.zeros(1, 4))
    assert synapses["1.sub_module"].fan_out.tolist() == [2] * 4


def test_ternary_neurons_are_billed_for_negative_spikes_too() -> None:
    net = nn.Sequential(nn.Linear(1, 4), neuron.TernaryIFNode(), nn.Linear(4, 5))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[-9.0], [0.0], [9.0], [9.0]]))
        net[0].bias.zero_()
    synapses = pj.trace(net, torch.zeros(1, 1))
    with pj.watch(net) as activity:
        net(torch.ones(1, 1))
    assert activity["1"].tolist() == [[1.0, 0.0, 1.0, 1.0]]
    assert pj.Penalty(synapses, normalized=False)(activity).item() == 15


RECURRENT = [
    lambda: neuron.PSN(T=1),
    lambda: neuron.MaskedPSN(k=1, T=1),
    lambda: neuron.SlidingPSN(k=1),
    lambda: rnn.SpikingLSTM(3, 3, 1),
]


@pytest.mark.parametrize("build", RECURRENT)
def test_what_cannot_be_counted_is_refused_by_name(build: type[nn.Module]) -> None:
    module = build()
    assert isinstance(kind_of(module), Refused)
    net = nn.Sequential(nn.Linear(4, 3), module, nn.Linear(3, 2))
    name = f"'1' \\({type(module).__name__} of SpikingJelly\\)"
    with pytest.raises(PicojouleError, match=name):
        pj.trace(net, torch.zeros(1, 1, 4), steps=1, time_axis=0)
    with pytest.raises(PicojouleError, match=name), pj.watch(net):
        pass


def test_what_emits_no_spikes_must_not_feed_a_synapse() -> None:
    silent = neuron.NonSpikingLIFNode(decode="max-mem")
    assert kind_of(silent) == Silent()
    net = nn.Sequential(nn.Linear(4, 3), neuron.LIFNode(step_mode="m"), nn.Linear(3, 3), silent)
    assert pj.trace(net, torch.zeros(STEPS, 1, 4), **TIMED).synapses == 9
    net.append(nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match="'3' \\(NonSpikingLIFNode of SpikingJelly\\), which emits its potential"):
        pj.trace(net, torch.zeros(STEPS, 1, 4), **TIMED, strict=True)


def test_a_neuron_called_as_a_function_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.spike = nn.Linear(4, 3), neuron.IFNode()
            self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            u = self.second(self.spike(self.first(x)))
            s, _ = functional.if_step(u, torch.zeros_like(u), 1.0, 0.0, self.spike.surrogate_function, False)
            return self.third(s)  # type: ignore[no-any-return]

    with pytest.raises(PicojouleError, match=r"'third' is fed by .* declare"):
        pj.trace(Bare(), torch.zeros(2, 4))


def test_a_class_of_ones_own_is_known_by_its_base() -> None:
    class Mine(neuron.LIFNode):  # type: ignore[misc]
        pass

    assert isinstance(kind_of(Mine()), Fires)


@pytest.mark.slow
def test_the_example() -> None:
    check_example(run_example("spikingjelly_digits.py"), steps=4)
