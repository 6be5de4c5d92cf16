"""The penalty is the metric: theorem, gradients, normalisation and exactness against formulas written out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj
from networks import CASES, Chain, laid_out, linear, relayed
from paper_networks import SMALLEST_FIRST
from picojoule.errors import PicojouleError
from picojoule.neurons.surrogate import S3NN, SURROGATES
from picojoule.spikes.layout import TimeLayout

E_AC = 0.9e-12
POWERS = (1, 2, 3.5)

each_case = pytest.mark.parametrize("name", CASES)
each_power = pytest.mark.parametrize("p", POWERS)
each_kind = pytest.mark.parametrize("kind", ["syn", "total", "balance"])


def recorded(net: nn.Module, x: Tensor) -> pj.Activity:
    with pj.watch(net) as activity:
        net(x)
    return activity


def coefficients(layer: pj.Layer, kind: str) -> Tensor:
    """c of the penalty's formula, written out."""
    if kind == "syn":
        return layer.fan_out.double()
    if layer.relay:
        return torch.zeros(layer.shape, dtype=torch.float64)
    return torch.full(layer.shape, 1.0 if kind == "total" else 1.0 / layer.neurons, dtype=torch.float64)


def formula(synapses: pj.Synapses, spikes: dict[str, Tensor], kind: str, p: float) -> dict[str, Tensor]:
    """(1/p) Σ_t Σ_i c s^p, mean over the batch; spikes [T, B, …]."""
    return {
        name: (coefficients(layer, kind) * spikes[name].double() ** p).sum() / p / spikes[name].shape[1]
        for name, layer in synapses.items()
    }


def one_layer(fan_out: Tensor, relay: bool = False) -> pj.Synapses:
    return pj.Synapses(
        {"s": pj.Layer("s", fan_out, relay)}, psi="exact", input_shape=(1,), steps=1, encoder_macs=0, dense_macs=0
    )


def emitted(*by_step: Tensor, **options: Any) -> pj.Activity:
    activity = pj.Activity(TimeLayout(len(by_step)))
    for spikes in by_step:
        activity.record("s", spikes, **options)
    return activity


# ------------------------------------------------------------------------------------------------------------- theorem


@each_case
@each_power
@pytest.mark.parametrize("psi", ["exact", "uniform", "paper"])
def test_p_times_price_times_penalty_is_the_energy(name: str, p: float, psi: str) -> None:
    case = CASES[name]
    net = case.build()
    synapses = case.synapses(psi)
    penalty, meter = pj.Penalty(synapses, "syn", p, normalized=False), pj.EnergyMeter(synapses)
    with laid_out(net, case.inputs(4, 5), "calls") as activity:
        meter.update(activity)
        omega, by_layer = penalty(activity).item(), penalty.by_layer(activity)
    report = meter.compute()
    assert report.joules > 0
    assert p * E_AC * omega == pytest.approx(report.joules, rel=1e-6)
    for layer in report.layers:
        assert p * E_AC * by_layer[layer.name].item() == pytest.approx(layer.joules, rel=1e-6)


@each_power
def test_the_expectation_is_over_samples_whatever_the_batches(p: float) -> None:
    case = CASES["convolutional"]
    net, x = case.build(), case.inputs(12)
    synapses = case.synapses()
    penalty, meter = pj.Penalty(synapses, p=p, normalized=False), pj.EnergyMeter(synapses)
    mean = 0.0
    for part in x.split([1, 4, 7]):
        activity = recorded(net, part)
        meter.update(activity)
        mean += penalty(activity).item() * len(part) / 12
    assert p * E_AC * mean == pytest.approx(meter.compute().joules, rel=1e-6)
    assert penalty(recorded(net, x)).item() == pytest.approx(mean, rel=1e-6)


