"""Price lists: the published numbers, their sources, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn.utils import prune

import picojoule as pj
from networks import CASES, laid_out
from picojoule.energy import hardware
from picojoule.energy.hardware import PRICE_LISTS, PriceList
from picojoule.errors import PicojouleError

PICOJOULES = {  # accumulate, multiply-accumulate, neuron update
    "horowitz-45nm-fp32": (0.9, 0.9 + 3.7, None),
    "horowitz-45nm-fp16": (0.4, 0.4 + 1.1, None),
    "horowitz-45nm-int8": (0.03, 0.03 + 0.2, None),
    "lemaire-45nm-int32": (0.1, None, None),
    "loihi": (27.1, None, 81),
    "spinnaker2": (450, None, 2190),
}


def in_picojoules(joules: float | None) -> object:
    return None if joules is None else pytest.approx(joules * 1e12, rel=1e-12)


def test_every_list_is_checked_here() -> None:
    assert set(hardware.names()) == set(PICOJOULES)


@pytest.mark.parametrize("name", hardware.names())
def test_values_are_the_published_ones_in_joules(name: str) -> None:
    prices = hardware.get(name)
    found = (prices.accumulate, prices.multiply_accumulate, prices.neuron_update)
    assert PICOJOULES[name] == tuple(in_picojoules(joules) for joules in found)


@pytest.mark.parametrize("name", hardware.names())
def test_every_list_has_its_name_and_a_dated_source(name: str) -> None:
    prices = hardware.get(name)
    assert prices.name == name
    assert "20" in prices.source


def test_the_default_is_the_papers() -> None:
    assert hardware.get() is PRICE_LISTS["horowitz-45nm-fp32"]
    assert hardware.get().accumulate == 0.9e-12


def test_a_list_of_ones_own_goes_through() -> None:
    own = PriceList(name="mine", accumulate=1e-12, multiply_accumulate=0.0, source="measured")
    assert hardware.get(own) is own


def test_an_unknown_name_lists_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(PicojouleError) as error:
        hardware.get("horowitz-45nm-fp23")
    assert "did you mean 'horowitz-45nm-fp32'" in str(error.value)
    for name in hardware.names():
        assert name in str(error.value)
    with pytest.raises(PicojouleError, match="unknown hardware 'zzz': choose one of"):
        hardware.get("zzz")


@pytest.mark.parametrize("source", ["", "  \n"])
def test_a_list_without_a_source_is_refused(source: str) -> None:
    with pytest.raises(PicojouleError, match="'mine' needs a source"):
        PriceList(name="mine", accumulate=1e-12, source=source)


def test_a_list_without_a_name_is_refused() -> None:
    with pytest.raises(PicojouleError, match="needs a name"):
        PriceList(name=" ", accumulate=1e-12, source="measured")


@pytest.mark.parametrize("bad", [-1e-12, math.nan, math.inf])
@pytest.mark.parametrize("field", ["accumulate", "multiply_accumulate", "neuron_update", "spike"])
def test_prices_that_are_no_amount_of_energy_are_refused(field: str, bad: float) -> None:
    prices = {"accumulate": 1e-12, field: bad}
    with pytest.raises(PicojouleError, match=f"{field} must be .* not {bad}"):
        PriceList(name="mine", source="measured", **prices)


def test_lists_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        hardware.get().accumulate = 0.0  # type: ignore[misc]  # the assignment under test
    with pytest.raises(TypeError):
        PRICE_LISTS["mine"] = hardware.get()  # type: ignore[index]  # the assignment under test


# ------------------------------------------------------------- the theorem: metric = what no spike changes + c × E[Ω]


OWN = PriceList(name="own", accumulate=3e-12, neuron_update=7e-12, spike=50e-12, source="the test")
LEMAIRE = hardware.get("lemaire-45nm-int32")

WEIGHTS: dict[str, dict[str, list[tuple[int, int]]]] = {
    # network: spiking layer or relay, and for every layer of weights that it feeds: how many weights, how many outputs
    "linear": {"s1": [(5 * 4, 4)], "s2": [(4 * 3, 3)]},
    "convolutional": {"s1": [(6 * 2 * 9, 6 * 3 * 3)], "s2": [(54 * 7, 7)]},
    "pooled": {"s1": [(2 * 3 * 4, 2 * 2 * 2)], "s2": [(8 * 5, 5)]},
    "residual": {"s1": [(5 * 5, 5), (5 * 4, 4)], "s2": [(5 * 4, 4)]},
    "relayed": {"s1": [], "pool": [(4 * 3 * 4, 4 * 3 * 3)], "s2": [(36 * 5, 5)]},
}


def small(words: int) -> float:
    """Picojoules of an access to a memory below 8 kB: on the line through 8 kB, 10 pJ and 32 kB, 20 pJ."""
    return 10 - (8192 - 4 * words) * 10 / 24576


def by_hand(prices: PriceList, name: str, activity: pj.Activity) -> float:
    """The whole metric per sample in picojoules, operation by operation, without ψ of picojoule's own counting."""
    # synaptic operations by layer, over all samples and steps
    operations = {layer: float(n) for layer, n in CASES[name].by_hand(activity).items()}
    total = 0.0
    for layer, targets in WEIGHTS[name].items():
        spikes, neurons = activity[layer].sum().item(), activity[layer][0, 0].numel()
        updates = 0 if layer == "pool" else activity.steps * activity[layer].shape[1] * neurons
        fired = 0.0 if layer == "pool" else spikes
        each = [spikes * outputs for _, outputs in targets] if len(targets) > 1 else [operations[layer]] * len(targets)
        assert sum(each) == operations[layer]
        if prices is not LEMAIRE:
            accumulate, update, spike = (
                1e12 * (x or 0) for x in (prices.accumulate, prices.neuron_update, prices.spike)
            )
            total += operations[layer] * accumulate + updates * update + fired * spike
            continue
        for (weights, outputs), synops in zip(targets, each, strict=True):
            total += synops * (0.1 + 0.1 + small(weights) + 2 * small(outputs))  # add, address; weight; potential
            total += spikes * (small(neurons) + 2 * (3.1 + 0.1))  # the spike read; where to begin
        total += fired * (0.1 + small(neurons))  # reset; the spike written
        total += updates * (0.1 + 2 * small(neurons))  # bias; potential
    return total / activity[layer].shape[1]


