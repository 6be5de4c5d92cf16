"""Neurons with a membrane against plain loops over single neurons, and where they have to work."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.neurons.lif import Membrane, integrate, step
from picojoule.neurons.surrogate import SURROGATES, Surrogate, Triangle

MEMBRANES = {
    "converted": Membrane(floor=-1.0),
    "no floor": Membrane(threshold=0.7),
    "two at most": Membrane(max_spikes=2, floor=-0.5),
    "one at most": Membrane(threshold=1.3, max_spikes=1),
    "to zero": Membrane(reset="zero", floor=-2.0),
    "leaky": Membrane(leak=0.3, max_spikes=1),
    "leaky, several, to zero": Membrane(threshold=0.5, leak=0.8, reset="zero", floor=-1.0, surrogate=Triangle()),
    "forgetful": Membrane(leak=1.0),
}
each_membrane = pytest.mark.parametrize("membrane", MEMBRANES.values(), ids=MEMBRANES)
each_surrogate = pytest.mark.parametrize("surrogate", [kind() for kind in SURROGATES.values()], ids=[*SURROGATES])


def one_neuron(currents: list[float], m: Membrane) -> tuple[list[int], list[float], list[float]]:
    """Spikes, potentials when they fire, and ∂v/∂u of every step, in Python's own numbers."""
    v, spikes, potentials, kept = 0.0, [], [], []
    for current in currents:
        u = (1 - m.leak) * v + current
        n = 0
        while u >= (n + 1) * m.threshold and (m.max_spikes is None or n < m.max_spikes):
            n += 1
        v = u - n * m.threshold if m.reset == "subtract" else 0.0 if n else u
        stays = m.reset == "subtract" or n == 0
        if m.floor is not None and v < m.floor:
            v, stays = m.floor, False
        spikes.append(n)
        potentials.append(u)
        kept.append(float(stays))
    return spikes, potentials, kept


