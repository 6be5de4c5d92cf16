"""Networks of sinabs: [B, T, …], the folded [B·T, …] of its Squeeze layers, and its own hooks as a second opinion."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from frameworks import BATCH, STEPS, Form, check_example, check_form, classes_of, need, pixels, run_example
from picojoule.errors import PicojouleError
from picojoule.spikes.frameworks import SINABS, Refused, Silent, kind_of

need("sinabs")
import sinabs.activation  # noqa: E402
import sinabs.layers as sl  # noqa: E402
from sinabs.from_torch import from_model  # noqa: E402
from sinabs.hooks import register_synops_hooks  # noqa: E402

FOLDED = {"steps": STEPS, "folded": "batch"}
TIMED = {"steps": STEPS, "time_axis": 1}


def images() -> Tensor:
    """[B, T, 1, 8, 8]."""
    return pixels().transpose(0, 1)


def squeezed(pool: nn.Module, **bound: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        sl.IAFSqueeze(spike_threshold=torch.tensor(0.3), **bound),
        pool,
        nn.Conv2d(4, 8, 3),
        sl.LIFSqueeze(tau_mem=5.0, spike_threshold=torch.tensor(0.3), norm_input=False, **bound),
        nn.Flatten(),
        nn.Linear(32, 10),
        sl.ExpLeakSqueeze(tau_mem=5.0, **bound),
    ).eval()


def unsqueezed(pool: nn.Module) -> nn.Module:
    conv1, _, _, conv2, _, _, linear, _ = squeezed(pool, num_timesteps=STEPS)
    return nn.Sequential(
        sl.Repeat(conv1),
        sl.IAF(spike_threshold=torch.tensor(0.3)),
        sl.Repeat(pool),
        sl.Repeat(conv2),
        sl.LIF(tau_mem=5.0, spike_threshold=torch.tensor(0.3), norm_input=False),
        nn.Flatten(2),
        linear,
        sl.ExpLeak(tau_mem=5.0),
    ).eval()


def folded(net: nn.Module) -> Tensor:
    out: Tensor = net(images().flatten(0, 1))
    return out.unflatten(0, (BATCH, STEPS)).transpose(0, 1)


def timed(net: nn.Module) -> Tensor:
    out: Tensor = net(images())
    return out.transpose(0, 1)


def reset(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, sl.StatefulLayer):
            module.reset_states()


POOLS = {"max": lambda: nn.MaxPool2d(2), "sum": lambda: sl.SumPool2d(2)}


@pytest.mark.parametrize("pool", POOLS)
def test_all_forms_give_the_same_bill(pool: str) -> None:
    build = POOLS[pool]
    one, all_samples = images()[:1], images().flatten(0, 1)
    forms = [
        Form(squeezed(build(), num_timesteps=STEPS), one.flatten(0, 1), folded, FOLDED, FOLDED),
        Form(squeezed(build(), num_timesteps=STEPS), one.flatten(0, 1), folded, {"steps": STEPS}, {"steps": STEPS}),
        Form(squeezed(build(), batch_size=BATCH), all_samples, folded, FOLDED, FOLDED),
        Form(unsqueezed(build()), one, timed, TIMED, TIMED, encoder="0.module"),
    ]
    first, *others = (check_form(form, reset) for form in forms)
    assert all(bill == first for bill in others)


@pytest.mark.parametrize("said", [{"steps": STEPS, "folded": "time"}, {"steps": STEPS, "time_axis": 0}])
def test_a_squeezed_network_is_folded_with_the_batch_first_and_in_no_other_way(said: dict[str, Any]) -> None:
    with pytest.raises(PicojouleError, match=r"'1' emits its spikes as \[B·T, …\], not as .*: leave out time_axis"):
        pj.trace(squeezed(nn.MaxPool2d(2), num_timesteps=STEPS), images().flatten(0, 1), **said)


@pytest.mark.parametrize("bound", [{"num_timesteps": STEPS}, {"batch_size": BATCH}])
def test_a_wrong_number_of_steps_is_an_error_where_the_layer_knows_better(bound: dict[str, int]) -> None:
    for said in ({}, {"steps": 2, "folded": "batch"}):
        with pytest.raises(PicojouleError, match=f"the layer '1' .*: say steps={STEPS}"):
            pj.trace(squeezed(nn.MaxPool2d(2), **bound), images().flatten(0, 1), **said)


def test_the_batch_comes_first_in_an_unsqueezed_network() -> None:
    with pytest.raises(PicojouleError, match=r"'1' emits its spikes as \[B, T, …\], not as \[T, B, …\]"):
        pj.trace(unsqueezed(nn.MaxPool2d(2)), images()[:1], steps=STEPS, time_axis=0)


def test_several_spikes_in_one_value_count_as_that_many() -> None:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), sl.IAF(), nn.Linear(1, 5))
    nn.init.ones_(net[0].weight)
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 2, 1), steps=2, time_axis=1))
    with pj.watch(net, steps=2, time_axis=1) as activity:
        net(torch.tensor([[[3.2], [0.9]]]))
    assert activity["1"].flatten().tolist() == [3, 1]
    meter.update(activity)
    assert meter.compute().synops == 20


def test_a_converted_network() -> None:
    ann = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 10), nn.ReLU())
    network = from_model(ann, batch_size=1, input_shape=(1, 8, 8))
    synapses = pj.trace(network, torch.zeros(STEPS, 1, 8, 8), **FOLDED)
    assert synapses["spiking_model.1"].fan_out.unique().tolist() == [10]
    assert synapses.input_shape == (1, 8, 8)


# --------------------------------------------------------------------------------------------------------- other layers


def test_every_name_in_the_table_is_a_class_of_the_framework() -> None:
    assert set(SINABS.kinds) <= set(classes_of("sinabs"))


def test_an_adaptive_layer_fires() -> None:
    net = nn.Sequential(nn.Linear(4, 3), sl.ALIF(tau_mem=5.0, tau_adapt=5.0), nn.Linear(3, 2))
    assert pj.trace(net, torch.zeros(1, STEPS, 4), **TIMED)["1"].fan_out.tolist() == [2, 2, 2]


def test_encoders_fire() -> None:
    pixels = nn.Sequential(sl.Img2SpikeLayer((1, 8, 8), tw=STEPS, squeeze=False), nn.Conv2d(1, 3, 3))
    synapses = pj.trace(pixels.append(sl.IAFSqueeze(num_timesteps=STEPS)), torch.zeros(1, 8, 8), steps=STEPS)
    assert (synapses["0"].synapses, synapses.encoder_macs) == (36 * 9 * 3, 0)
    signal = nn.Sequential(sl.Sig2SpikeLayer(2), nn.Linear(2, 3), sl.IAFSqueeze(num_timesteps=STEPS))
    synapses = pj.trace(signal, torch.zeros(2, STEPS), steps=STEPS)
    assert (synapses["0"].fan_out.tolist(), synapses.encoder_macs) == ([3, 3], 0)
    signal[0].spk_out = False
    assert pj.trace(signal, torch.zeros(2, STEPS), steps=STEPS).encoder_macs == STEPS * 6


@pytest.mark.parametrize(
    "module",
    [
        sl.SpikingMaxPooling2dLayer(pool_size=(2, 2)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_cannot_be_counted_is_refused_by_name(module: nn.Module) -> None:
    assert isinstance(kind_of(module), Refused)
    with pytest.raises(PicojouleError, match=f"'1' \\({type(module).__name__} of sinabs\\)"):
        pj.trace(nn.Sequential(nn.Linear(4, 3), module), torch.zeros(1, STEPS, 4), **TIMED)


RECURRENT = {
    "LIF": lambda: sl.LIFRecurrent(tau_mem=5.0, rec_connect=nn.Linear(5, 5), norm_input=False),
    "IAF": lambda: sl.IAFRecurrent(rec_connect=nn.Sequential(nn.Flatten(), nn.Linear(5, 5))),
    "ALIF": lambda: sl.ALIFRecurrent(tau_mem=5.0, tau_adapt=5.0, rec_connect=nn.Linear(5, 5)),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_feed_back_all_but_the_last_step(name: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), RECURRENT[name](), nn.Linear(5, 2))
    with torch.no_grad():
        net[0].weight.fill_(1.5)
    synapses = pj.trace(net, torch.zeros(1, STEPS, 4), **TIMED)
    for _ in range(2):  # what is fed back ends with each call, though the potential is kept
        with pj.watch(net, **TIMED) as activity:
            net(torch.rand(BATCH, STEPS, 4))
        spikes = activity["1"]
        assert spikes[:-1].any()
        bill = pj.Penalty(synapses, normalized=False)(activity).item() * BATCH
        assert bill == pytest.approx((2 * spikes.sum() + 5 * spikes[:-1].sum()).item())
    assert (synapses["1"].synapses, synapses.dense_macs) == (35, 55)


@pytest.mark.parametrize("module", [sl.ExpLeak(tau_mem=5.0), sl.LIF(tau_mem=5.0, spike_fn=None)])
def test_what_emits_no_spikes_must_not_feed_a_synapse(module: nn.Module) -> None:
    assert kind_of(module) == Silent()
    net = nn.Sequential(nn.Linear(4, 3), sl.IAF(), nn.Linear(3, 3), module)
    assert pj.trace(net, torch.zeros(1, STEPS, 4), **TIMED).synapses == 9
    net.append(nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match="of sinabs\\), which emits its potential"):
        pj.trace(net, torch.zeros(1, STEPS, 4), **TIMED, strict=True)


def test_a_neuron_called_as_a_function_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.iaf = nn.Linear(4, 3), sl.IAF()
            self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            u = self.second(self.iaf(self.first(x)))
            surrogate = sinabs.activation.SingleExponential()
            return self.third(sinabs.activation.SingleSpike.apply(u, 1.0, surrogate))  # type: ignore[no-any-return]

    with pytest.raises(PicojouleError, match=r"'third' is fed by .* declare"):
        pj.trace(Bare(), torch.zeros(1, STEPS, 4), **TIMED)


# ---------------------------------------------------------------------------------------------------- sinabs' own hooks


def hooked_count(net: nn.Module) -> Tensor:
    """Its hooks give the mean over batch and steps; Ω_syn is the mean over the batch, so T times as much."""
    reset(net)
    register_synops_hooks(net)
    folded(net)
    by_layer: dict[int, Tensor] = net.hook_data["synops_per_timestep"]
    return torch.stack([count for index, count in by_layer.items() if index != 0]).sum() * STEPS


@pytest.mark.parametrize("pool", [nn.AvgPool2d(2), nn.MaxPool2d(2)])
def test_the_gradient_is_that_of_sinabs_own_count(pool: nn.Module) -> None:
    net = squeezed(pool, num_timesteps=STEPS)
    synapses = pj.trace(net, images()[:1].flatten(0, 1), **FOLDED)
    with pj.watch(net, **FOLDED) as activity:
        folded(net)
    penalty = pj.Penalty(synapses, normalized=False)(activity)
    penalty.backward()
    ours = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad(set_to_none=True)
    count = hooked_count(net)
    count.backward()
    torch.testing.assert_close(penalty, count, rtol=1e-5, atol=0)
    theirs = {name: p.grad for name, p in net.named_parameters() if name in ours}
    assert set(ours) >= {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert all(grad is not None and grad.abs().sum() > 0 for name, grad in ours.items() if name.startswith("0."))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_sum_pool_gives_the_same_count_and_hides_silent_windows_from_sinabs_gradient() -> None:
    """LPPool2d passes no gradient out of a window without spikes; Ω_syn reads the spikes themselves."""
    net = squeezed(sl.SumPool2d(2), num_timesteps=STEPS)
    synapses = pj.trace(net, images()[:1].flatten(0, 1), **FOLDED)
    with pj.watch(net, **FOLDED) as activity:
        folded(net)
    penalty = pj.Penalty(synapses, normalized=False)
    assert penalty(activity).item() == pytest.approx(hooked_count(net).item(), rel=1e-6)

    net = nn.Sequential(pj.declare_spiking(nn.Identity()), sl.SumPool2d(2), nn.Conv2d(1, 5, 1))
    spikes = torch.zeros(1, 1, 2, 2, requires_grad=True)
    (theirs,) = torch.autograd.grad(net[1](net[0](spikes)).sum() * 5, spikes)
    with pj.watch(net) as activity:
        net(spikes)
    (ours,) = torch.autograd.grad(pj.Penalty(pj.trace(net, spikes), normalized=False)(activity), spikes)
    assert theirs.unique().tolist() == [0]
    assert ours.unique().tolist() == [5]


@pytest.mark.slow
def test_the_example() -> None:
    check_example(run_example("sinabs_digits.py"), steps=6)