@pytest.mark.parametrize("prices", [*PRICE_LISTS.values(), OWN], ids=lambda prices: prices.name)
@pytest.mark.parametrize("name", CASES)
def test_the_metric_is_a_constant_and_the_penalty(name: str, prices: PriceList) -> None:
    case = CASES[name]
    net = case.build()
    synapses = case.synapses()
    penalties = {p: pj.Penalty(synapses, kind=prices, p=p, normalized=False) for p in (1, 2)}
    assert penalties[1].kind == prices.name
    meter = pj.EnergyMeter(synapses, prices)
    with laid_out(net, case.inputs(3, 5), "calls") as activity:
        meter.update(activity)
    report = meter.compute()
    constant = report.update_joules or 0.0
    assert report.joules > 0
    for p, penalty in penalties.items():
        assert p * penalty(activity).item() == pytest.approx(report.joules, rel=1e-6, abs=0)
        relative = pj.Penalty(
            synapses, kind=prices, p=p, normalized=True
        )  # its coefficient: what all spikes would cost
        coefficient = p * relative.at_one * activity.steps
        assert coefficient * relative(activity).item() == pytest.approx(report.joules, rel=1e-6, abs=0)
    assert (constant + report.joules) * 1e12 == pytest.approx(by_hand(prices, name, activity), rel=1e-9)
    # No spike changes the constant: it is the whole metric of a network that keeps silent.
    silent = pj.Activity(activity.layout)
    for layer in activity:
        for step in activity.by_step(layer):
            silent.record(layer, torch.zeros_like(step))
    meter.reset()
    meter.update(silent)
    nothing = meter.compute()
    assert (nothing.joules, nothing.update_joules) == (0, report.update_joules)
    assert [penalty(silent).item() for penalty in penalties.values()] == [0, 0]
    assert constant * 1e12 == pytest.approx(by_hand(prices, name, silent), rel=1e-9)
    # Both parts are reported, apart.
    assert report.to_dict()["joules"] == report.joules
    assert report.to_dict()["update_joules"] == report.update_joules
    assert ("neuron updates" in str(report)) == (report.update_joules is not None)


@pytest.mark.parametrize("name", WEIGHTS)
def test_psi_comes_apart_by_the_weights_it_reaches(name: str) -> None:
    synapses = CASES[name].synapses()
    for layer, targets in WEIGHTS[name].items():
        assert [(target.weights, target.outputs) for target in synapses[layer].targets] == targets
        whole = sum((target.fan_out for target in synapses[layer].targets), torch.zeros(synapses[layer].shape).long())
        assert torch.equal(whole, synapses[layer].fan_out)
        assert whole.dtype == synapses[layer].fan_out.dtype