def currents(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 1.5


@each_membrane
def test_every_neuron_does_what_a_loop_over_its_steps_does(membrane: Membrane) -> None:
    x = currents(9, 2, 30)
    spikes = integrate(x, membrane)
    for b in range(2):
        for i in range(30):
            assert spikes[:, b, i].tolist() == one_neuron(x[:, b, i].tolist(), membrane)[0]
    assert 0 < spikes.mean() < 3
    assert spikes.max() == 1 if membrane.max_spikes == 1 else spikes.max() > 1


@each_membrane
def test_the_gradient_is_the_chain_rule_through_time_with_the_reset_as_a_constant(membrane: Membrane) -> None:
    x = currents(6, 1, 40).requires_grad_()
    upstream = torch.randn(6, 1, 40, dtype=torch.float64)
    (grad,) = torch.autograd.grad(integrate(x, membrane), x, upstream)
    for i in range(40):
        counts, potentials, kept = one_neuron(x[:, 0, i].tolist(), membrane)
        # Each further spike is a crossing like the first.
        last = [u - max(n - 1, 0) * membrane.threshold for u, n in zip(potentials, counts, strict=True)]
        slope = membrane.surrogate(torch.tensor(last, dtype=torch.float64), membrane.threshold).tolist()
        expected = np.zeros(6)
        for given in range(6):
            passed = 1.0
            for now in range(given, 6):
                expected[given] += upstream[now, 0, i].item() * slope[now] * passed
                passed *= kept[now] * (1 - membrane.leak)
        np.testing.assert_allclose(grad[:, 0, i].numpy(), expected, rtol=1e-9, atol=1e-12)


def test_a_step_is_pure() -> None:
    v, current = torch.tensor([0.5, -0.5]), torch.tensor([2.0, 0.2])
    before = v.clone(), current.clone()
    first, second = step(v, current, Membrane()), step(v, current, Membrane())
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(v, before[0])
    assert torch.equal(current, before[1])


def test_no_call_knows_of_the_one_before() -> None:
    neuron = pj.IF()
    x = torch.full((3, 2, 4), 0.4)
    assert torch.equal(neuron(x), neuron(x))
    assert neuron.state_dict() == {}
    assert vars(neuron).keys() == vars(copy.deepcopy(neuron)).keys()


def test_fires_at_the_threshold_and_not_below() -> None:
    below = math.nextafter(1.0, 0.0)
    assert pj.IF(steps=1)(torch.tensor([below, 1.0, 2.0], dtype=torch.float64)).tolist() == [0, 1, 2]
    assert pj.LIF(steps=1)(torch.tensor([below, 1.0, 2.0], dtype=torch.float64)).tolist() == [0, 1, 1]


def test_without_leak_a_leaky_neuron_is_one_that_is_not() -> None:
    x = currents(8, 3, 5)
    assert torch.equal(pj.LIF(leak=0, max_spikes=None, floor=-1)(x), pj.IF()(x))
    assert torch.equal(pj.LIF(leak=1, steps=8)(x.flatten(0, 1)), pj.Spike()(x.flatten(0, 1)))


def test_one_step_of_the_converted_neuron_is_the_quantised_relu() -> None:
    x = torch.randn(200) * 3
    assert torch.equal(pj.IF(steps=1)(x), pj.QuantizedReLU()(x))


@pytest.mark.parametrize("neuron", [pj.IF, pj.LIF])
def test_time_folded_into_the_batch_is_the_same_as_an_axis(neuron: Any) -> None:
    x = currents(5, 3, 2, 4, 4)
    assert torch.equal(neuron(steps=5)(x.flatten(0, 1)), neuron()(x).flatten(0, 1))


@each_surrogate
@pytest.mark.parametrize("neuron", [pj.IF, pj.LIF])
def test_channels_last_stays_channels_last(neuron: Any, surrogate: Surrogate) -> None:
    x = currents(12, 3, 4, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    spikes = neuron(steps=4, surrogate=surrogate)(x)
    assert spikes.is_contiguous(memory_format=torch.channels_last)
    (grad,) = torch.autograd.grad(spikes.sum(), x)
    assert grad.abs().sum() > 0
    assert torch.equal(spikes, neuron(steps=4, surrogate=surrogate)(x.contiguous()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_potential_does_not_lose_digits_where_the_currents_have_few(dtype: torch.dtype) -> None:
    """In bfloat16 a potential of 300 would not notice a current of 0.5."""
    x = torch.full((700, 1, 1), 0.5, dtype=dtype)
    spikes = pj.IF(threshold=340.0)(x)
    assert spikes.dtype == dtype
    assert spikes.sum() == 1
    assert spikes.flatten().argmax() == 679


def test_trains_under_bfloat16_autocast() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), pj.LIF(0.5, steps=3), nn.Linear(32, 4))
    with torch.autocast("cpu", torch.bfloat16):
        net(torch.randn(6, 16)).float().square().mean().backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch warns of its own tracer
@pytest.mark.parametrize("neuron", [pj.IF(steps=3), pj.LIF(steps=3)])
def test_compiles_into_one_graph(neuron: nn.Module) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(neuron, fullgraph=True, backend="aot_eager")
    x = torch.linspace(-2, 4, 96).requires_grad_()
    spikes = compiled(x)
    assert torch.equal(spikes, neuron(x))
    (grad,), (expected,) = (torch.autograd.grad(s.sum(), x) for s in (spikes, neuron(x)))
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"threshold": 0.0, "surrogate": Triangle()}, "threshold above 0, not 0.0"),
        ({"threshold": math.nan}, "finite threshold"),
        ({"surrogate": Triangle}, r"pass an instance, Triangle\(\)"),
        ({"reset": "soft"}, "unknown reset 'soft'.*subtract, zero"),
        ({"max_spikes": 0}, "max_spikes=0"),
        ({"max_spikes": True}, "max_spikes=True"),
        ({"floor": 0.5}, "floor=0.5"),
        ({"floor": -math.inf}, "floor=-inf"),
        ({"steps": 0}, "steps=0"),
        ({"steps": 2.0}, "steps=2.0"),
    ],
)
@pytest.mark.parametrize("neuron", [pj.IF, pj.LIF])
def test_what_no_membrane_can_have_is_refused(neuron: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pj.PicojouleError, match=sentence):
        neuron(**settings)


@pytest.mark.parametrize("leak", [-0.1, 1.1, math.nan, "much"])
def test_a_leak_that_is_no_share_is_refused(leak: Any) -> None:
    with pytest.raises(pj.PicojouleError, match="share of the potential"):
        pj.LIF(leak=leak)


def test_currents_without_time_are_refused() -> None:
    with pytest.raises(pj.PicojouleError, match=r"no time and batch axes.*\[T, B, …\]"):
        pj.IF()(torch.zeros(4))
    with pytest.raises(pj.PicojouleError, match="7 rows do not divide into 3 time steps"):
        pj.IF(steps=3)(torch.zeros(7, 2))


