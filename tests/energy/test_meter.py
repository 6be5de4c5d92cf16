"""The bill: exact integers, streaming, priced apart, against loops in plain Python."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import Tensor, nn

import picojoule as pj
from networks import CASES, LAYOUTS, Chain, laid_out, linear, metered, metered_in_a_process, relayed
from picojoule.errors import PicojouleError
from picojoule.spikes.layout import TimeLayout

each_case = pytest.mark.parametrize("name", CASES)


def recorded(net: nn.Module, x: Tensor) -> pj.Activity:
    with pj.watch(net) as activity:
        net(x)
    return activity


def events(synaptic: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Sequential, pj.Synapses]:
    """Spikes fed straight into one layer of synapses."""
    net = nn.Sequential(pj.declare_spiking(nn.Identity()), synaptic)
    return net, pj.trace(net, torch.zeros(1, *shape))


def bill(net: nn.Module, synapses: pj.Synapses, *batches: Tensor) -> pj.EnergyReport:
    meter = pj.EnergyMeter(synapses)
    for x in batches:
        meter.update(recorded(net, x))
    return meter.compute()


def by_hand(fan_out: Tensor, steps: int = 1, **options: Any) -> pj.Synapses:
    """Synapses of one layer `s` without a network."""
    return pj.Synapses(
        {"s": pj.Layer("s", fan_out)},
        **{"psi": "exact", "input_shape": (1,), "steps": steps, "encoder_macs": 0, "dense_macs": 0, **options},
    )


def emitted(spikes: Tensor, layer: str = "s", steps: int = 1, **options: Any) -> pj.Activity:
    activity = pj.Activity(TimeLayout(steps, time_axis=0 if steps > 1 else None))
    activity.record(layer, spikes, **options)
    return activity


# ------------------------------------------------------------------------------------------------ the peers' numbers


@pytest.mark.parametrize(
    ("synaptic", "spikes", "synops"),
    [
        (nn.Linear(4, 3), torch.tensor([[1.0, 0.0, 1.0, 0.0]]), 6),
        (nn.Linear(3, 5), torch.tensor([[1.0, 2.0, 0.0], [1.0, 1.0, 3.0]]), 20),
        (nn.Conv2d(1, 5, 2), torch.eye(3).view(1, 1, 3, 3), 30),
        (nn.Conv2d(1, 1, 3), torch.ones(1, 1, 12, 12), 900),
    ],
    ids=["SpikingJelly", "sinabs linear", "sinabs conv", "NeuroBench conv"],
)
def test_reference_numbers_of_the_peers(synaptic: nn.Module, spikes: Tensor, synops: int) -> None:
    report = bill(*events(synaptic, tuple(spikes.shape[1:])), spikes)
    assert report.synops == synops
    assert report.joules == pytest.approx(synops * 0.9e-12, rel=1e-15)
    assert report.encoder_macs == 0


def test_reference_number_over_time() -> None:
    net, synapses = events(nn.Linear(20, 5), (20,))
    with pj.watch(net, steps=10, time_axis=1) as activity:
        net(torch.ones(5, 10, 20))
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    assert meter.compute().synops == 1000


def test_reference_number_of_a_dense_input() -> None:
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike())
    report = bill(net, pj.trace(net, torch.zeros(1, 4)), torch.full((2, 4), 0.5))
    assert report.encoder_macs == 12
    assert report.encoder_joules is not None
    assert report.encoder_joules * report.samples == pytest.approx(110.4e-12)
    assert report.joules == 0


# ------------------------------------------------------------------------------------------------ against plain loops


@each_case
@pytest.mark.parametrize("layout", ["calls", "folded batch"])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_whole_bill_by_hand(name: str, layout: str, steps: int) -> None:
    case = CASES[name]
    net = case.build()
    synapses = case.synapses()
    meter = pj.EnergyMeter(synapses)
    totals: dict[str, float] = {}
    fired: dict[str, Tensor] = {}
    for samples in (4, 1, 2):
        with laid_out(net, case.inputs(steps, samples), layout) as activity:
            meter.update(activity)
        for layer, operations in case.by_hand(activity).items():
            totals[layer] = totals.get(layer, 0) + operations
            spikes = activity[layer].detach().double().reshape(-1, *synapses[layer].shape).sum(0)
            fired[layer] = fired.get(layer, torch.zeros_like(spikes)) + spikes
    report = meter.compute()
    assert (report.samples, report.steps, report.psi, report.prices.name) == (7, steps, "exact", "horowitz-45nm-fp32")
    assert [layer.name for layer in report.layers] == list(synapses)
    for layer in report.layers:
        assert layer.synops == totals[layer.name] / 7
        assert layer.joules == pytest.approx(totals[layer.name] / 7 * 0.9e-12, rel=1e-15)
    neurons = {n: f for n, f in fired.items() if not synapses[n].relay}
    rates = {n: f.sum().item() / (f.numel() * 7 * steps) for n, f in neurons.items()}
    dead = {n: sum(value == 0 for value in f.flatten().tolist()) for n, f in neurons.items()}
    assert {layer.name: layer.rate for layer in report.layers if layer.rate is not None} == pytest.approx(rates)
    assert all(0 < rate < 1 for rate in rates.values())
    assert {layer.name: layer.dead for layer in report.layers if layer.neurons} == dead
    assert report.rate_sum == pytest.approx(sum(rates.values()))
    assert report.rate_mean == pytest.approx(sum(rates.values()) / len(rates))
    assert report.dead_rate == pytest.approx(sum(dead.values()) / sum(f.numel() for f in neurons.values()))
    assert report.synops == pytest.approx(sum(totals.values()) / 7, rel=1e-15)
    assert report.joules == pytest.approx(0.9e-12 * sum(totals.values()) / 7)
    assert report.encoder_macs == case.encoder_macs * steps
    assert report.encoder_joules == pytest.approx(case.encoder_macs * steps * 4.6e-12)
    assert report.dense_macs == case.encoder_macs + case.inner_macs
    assert report.ann_joules == pytest.approx(report.dense_macs * 4.6e-12)


@each_case
@pytest.mark.parametrize("psi", ["uniform", "paper"])
def test_other_conventions_weigh_the_same_spikes(name: str, psi: str) -> None:
    case = CASES[name]
    net, x = case.build(), case.inputs(6)
    synapses = case.synapses(psi)
    activity = recorded(net, x)
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    report = meter.compute()
    assert report.psi == psi
    for layer in report.layers:
        fan_out = synapses[layer.name].fan_out.tolist()
        counts = activity[layer.name].sum(0).tolist()
        flat = zip(torch.tensor(fan_out).flatten().tolist(), torch.tensor(counts).flatten().tolist(), strict=True)
        assert layer.synops == pytest.approx(sum(w * c for w, c in flat) / 6)


def test_a_dead_neuron_is_silent_in_every_step_of_every_sample() -> None:
    synapses = by_hand(torch.ones(4, dtype=torch.int64))
    meter = pj.EnergyMeter(synapses)
    spikes = torch.zeros(2, 3, 4)
    spikes[1, 2, 0] = spikes[0, 0, 1] = 1
    meter.update(emitted(spikes, steps=2))
    later = torch.zeros(2, 1, 4)
    later[1, 0, 2] = 5
    meter.update(emitted(later, steps=2))
    (layer,) = meter.compute().layers
    assert (layer.dead, layer.dead_rate) == (1, 0.25)
    assert layer.rate == 7 / (4 * 4 * 2)


# ----------------------------------------------------------------------------------------------------- exact integers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("largest", [1, 2**12 + 1, 2**24 - 1])
def test_totals_are_exact_integers(largest: int, dtype: torch.dtype) -> None:
    fan_out = torch.randint(1, 2**20, (3, 5))
    meter = pj.EnergyMeter(by_hand(fan_out))
    total, samples = 0, 0
    for batch in (1, 70, 301):
        spikes = torch.randint(0, largest + 1, (batch, 3, 5))
        spikes[0] = largest
        meter.update(emitted(spikes.to(dtype)))
        samples += batch
        for sample in spikes.tolist():
            for row, weights in zip(sample, fan_out.tolist(), strict=True):
                total += sum(s * w for s, w in zip(row, weights, strict=True))
    assert largest == 1 or total > 2**24
    assert meter.compute().synops == total / samples


def test_totals_beyond_what_doubles_can_hold() -> None:
    fan_out = torch.tensor([2**31 + 1, 2**30 - 1])
    meter = pj.EnergyMeter(by_hand(fan_out))
    total = 0
    for count in (2**22 + 1, 2**23 - 3, 3, 2**21 + 7):  # the sums over one neuron pass 2^24, the total passes 2^53
        meter.update(emitted(torch.tensor([[count, count - 1]])))
        total += count * (2**31 + 1) + (count - 1) * (2**30 - 1)
    assert 2**53 < total < 2**63
    assert float(total) != total
    state = meter.state_dict()["counts.s"]
    assert state.dtype == torch.int64
    assert sum(c * w for c, w in zip(state.tolist(), fan_out.tolist(), strict=True)) == total
    assert meter.compute().synops == total / 4


@pytest.mark.parametrize("batch", [100, 257, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_dense_spikes_are_exact_in_every_form(
    batch: int, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    meter = pj.EnergyMeter(by_hand(torch.full((2, 3, 5), 7)))
    spikes = torch.ones(batch, 2, 3, 5).to(dtype).contiguous(memory_format=memory_format)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        meter.update(emitted(spikes, binary=True))
        meter.update(emitted(spikes))
    assert meter.compute().synops == 7 * 30
    assert meter.state_dict()["counts.s"].tolist() == (torch.full((2, 3, 5), 2 * batch)).tolist()


def test_bf16_networks_are_billed_for_the_spikes_they_emit() -> None:
    case = CASES["convolutional"]
    net, x = case.build(), case.inputs(5).contiguous(memory_format=torch.channels_last)
    synapses = case.trace(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        activity = recorded(net.to(memory_format=torch.channels_last), x)
        meter = pj.EnergyMeter(synapses)
        meter.update(activity)
    assert activity["s1"].dtype == torch.bfloat16
    assert {layer.name: layer.synops * 5 for layer in meter.compute().layers} == pytest.approx(case.by_hand(activity))


def test_several_spikes_in_one_value_count_that_many_times() -> None:
    net, synapses = events(nn.Linear(2, 3), (2,))
    assert bill(net, synapses, torch.tensor([[4.0, 0.0]])).synops == 12


# ------------------------------------------------------------------------------------------------- streaming, merging


@each_case
def test_streaming_in_any_order_is_one_shot(name: str) -> None:
    case = CASES[name]
    net, x = case.build().eval(), case.inputs(11)
    synapses = case.synapses()
    parts = [x[:1], x[1:6], x[6:]]
    whole = bill(net, synapses, x).to_dict()
    assert bill(net, synapses, *parts).to_dict() == whole
    assert bill(net, synapses, *reversed(parts)).to_dict() == whole
    meters = [pj.EnergyMeter(synapses) for _ in parts]
    for meter, part in zip(meters, parts, strict=True):
        meter.update(recorded(net, part))
    for other in meters[:0:-1]:
        meters[0].merge(other)
    assert meters[0].compute().to_dict() == whole


def test_a_merge_leaves_the_other_meter_alone() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    a, b = pj.EnergyMeter(synapses), pj.EnergyMeter(synapses)
    b.update(recorded(net, torch.randn(3, 6)))
    before = b.compute().to_dict()
    a.merge(b)
    a.update(recorded(net, torch.randn(3, 6)))
    assert b.compute().to_dict() == before
    assert a.compute().samples == 6


def test_state_goes_to_another_meter_and_back() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    meter, copy = pj.EnergyMeter(synapses), pj.EnergyMeter(synapses)
    meter.update(recorded(net, torch.randn(5, 6)))
    state = meter.state_dict()
    assert all(not value.is_floating_point() for value in state.values())
    copy.load_state_dict(state)
    before = meter.compute().to_dict()
    assert copy.compute().to_dict() == before
    copy.update(recorded(net, torch.randn(5, 6)))
    assert meter.compute().to_dict() == before
    assert all(torch.equal(value, meter.state_dict()[key]) for key, value in state.items())


def test_an_empty_state_stays_empty() -> None:
    synapses = CASES["linear"].trace(linear())
    meter = pj.EnergyMeter(synapses)
    meter.load_state_dict(pj.EnergyMeter(synapses).state_dict())
    with pytest.raises(PicojouleError, match="nothing was counted"):
        meter.compute()


@pytest.mark.parametrize(
    "change", [lambda s: s.pop("counts.s1"), lambda s: s.pop("samples_and_steps"), lambda s: s.update(x=s["counts.s1"])]
)
def test_a_foreign_state_is_refused(change: Callable[[dict[str, Tensor]], object]) -> None:
    meter = pj.EnergyMeter(CASES["linear"].trace(linear()))
    state = meter.state_dict()
    change(state)
    with pytest.raises(PicojouleError, match="another network"):
        meter.load_state_dict(state)


def test_only_meters_of_one_kind_merge() -> None:
    net = linear()
    case = CASES["linear"]
    meter = pj.EnergyMeter(case.trace(net))
    meter.update(recorded(net, torch.randn(2, 6)))
    before = meter.compute().to_dict()
    longer = pj.EnergyMeter(case.trace(net))
    with laid_out(net, torch.randn(2, 3, 6), "calls") as activity:
        longer.update(activity)
    others = [
        pj.EnergyMeter(case.trace(net, "uniform")),
        pj.EnergyMeter(CASES["residual"].trace(CASES["residual"].build())),
    ]
    for other in (longer, *others):
        with pytest.raises(PicojouleError, match="differ in network, ψ convention or number of time steps"):
            meter.merge(other)
    assert meter.compute().to_dict() == before


def test_reset_forgets_everything() -> None:
    net = linear()
    meter = pj.EnergyMeter(CASES["linear"].trace(net))
    meter.update(recorded(net, torch.randn(2, 6)))
    meter.reset()
    with pytest.raises(PicojouleError, match="nothing was counted yet"):
        meter.compute()


@pytest.mark.slow
def test_two_processes_count_what_one_does(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(metered_in_a_process, (2, tmp_path), nprocs=2)
    one = metered(slice(None))
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert whole.keys() == one.state_dict().keys()
    assert all(torch.equal(value, whole[key]) for key, value in one.state_dict().items())


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("spikes", "match"),
    [
        (torch.tensor([[0.5, 1.0]]), "not whole numbers"),
        (torch.tensor([[0.5, 1.0], [0.5, 0.0]]), "not whole numbers"),
        (torch.tensor([[0.25, 0.0], [0.75, 0.0]], dtype=torch.float64), "not whole numbers"),
        (torch.tensor([[1.5, 1.0], [0.5, 0.0]], dtype=torch.bfloat16), "not whole numbers"),
        (torch.tensor([[-1.0, 1.0]]), "negative values or NaN"),
        (torch.tensor([[-1.0, 0.0], [1.0, 0.0]]), "negative values or NaN"),
        (torch.tensor([[-1, 0], [1, 0]]), "negative values or NaN"),
        (torch.tensor([[float("nan"), 1.0]]), "negative values or NaN"),
        (torch.tensor([[float("inf"), 1.0]]), "infinite"),
        (torch.tensor([[2.0**53, 1.0]], dtype=torch.float64), "2\\^53"),
    ],
)
@pytest.mark.parametrize("steps", [1, 2])
def test_values_that_are_no_spikes_are_refused_and_change_nothing(spikes: Tensor, match: str, steps: int) -> None:
    """The wrong values stand in the second of two layers, and in the last step."""
    layers = {"a": pj.Layer("a", torch.ones(2)), "b": pj.Layer("b", torch.ones(2))}
    synapses = pj.Synapses(layers, psi="exact", input_shape=(1,), steps=1, encoder_macs=0, dense_macs=0)
    meter = pj.EnergyMeter(synapses)

    def activity(last: Tensor) -> pj.Activity:
        block = pj.Activity(TimeLayout(steps))
        for step in range(steps):
            block.record("a", torch.ones_like(last))
            block.record("b", last if step == steps - 1 else torch.ones_like(last))
        return block

    meter.update(activity(torch.ones(3, 2)))
    before = meter.compute().to_dict()
    with pytest.raises(PicojouleError, match=match) as caught:
        meter.update(activity(spikes))
    assert "'b'" in str(caught.value)
    assert meter.compute().to_dict() == before


def test_another_number_of_steps_is_refused() -> None:
    net = linear()
    meter = pj.EnergyMeter(CASES["linear"].trace(net))
    meter.update(recorded(net, torch.randn(2, 6)))
    before = meter.compute().to_dict()
    with (
        laid_out(net, torch.randn(3, 2, 6), "calls") as activity,
        pytest.raises(PicojouleError, match="1 time steps and got 3"),
    ):
        meter.update(activity)
    assert meter.compute().to_dict() == before


def test_nothing_counted_is_no_bill() -> None:
    net = linear()
    meter = pj.EnergyMeter(CASES["linear"].trace(net))
    with pytest.raises(PicojouleError, match="nothing was counted yet"):
        meter.compute()
    meter.update(recorded(net, torch.zeros(0, 6)))
    with pytest.raises(PicojouleError, match="nothing was counted yet"):
        meter.compute()


def test_unknown_hardware_is_refused_before_anything_is_counted() -> None:
    synapses = CASES["linear"].trace(linear())
    with pytest.raises(PicojouleError, match=r"unknown hardware 'loihi3'.*loihi"):
        pj.EnergyMeter(synapses, hardware="loihi3")


# -------------------------------------------------------------------------------------------------------------- prices


@pytest.mark.parametrize("hardware", pj.hardware.names())
def test_one_count_by_every_price_list(hardware: str) -> None:
    net = relayed()
    synapses = CASES["relayed"].trace(net)
    prices = pj.hardware.get(hardware)
    meter, other = pj.EnergyMeter(synapses), pj.EnergyMeter(synapses, hardware)
    with laid_out(net, torch.randn(2, 3, 1, 6, 6), "calls") as activity:
        meter.update(activity)
        other.update(activity)
    report = meter.compute(hardware)
    assert report == meter.compute().priced(hardware) == other.compute() == meter.compute().priced(prices)
    assert report.synops == meter.compute().synops
    macs, update = prices.multiply_accumulate, prices.neuron_update
    assert report.encoder_joules == (None if macs is None else report.encoder_macs * macs)
    assert report.ann_joules == (None if macs is None else report.dense_macs * macs)
    if type(prices) is pj.hardware.PriceList:  # those that price memory have tests of their own
        assert report.joules == pytest.approx(report.synops * prices.accumulate, rel=1e-12, abs=0)
        by_hand = None if update is None else pytest.approx((3 * 4 * 4 + 4 * 3 * 3) * 2 * update, rel=1e-12, abs=0)
        assert report.update_joules == by_hand
        assert ("neuron updates" in str(report)) == (update is not None)
    assert ("not priced" in str(report)) == (macs is None)
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_price_list_of_ones_own() -> None:
    net, synapses = events(nn.Linear(4, 3), (4,))
    mine = pj.hardware.PriceList(name="my [chip]", accumulate=1.0, source="the test")
    report = bill(net, synapses, torch.ones(1, 4)).priced(mine)
    assert report.joules == 12
    assert "my [chip]" in str(report)


# ------------------------------------------------------------------------------------------------------------ reports


ENERGY_FIELDS = set(
    "samples joules synops encoder_macs encoder_joules ann_joules update_joules total_joules total_shares "
    "ann_ratio synops_per_synapse rate_mean rate_sum dead_rate analog_macs analog_joules unit_synops analog "
    "steps psi hardware layers".split()
)


@each_case
def test_the_report_as_a_dictionary(name: str) -> None:
    case = CASES[name]
    net = case.build()
    report = bill(net, case.synapses(), case.inputs(3))
    fields = report.to_dict()
    assert set(fields) == ENERGY_FIELDS
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields
    for layer, row in zip(report.layers, fields["layers"], strict=True):
        assert list(row) == ["name", "neurons", "synops", "joules", "rate", "dead_rate"]
        assert list(row.values()) == [
            layer.name,
            layer.neurons,
            layer.synops,
            layer.joules,
            layer.rate,
            layer.dead_rate,
        ]
    assert fields["joules"] == pytest.approx(sum(row["joules"] for row in fields["layers"]))
    for key in ENERGY_FIELDS - {"layers", "hardware", "analog", "total_shares"}:
        assert fields[key] == getattr(report, key)
    assert fields["total_shares"] == report.shares
    assert fields["hardware"] == "horowitz-45nm-fp32"


@pytest.mark.parametrize("psi", ["exact", "uniform", "paper"])
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if "axis" not in layout])
def test_the_table_states_its_conventions(psi: str, layout: str) -> None:
    case = CASES["relayed"]
    net = case.build()
    meter = pj.EnergyMeter(case.synapses(psi), "horowitz-45nm-fp16")
    with laid_out(net, case.inputs(4, 3), layout) as activity:
        meter.update(activity)
    text = str(meter.compute())
    for statement in (
        "per sample",
        "mean of 3",
        "T = 4",
        f"ψ {psi}",
        "horowitz-45nm-fp16",
        "encoder",
        "dense ReLU twin",
        "relay",
    ):
        assert statement in text, statement
    for layer in ("s1", "pool", "s2", "total"):
        assert layer in text


def test_a_silent_network_has_a_bill_of_nothing() -> None:
    net = Chain(l1=nn.Linear(6, 5), s1=pj.Spike(threshold=1e9), l2=nn.Linear(5, 4))
    report = bill(net, pj.trace(net, torch.zeros(1, 6)), torch.randn(3, 6))
    assert (report.joules, report.synops, report.rate_mean, report.dead_rate) == (0, 0, 0, 1)
    assert "0 J" in str(report)


def test_a_hook_that_changes_what_a_neuron_emits_is_noticed() -> None:
    net = nn.Sequential(nn.Linear(4, 4), pj.Spike(0.01), nn.Linear(4, 2))
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 4)))
    net[1].register_forward_hook(lambda module, args, output: 0.5 * torch.ones_like(output))
    with pj.watch(net) as activity:
        net(torch.zeros(3, 4))
    with pytest.raises(pj.PicojouleError, match="not whole numbers of spikes"):
        meter.update(activity)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda synapses: pj.EnergyMeter(nn.Linear(2, 2)),
        lambda synapses: pj.EnergyMeter(synapses, 3),
        lambda synapses: pj.Penalty(nn.Linear(2, 2)),
        lambda synapses: pj.Penalty(synapses, p="2"),
        lambda synapses: pj.Penalty(synapses, kind=["syn"]),
        lambda synapses: pj.Spike("1"),
        lambda synapses: pj.surrogate.S3NN("x"),
        lambda synapses: pj.hardware.PriceList(name="a", accumulate="2", source="b"),
        lambda synapses: pj.watch(print).__enter__(),
    ],
)
def test_values_of_the_wrong_kind(mistake: Any) -> None:
    net = nn.Sequential(nn.Linear(4, 4), pj.Spike(), nn.Linear(4, 2))
    with pytest.raises(pj.PicojouleError):
        mistake(pj.trace(net, torch.zeros(1, 4)))


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    net = relayed()
    meter, penalty = pj.EnergyMeter(synapses := pj.trace(net, torch.zeros(1, 1, 6, 6))), pj.Penalty(synapses)

    def alive(batches: int) -> int:
        for _ in range(batches):
            activity = recorded(net, torch.randn(8, 1, 6, 6))
            penalty(activity).backward()
            meter.update(activity)
        del activity
        gc.collect()
        # By type: isinstance would ask deprecated objects of PyTorch for their class, which warn.
        tensors = (x for x in gc.get_objects() if issubclass(type(x), Tensor) and not nn.parameter.is_lazy(x))
        # Sparse ones, left by other tests, have no storage.
        return sum(x.untyped_storage().nbytes() for x in tensors if x.layout == torch.strided)

    after_two = alive(2)
    assert alive(20) == after_two