@each_case
@each_kind
@pytest.mark.parametrize(("p", "steps"), [(1, 1), (1, 3), (2, 3), (3.5, 1)])
def test_values_are_those_of_the_formula(name: str, kind: Any, p: float, steps: int) -> None:
    case = CASES[name]
    net = case.build()
    synapses = case.synapses()
    with laid_out(net, case.inputs(steps, 5), "calls") as activity:
        spikes = {n: (activity[n] if steps > 1 else activity[n][None]).detach() for n in synapses}
        expected = formula(synapses, spikes, kind, p)
        at_one = sum(coefficients(layer, kind).sum().item() for layer in synapses.values()) / p
        for normalized, unit in ((False, 1.0), (True, at_one * steps)):
            penalty = pj.Penalty(synapses, kind, p, normalized)
            assert penalty.at_one == pytest.approx(at_one, rel=1e-14)
            by_layer = penalty.by_layer(activity)
            assert list(by_layer) == list(synapses)
            for layer in synapses:
                assert by_layer[layer].item() == pytest.approx(expected[layer].item() / unit, rel=1e-6)
            assert penalty(activity).item() == pytest.approx(sum(expected.values()).item() / unit, rel=1e-6)
            assert penalty(activity).item() == pytest.approx(sum(v.item() for v in by_layer.values()), rel=1e-6)


@each_power
def test_several_spikes_in_one_value(p: float) -> None:
    spikes = torch.tensor([[3.0, 0.0, 2.0], [0.0, 1.0, 5.0]])
    penalty = pj.Penalty(one_layer(torch.tensor([2, 7, 11])), "syn", p, normalized=False)
    expected = (2 * 3**p + 11 * 2**p + 7 * 1**p + 11 * 5**p) / p / 2
    assert penalty(emitted(spikes)).item() == pytest.approx(expected, rel=1e-6)


# ------------------------------------------------------------------------------------------------------ normalisation


@each_case
@each_kind
@pytest.mark.parametrize(("p", "steps"), [(1, 3), (3.5, 1)])
def test_the_normalised_penalty_is_one_when_everything_fires(name: str, kind: Any, p: float, steps: int) -> None:
    case = CASES[name]
    synapses = case.synapses()
    activity = pj.Activity(TimeLayout(steps))
    for _ in range(steps):
        for layer in synapses.values():
            activity.record(layer.name, torch.ones(4, *layer.shape))
    assert pj.Penalty(synapses, kind, p)(activity).item() == pytest.approx(1, rel=1e-6)
    raw = pj.Penalty(synapses, kind, p, normalized=False)
    assert raw(activity).item() == pytest.approx(steps * raw.at_one, rel=1e-6)


@pytest.mark.parametrize("model", SMALLEST_FIRST)
@pytest.mark.parametrize("psi", ["uniform", "paper"])
def test_penalties_at_one_are_the_networks_integers(model: str, psi: Any) -> None:
    net = pj.zoo.create(model)
    synapses = pj.trace(net, torch.zeros(1, *net.input_shape), psi=psi)
    assert pj.Penalty(synapses, "total").at_one == synapses.neurons
    assert pj.Penalty(synapses, "balance").at_one == pytest.approx(len(synapses.spiking), rel=1e-15)
    assert pj.Penalty(synapses, "syn").at_one == synapses.synapses
    assert pj.Penalty(synapses, "syn", p=2).at_one == synapses.synapses / 2


# ----------------------------------------------------------------------------------------------------------- gradients


@each_case
@each_kind
@pytest.mark.parametrize(("p", "normalized", "steps"), [(1, True, 1), (1, False, 3), (2, True, 3), (3.5, False, 1)])
def test_gradients_are_those_of_autograd(name: str, kind: Any, p: float, normalized: bool, steps: int) -> None:
    case = CASES[name]
    synapses = case.synapses()
    leaves = {
        layer.name: torch.randint(0, 3, (steps, 4, *layer.shape)).double().requires_grad_()
        for layer in synapses.values()
    }
    activity = pj.Activity(TimeLayout(steps, time_axis=0))
    for layer, spikes in leaves.items():
        activity.record(layer, spikes)
    penalty = pj.Penalty(synapses, kind, p, normalized)
    ours = torch.autograd.grad(3 * penalty(activity), list(leaves.values()), allow_unused=True)
    unit = penalty.at_one * steps if normalized else 1
    plain = torch.autograd.grad(3 * sum(formula(synapses, leaves, kind, p).values()) / unit, list(leaves.values()))
    for mine, theirs, spikes in zip(ours, plain, leaves.values(), strict=True):
        torch.testing.assert_close(torch.zeros_like(spikes) if mine is None else mine, theirs, rtol=1e-7, atol=0)


@each_power
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_firing_and_silent_neurons(p: float, dtype: torch.dtype) -> None:
    """p = 1: ψ/B on all neurons alike; p > 1: ψ/B on those that fire and nothing on the others."""
    spikes = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=dtype, requires_grad=True)
    psi = torch.tensor([4, 8, 32])
    pj.Penalty(one_layer(psi), "syn", p, normalized=False)(emitted(spikes)).backward()
    assert spikes.grad is not None
    assert spikes.grad.dtype == dtype
    expected = (psi / 4).expand(4, 3) * (1 if p == 1 else spikes.detach())
    assert spikes.grad.tolist() == expected.tolist()