@pytest.mark.slow
@pytest.mark.parametrize("psi", ["exact", "uniform", "paper"])
def test_psi_comes_apart_in_the_zoo(psi: Any) -> None:
    net = pj.zoo.create("resnet18")
    synapses = pj.trace(net, torch.zeros(1, 3, 32, 32), psi=psi)
    for layer in synapses.values():
        torch.testing.assert_close(sum(target.fan_out for target in layer.targets), layer.fan_out, rtol=1e-12, atol=0)
    assert [len(layer.targets) for layer in synapses.values()] == [1] * 20


@pytest.mark.parametrize("psi", ["exact", "uniform", "paper"])
def test_psi_comes_apart_over_time(psi: Any) -> None:
    residual = CASES["residual"].build()
    residual.time_axis = 0
    traced = pj.trace(residual, torch.zeros(4, 1, 6), psi=psi, steps=4, time_axis=0)
    assert [[(t.weights, t.outputs) for t in layer.targets] for layer in traced.values()] == [
        [(25, 5), (20, 4)],
        [(20, 4)],
    ]


@pytest.mark.parametrize(
    ("kilobytes", "picojoules"), [(8, 10), (20, 15), (32, 20), (1024, 100), (2048, 100 + 80 * 1024 / 992), (0, 20 / 3)]
)
def test_an_access_is_priced_by_the_size_of_the_memory(kilobytes: int, picojoules: float) -> None:
    assert isinstance(LEMAIRE, hardware.MemoryPriceList)
    assert LEMAIRE.access(kilobytes * 256) * 1e12 == pytest.approx(picojoules)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"multiply": -1.0}, "multiply must be"),
        ({"multiply": math.nan}, "multiply must be"),
        ({"word": 0}, "word must be"),
        ({"memory": ()}, "two or more"),
        ({"memory": ((8192, 1e-11),)}, "two or more"),
        ({"memory": ((8192, 1e-11), (8192, 2e-11))}, "rising"),
        ({"memory": ((8192, 2e-11), (32768, 1e-11))}, "rising"),
        ({"memory": ((8192, 1e-11), (9000, 9e-11))}, "below 0"),
        ({"memory": ((8192, 1e-11), (32768, math.inf))}, "not"),
    ],
)
def test_memories_that_make_no_sense_are_refused(change: dict[str, Any], part: str) -> None:
    assert isinstance(LEMAIRE, hardware.MemoryPriceList)
    with pytest.raises(PicojouleError, match=f"'lemaire-45nm-int32'.*{part}"):
        dataclasses.replace(LEMAIRE, **change)


def test_a_memory_of_unknown_size_has_no_price() -> None:
    by_hand = pj.Layer("a", torch.ones(3, dtype=torch.int64))
    assert OWN(by_hand).tolist() == pytest.approx([53e-12] * 3, rel=1e-12, abs=0)
    with pytest.raises(PicojouleError, match="prices a memory by its size"):
        LEMAIRE(by_hand)


def test_spikes_that_reach_nothing_still_cost_what_a_spike_costs() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), pj.Spike())
    layer = pj.trace(net, torch.zeros(1, 2))["1"]
    assert layer.targets == ()
    assert OWN(layer).tolist() == [50e-12] * 3


# ------------------------------------------------------------------------------------------------------ pruned synapses


@pytest.mark.parametrize("prices", [*PRICE_LISTS.values(), OWN], ids=lambda prices: prices.name)
def test_pruning_lowers_bill_and_penalty_together(prices: PriceList) -> None:
    net = CASES["convolutional"].build()
    images = torch.randn(5, 2, 5, 5)
    with pj.watch(net) as activity:
        net(images)
    found = []
    for amount in (0.0, 0.5, 0.6):  # 0.6 of what the first pruning left is 80 %
        for layer in (net.c2, net.l3):
            prune.l1_unstructured(layer, "weight", amount)
        synapses = CASES["convolutional"].trace(net)
        meter = pj.EnergyMeter(synapses, prices)
        meter.update(activity)  # the same spikes: what falls is ψ
        omega = pj.Penalty(synapses, prices, normalized=False)(activity).item()
        assert omega == pytest.approx(meter.compute().joules, rel=1e-6, abs=0)
        left = [target.weights for layer in synapses.values() for target in layer.targets]
        assert left == [int(net.c2.weight_mask.sum()), int(net.l3.weight_mask.sum())]
        found.append((meter.compute().synops, omega, sum(left)))
    for before, after in itertools.pairwise(found):
        assert all(x > y for x, y in zip(before, after, strict=True))
    assert found[2][2] == pytest.approx(0.2 * found[0][2], rel=0.02)