def test_shown_with_its_parameters() -> None:
    assert repr(pj.LIF(steps=4)) == (
        "LIF(threshold=1.0, leak=0.5, reset=subtract, max_spikes=1, floor=None, "
        "surrogate=S3NN(alpha=0.25, tau=0.6), steps=4)"
    )


# --- In a network ----------------------------------------------------------------------------------------------------


def network(neuron: Any) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), neuron(), nn.Linear(5, 4), neuron(), nn.Linear(4, 3))


def bill(net: nn.Module, x: Tensor, **layout: Any) -> tuple[dict[str, float], float]:
    synapses = pj.trace(net, x[:, :1] if layout.get("axis") else x[: layout["steps"]], steps=layout["steps"])
    meter = pj.EnergyMeter(synapses)
    with pj.watch(net, steps=layout["steps"]) as activity:
        net(x)
    meter.update(activity)
    report = meter.compute()
    return {layer.name: layer.synops for layer in report.layers}, report.encoder_macs


@pytest.mark.parametrize("neuron", [pj.IF, pj.LIF])
def test_the_bill_is_the_sum_over_all_steps_counted_by_hand(neuron: Any) -> None:
    x = torch.randn(4, 7, 6) * 4  # [T, B, 6]
    folded, along_axis = network(lambda: neuron(steps=4)), network(neuron)
    by_hand = {"1": 0.0, "3": 0.0}
    s1 = neuron()(along_axis[0](x))
    s3 = neuron()(along_axis[2](s1))
    for t in range(4):
        for b in range(7):
            by_hand["1"] += s1[t, b].sum().item() * 4 / 7
            by_hand["3"] += s3[t, b].sum().item() * 3 / 7
    assert by_hand["3"] > 0
    for synops, encoder in (bill(folded, x.flatten(0, 1), steps=4), bill(along_axis, x, steps=4, axis=True)):
        assert synops == pytest.approx(by_hand)
        assert encoder == 4 * 6 * 5


@pytest.mark.parametrize("p", [1, 2])
def test_the_penalty_is_the_sum_over_all_steps(p: int) -> None:
    net, x = network(lambda: pj.IF(steps=4)), torch.randn(28, 6) * 4
    penalty = pj.Penalty(pj.trace(net, x[:4], steps=4), p=p, normalized=False)
    with pj.watch(net, steps=4) as activity:
        net(x)
    expected = sum((activity[name] ** p).sum() * psi for name, psi in (("1", 4), ("3", 3))) / (7 * p)
    torch.testing.assert_close(penalty(activity), expected)
    penalty(activity).backward()
    assert net[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("steps", [1, 2, 8])
def test_the_wrong_number_of_steps_is_an_error_that_says_the_right_one(steps: int) -> None:
    net = network(lambda: pj.IF(steps=4))
    with pytest.raises(pj.PicojouleError, match=f"4 time steps .* steps={steps} was said: say steps=4"):
        pj.trace(net, torch.zeros(4, 6), steps=steps)
    with (
        pytest.raises(pj.PicojouleError, match="say steps=4"),
        pj.watch(net, steps=steps),
    ):
        net(torch.zeros(8, 6))


def test_with_an_axis_for_time_the_wrong_number_of_steps_is_an_error_too() -> None:
    net = network(pj.IF)
    with pytest.raises(pj.PicojouleError, match="axis 0 is not steps=3"):
        pj.trace(net, torch.zeros(4, 1, 6), steps=3)
    with pj.watch(net, steps=3) as activity:
        net(torch.zeros(4, 2, 6))
    with pytest.raises(pj.PicojouleError, match="axis 0 is not steps=3"):
        activity["1"]


def test_a_layout_in_time_that_the_neurons_do_not_have_is_an_error() -> None:
    net = network(lambda: pj.IF(steps=4))
    with pytest.raises(pj.PicojouleError, match=r"'1' emits its spikes as \[T·B, …\], not as \[T, B, …\]"):
        pj.trace(net, torch.zeros(4, 6), steps=4, time_axis=0)
    mixed = nn.Sequential(nn.Linear(6, 5), pj.IF(steps=4), nn.Unflatten(0, (4, -1)), nn.Linear(5, 4), pj.IF())
    with pytest.raises(pj.PicojouleError, match=r"'4' emits .* let all neurons of a network take time"):
        pj.trace(mixed, torch.zeros(4, 6), steps=4)
    assert pj.trace(net, torch.zeros(4, 6), steps=4, folded="time").steps == 4