@each_power
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gradients_through_a_spiking_layer(p: float, surrogate: str) -> None:
    curve = SURROGATES[surrogate]()
    net = Chain(s1=pj.Spike(surrogate=curve), l2=nn.Linear(3, 5))
    synapses = pj.trace(net, torch.zeros(1, 3))
    u = (torch.randn(6, 3) + 1).requires_grad_()
    pj.Penalty(synapses, "syn", p, normalized=False)(recorded(net, u)).backward()
    fires = u.detach() >= 1
    assert 0 < fires.float().mean() < 1
    gate = torch.ones(6, 3) if p == 1 else fires.float()
    assert u.grad is not None
    torch.testing.assert_close(u.grad, 5 / 6 * gate * curve(u.detach(), 1.0))


def test_the_surrogate_written_out() -> None:
    """S3NN: 1/(τu) above the threshold, the scaled sigmoid's slope below."""
    net = Chain(s1=pj.Spike(surrogate=S3NN(alpha=0.25, tau=0.5)), l2=nn.Linear(1, 7))
    u = torch.tensor([[2.0], [0.5]], requires_grad=True)
    pj.Penalty(pj.trace(net, torch.zeros(1, 1)), normalized=False)(recorded(net, u)).backward()
    sigmoid = 1 / (1 + math.exp(0.5 / 0.25))
    assert u.grad is not None
    assert u.grad.flatten().tolist() == pytest.approx([7 / 2 / (0.5 * 2), 7 / 2 * sigmoid * (1 - sigmoid) / 0.25])


@each_power
def test_the_gradient_joins_that_of_the_loss(p: float) -> None:
    net, x, labels = linear(), torch.randn(8, 6), torch.randint(3, (8,))
    penalty = pj.Penalty(CASES["linear"].trace(net), p=p)
    twin = copy.deepcopy(net)

    with pj.watch(net) as activity:
        logits = net(x)
    (F.cross_entropy(logits, labels) + 64 * penalty(activity)).backward()

    with pj.watch(twin) as activity:
        logits = twin(x)
    parts = formula(penalty.synapses, {name: activity[name][None] for name in activity}, "syn", p)
    (F.cross_entropy(logits, labels) + 64 * (sum(parts.values()) / penalty.at_one).float()).backward()
    for ours, plain in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, plain.grad)
    assert net.l1.weight.grad.any()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_shared_spikes_add_up(batch: int, dtype: torch.dtype) -> None:
    """Gradients of p = 1 are views of one map: adding to one must not change the others."""
    spikes = torch.ones(batch, 4, dtype=dtype, requires_grad=True)
    psi = torch.tensor([1, 2, 3, 4])
    penalty = pj.Penalty(one_layer(psi), normalized=False)
    activity = emitted(spikes, spikes, spikes)
    penalty(activity).backward()
    penalty(activity).backward()
    assert spikes.grad is not None
    torch.testing.assert_close(spikes.grad, (6 * psi / batch).to(dtype).expand(batch, 4))
    spikes.grad[0, 0] += 1
    assert spikes.grad[-1, 1] == pytest.approx(12 / batch)


@each_power
def test_backward_twice_is_torchs_own_error(p: float) -> None:
    net = linear()
    omega = pj.Penalty(CASES["linear"].trace(net), p=p)(recorded(net, torch.randn(2, 6)))
    omega.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        omega.backward()


@pytest.mark.parametrize("inside", [True, False])
def test_inside_the_block_or_after_it(inside: bool) -> None:
    net, x = linear(), torch.randn(3, 6)
    penalty = pj.Penalty(CASES["linear"].trace(net))
    with pj.watch(net) as activity:
        net(x)
        early = penalty(activity) if inside else None
    omega = penalty(activity) if early is None else early
    omega.backward()
    assert net.l1.weight.grad.any()
    assert omega.item() == penalty(activity).item()


def test_without_gradients() -> None:
    net = linear()
    penalty = pj.Penalty(CASES["linear"].trace(net), p=2)
    with torch.inference_mode():
        value = penalty(recorded(net, torch.randn(3, 6)))
    assert not value.requires_grad
    assert 0 < value.item() < 1


# ------------------------------------------------------------------------------------------------------------ exactness


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("binary", [True, False])
@each_power
def test_a_sum_of_59688_ones(dtype: torch.dtype, binary: bool, p: float) -> None:
    ones = torch.ones(1, 59_688, dtype=dtype)
    assert torch.ones(1, 59_688, dtype=torch.bfloat16).sum().item() == 59_648
    with torch.autocast("cpu", dtype=torch.bfloat16):
        penalty = pj.Penalty(one_layer(torch.ones(59_688, dtype=torch.int64)), "total", p, normalized=False)
        omega = penalty(emitted(ones, binary=binary))
    assert omega.dtype == torch.float32
    assert omega.item() == torch.tensor(59_688 / p).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@each_power
def test_a_batch_of_257_under_autocast(dtype: torch.dtype, p: float) -> None:
    """257 is no bfloat16, so a sum over the batch that autocast took would be 256."""
    spikes = torch.ones(257, 3, 2, 2, dtype=dtype).contiguous(memory_format=torch.channels_last)
    penalty = pj.Penalty(one_layer(torch.full((3, 2, 2), 5)), "syn", p, normalized=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for binary in (True, False):
            assert penalty(emitted(spikes, binary=binary)).item() * p == pytest.approx(60, rel=1e-7)


@each_power
def test_a_step_under_autocast(p: float) -> None:
    case = CASES["convolutional"]
    net, x = case.build(), case.inputs(5)
    synapses = case.trace(net)
    penalty, meter = pj.Penalty(synapses, p=p, normalized=False), pj.EnergyMeter(synapses)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        activity = recorded(net, x)
        omega = penalty(activity)
    omega.backward()
    meter.update(activity)
    assert activity["s1"].dtype == torch.bfloat16
    assert p * E_AC * omega.item() == pytest.approx(meter.compute().joules, rel=1e-6)
    assert net.c1.weight.grad.any()


# --------------------------------------------------------------------------------------------------------------- relays


def test_total_and_balance_ignore_relays_and_syn_reads_behind_the_pool() -> None:
    net = relayed()
    synapses = CASES["relayed"].trace(net)
    activity = recorded(net, torch.randn(4, 1, 6, 6))
    mean = {name: activity[name].sum().item() / 4 for name in activity}
    by_layer = {
        kind: pj.Penalty(synapses, kind, normalized=False).by_layer(activity) for kind in ("syn", "total", "balance")
    }
    assert {n: v.item() for n, v in by_layer["total"].items()} == pytest.approx(
        {"s1": mean["s1"], "pool": 0, "s2": mean["s2"]}
    )
    assert {n: v.item() for n, v in by_layer["balance"].items()} == pytest.approx(
        {"s1": mean["s1"] / 48, "pool": 0, "s2": mean["s2"] / 36}
    )
    by_hand = CASES["relayed"].by_hand(activity)
    assert by_hand["pool"] > 0
    assert {n: v.item() for n, v in by_layer["syn"].items()} == pytest.approx({n: v / 4 for n, v in by_hand.items()})
    assert pj.Penalty(synapses, "total").at_one == 48 + 36
    assert pj.Penalty(synapses, "balance").at_one == 2


def test_the_gradient_goes_through_the_relay_to_its_neurons() -> None:
    net = relayed()
    penalty = pj.Penalty(CASES["relayed"].trace(net), normalized=False)
    penalty.by_layer(recorded(net, torch.randn(4, 1, 6, 6)))["pool"].backward()
    assert net.c1.weight.grad.any()


# --------------------------------------------------------------------------------------------------- a user's weighting


def test_a_weighting_of_ones_own() -> None:
    def twice_psi_for_the_first(layer: pj.Layer) -> Tensor | float:
        return layer.fan_out * 2 if layer.name == "s1" else 0.5

    net = linear()
    activity = recorded(net, torch.randn(4, 6))
    penalty = pj.Penalty(CASES["linear"].trace(net), twice_psi_for_the_first, normalized=False)
    assert penalty.at_one == 5 * 4 * 2 + 4 * 0.5
    expected = activity["s1"].sum() / 4 * 4 * 2 + activity["s2"].sum() / 4 * 0.5
    assert penalty(activity).item() == pytest.approx(expected.item())
    assert "twice_psi_for_the_first" in repr(penalty)


def test_a_weighting_that_is_an_object() -> None:
    class Flat:
        def __call__(self, layer: pj.Layer) -> float:
            return 3

    assert pj.Penalty(one_layer(torch.ones(4)), Flat()).at_one == 12


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (torch.ones(5), r"'s' coefficients of shape \(5,\), but its map has shape \(4,\)"),
        (torch.ones(1, 4), r"shape \(1, 4\)"),
        (torch.ones(1), r"shape \(1,\)"),
        (-1.0, "negative or not finite"),
        (torch.tensor([1.0, 1.0, -1e-9, 1.0]), "negative or not finite"),
        (math.nan, "negative or not finite"),
        (torch.tensor([1.0, math.inf, 0.0, 1.0]), "negative or not finite"),
        (None, "'s' NoneType, which is no cost: let it give a number"),
        ("much", "'s' str, which is no cost: let it give a number"),
    ],
)
def test_weightings_that_are_no_costs(weights: Any, match: str) -> None:
    with pytest.raises(PicojouleError, match=match):
        pj.Penalty(one_layer(torch.ones(4)), lambda layer: weights)


def test_a_weighting_of_nothing() -> None:
    with pytest.raises(PicojouleError, match="cannot be normalised"):
        pj.Penalty(one_layer(torch.ones(4)), lambda layer: 0)
    assert (
        pj.Penalty(one_layer(torch.ones(4)), lambda layer: 0, normalized=False)(emitted(torch.ones(2, 4))).item() == 0
    )


# ---------------------------------------------------------------------------------------------------------- transforms


def penalised(net: nn.Module, penalty: pj.Penalty) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    def omega(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        with pj.watch(net) as activity:
            torch.func.functional_call(net, parameters, (x,))
        return penalty(activity)

    return omega


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("normalized", [True, False])
def test_transforms_of_torch_func_go_through(p: float, normalized: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), pj.Spike(0.1), nn.Linear(5, 4), pj.Spike(0.1), nn.Linear(4, 2))
    x = torch.randn(7, 6)
    omega = penalised(net, pj.Penalty(pj.trace(net, torch.zeros(1, 6)), p=p, normalized=normalized))
    parameters = dict(net.named_parameters())
    value = omega(parameters, x)
    value.backward()
    plain = {name: torch.zeros_like(q) if q.grad is None else q.grad for name, q in parameters.items()}
    transformed, same = torch.func.grad_and_value(omega)(parameters, x)
    assert same.item() == pytest.approx(value.item(), rel=1e-6)
    one_by_one = torch.func.vmap(torch.func.grad(lambda q, row: omega(q, row[None])), in_dims=(None, 0))(parameters, x)
    for name, gradient in plain.items():
        torch.testing.assert_close(transformed[name], gradient)
        torch.testing.assert_close(one_by_one[name].mean(0), gradient)  # Ω is a mean over the samples
    assert plain["0.weight"].any()


FORWARD: dict[str, Callable[[], nn.Module]] = {
    "spike": lambda: pj.Spike(0.1),
    "triangle": lambda: pj.Spike(0.1, pj.surrogate.Triangle()),
    "quantised": pj.QuantizedReLU,
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("neuron", FORWARD)
def test_forward_mode_gives_what_backward_mode_gives(neuron: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), FORWARD[neuron](), nn.Linear(5, 4), FORWARD[neuron](), nn.Linear(4, 2))
    x = 3 * torch.randn(3, 6)  # enough for several spikes
    omega = penalised(net, pj.Penalty(pj.trace(net, torch.zeros(1, 6)), p=2))
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
    forward, backward = torch.func.jacfwd(omega)(parameters, x), torch.func.jacrev(omega)(parameters, x)
    assert backward["0.weight"].any()
    torch.testing.assert_close(forward, backward)

    def of_images(images: Tensor) -> Tensor:
        return omega(parameters, images)

    second = torch.func.jacrev(torch.func.jacrev(of_images))(x)
    torch.testing.assert_close(torch.func.hessian(of_images)(x), second)
    with torch.autograd.forward_ad.dual_level():
        value = of_images(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        tangent = torch.autograd.forward_ad.unpack_dual(value).tangent
    torch.testing.assert_close(tangent, torch.func.grad(of_images)(x).sum())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_of_forward_mode_is_refused() -> None:
    """PyTorch would leave out what the inner derivative depends on, without a word."""
    net = nn.Sequential(nn.Linear(6, 4), pj.Spike(0.1), nn.Linear(4, 2))
    omega = penalised(net, pj.Penalty(pj.trace(net, torch.zeros(1, 6))))
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
    with pytest.raises(PicojouleError, match=r"take torch.func.hessian"):
        torch.func.jacfwd(torch.func.jacfwd(lambda x: omega(parameters, x)))(torch.randn(2, 6))


def test_vmap_hides_what_a_neuron_of_another_kind_emits() -> None:
    net = nn.Sequential(nn.Linear(6, 4), pj.IF(steps=1), nn.Linear(4, 2))
    omega = penalised(net, pj.Penalty(pj.trace(net, torch.zeros(1, 6))))
    parameters, x = dict(net.named_parameters()), torch.randn(3, 6)
    assert torch.func.grad(omega)(parameters, x)["0.weight"].shape == (4, 6)
    with pytest.raises(PicojouleError, match=r"inside torch.vmap nobody can see .* the layer '1'"):
        torch.func.vmap(lambda row: omega(parameters, row[None]))(x)


@pytest.mark.parametrize("p", [0.999, 0, -1, math.nan, math.inf, -math.inf])
def test_powers_below_one_are_refused(p: float) -> None:
    with pytest.raises(PicojouleError, match=r"p=.* is not allowed.*1 or more"):
        pj.Penalty(one_layer(torch.ones(4)), p=p)


@pytest.mark.parametrize("kind", ["synaptic", "", "Syn", None, 1])
def test_unknown_kinds_list_the_valid_ones(kind: Any) -> None:
    with pytest.raises(PicojouleError, match="'syn', 'total', 'balance'") as caught:
        pj.Penalty(one_layer(torch.ones(4)), kind)
    assert repr(kind) in str(caught.value)


@pytest.mark.parametrize("spikes", [torch.tensor([[-1.0, 1.0]]), torch.tensor([[math.nan, 1.0]])])
def test_values_that_are_no_spikes_are_refused(spikes: Tensor) -> None:
    with pytest.raises(PicojouleError, match="'s' emitted negative values or NaN"):
        pj.Penalty(one_layer(torch.ones(2)))(emitted(spikes))


def test_an_empty_batch_costs_nothing() -> None:
    assert pj.Penalty(one_layer(torch.ones(2)))(emitted(torch.ones(0, 2))).item() == 0


def test_a_penalty_is_not_tied_to_one_batch_size_or_device_copy() -> None:
    net = linear()
    penalty: Callable[[pj.Activity], Tensor] = copy.deepcopy(pj.Penalty(CASES["linear"].trace(net)))
    x = torch.randn(9, 6)
    values = [penalty(recorded(net, x[i : i + 1])).item() for i in range(9)]
    assert penalty(recorded(net, x)).item() == pytest.approx(sum(values) / 9)


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_above_one_the_exponent_only_sets_the_strength_on_firing_neurons(p: float) -> None:
    """As docs/explanation/exponent.md says, p at λ/p is p = 1 at λ without the sub-threshold part of its gradient."""
    net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(6, 3))
    synapses = pj.trace(net, torch.zeros(1, 6))

    def gradient(exponent: float, strength: float) -> torch.Tensor:
        spikes = torch.tensor([[1.0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 0, 0]], requires_grad=True)
        with pj.watch(net) as activity:
            net(spikes)
        (strength * pj.Penalty(synapses, p=exponent)(activity)).backward()
        assert spikes.grad is not None
        return spikes.grad * (spikes.detach() if exponent == 1 else 1)

    assert gradient(1, 8).abs().sum() > 0
    torch.testing.assert_close(gradient(p, 8 / p), gradient(1, 8))


@pytest.mark.parametrize("spikes", [None, {"s": torch.ones(2, 4)}, torch.ones(2, 4)])
def test_only_what_was_watched_is_penalised_and_counted(spikes: Any) -> None:
    synapses = one_layer(torch.ones(4))
    for use in (pj.Penalty(synapses), pj.EnergyMeter(synapses).update):
        with pytest.raises(PicojouleError, match=f"picojoule.watch gives, not {type(spikes).__name__}"):
            use(spikes)


def test_spikes_that_reach_nothing_cannot_be_charged() -> None:
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike())
    with pytest.raises(pj.PicojouleError, match="no spike reaches a synapse, so let the neurons feed a layer"):
        pj.Penalty(pj.trace(net, torch.zeros(1, 4)))
