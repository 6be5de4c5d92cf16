"""The table that a paper needs: all that a network costs, beside its twin, for several chips."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import picojoule as pj
import tiny
from command_line import Command
from picojoule.errors import PicojouleError


@pytest.fixture
def meter() -> pj.EnergyMeter:
    """5 inputs, 4 neurons that fire always, 3 outputs: 12 operations, 20 MACs of the encoder, 32 of the twin."""
    net = nn.Sequential(nn.Linear(5, 4), pj.Spike(), nn.Linear(4, 3))
    with torch.no_grad():
        net[0].bias.fill_(100.0)
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 5)))
    with pj.watch(net) as activity:
        net(torch.zeros(2, 5))
    meter.update(activity)
    return meter


def test_the_total_has_the_encoder_and_the_updates(meter: pj.EnergyMeter) -> None:
    report = meter.compute()
    assert report.joules == pytest.approx(12 * 0.9e-12)
    assert report.total_joules == pytest.approx(12 * 0.9e-12 + 20 * 4.6e-12)
    assert report.ann_ratio == pytest.approx((12 * 0.9 + 20 * 4.6) / (32 * 4.6))
    assert report.unpriced == ("updates of neurons",)
    assert sum(report.shares.values()) == pytest.approx(1)
    assert report.synops_per_synapse == 1.0
    fields = report.to_dict()
    assert fields["total_joules"] == report.total_joules
    assert fields["ann_ratio"] == report.ann_ratio
    assert fields["total_shares"] == {
        "spikes": pytest.approx(12 * 0.9 / (12 * 0.9 + 20 * 4.6)),
        "encoder": pytest.approx(20 * 4.6 / (12 * 0.9 + 20 * 4.6)),
    }
    assert "Everything together: 103 pJ" in " ".join(str(report).split())
    assert "0.15 to 1.38" in " ".join(str(report).split())


def test_a_total_without_a_price_for_the_encoder_is_a_dash(meter: pj.EnergyMeter) -> None:
    report = meter.compute("loihi")
    assert report.update_joules == 4 * 81e-12
    assert report.total_joules is None
    assert report.ann_ratio is None
    rows = {row[0]: row[-1] for row in csv.reader(io.StringIO(report.csv()))}
    assert (rows["encoder"], rows["all together"], rows["dense ReLU twin"]) == ("–", "–", "–")
    assert float(rows["neuron updates"]) == pytest.approx(324 / 1000 if "[nJ]" in report.csv() else 324)


def test_several_chips_stand_side_by_side(meter: pj.EnergyMeter) -> None:
    both = meter.compute(["horowitz-45nm-fp32", "loihi"])
    head, *rows = list(csv.reader(io.StringIO(both.csv())))
    assert head == ["layer", "horowitz-45nm-fp32 [pJ]", "loihi [pJ]"]
    by_name = {row[0]: row[1:] for row in rows}
    assert [float(each) for each in by_name["1 Spike"]] == pytest.approx([10.8, 12 * 27.1])
    assert by_name["neuron updates"] == ["–", "324"]
    assert by_name["all together"] == ["102.8", "–"]
    ratio, unpriced = by_name["times the dense ReLU twin"]
    assert (float(ratio), unpriced) == (pytest.approx(0.698, abs=5e-4), "–")
    latex = both.latex()
    assert latex.startswith(r"\begin{tabular}")
    assert "1 Spike & 10.800 & 325.200" in latex
    assert " 0.000" not in latex
    assert "<td>324.000</td>" in both._repr_html_()
    assert "<table>" in meter.compute()._repr_html_()
    alone = meter.compute()
    assert r"\toprule" in alone.latex()
    for text in (latex, alone.latex()):
        assert text.splitlines()[-1].startswith("% energy per sample, T = ")
        assert alone.break_even() in text.splitlines()[-1]
    with pytest.raises(PicojouleError, match="an empty list"):
        meter.compute([])
    assert [each.joules for each in meter.compute(("horowitz-45nm-fp32", pj.hardware.get("loihi")))] == [
        meter.compute("horowitz-45nm-fp32").joules,
        meter.compute("loihi").joules,
    ]
    wrong: Any
    for wrong in ([["loihi"]], (None,), [3]):
        with pytest.raises(PicojouleError, match="hardware is a name or a PriceList, not"):
            meter.compute(wrong)
    for wrong in (3, {"loihi"}, {"loihi": 1}):
        with pytest.raises(PicojouleError, match="hardware is a name, a PriceList or a sequence of them, not"):
            meter.compute(wrong)


def test_the_table_by_layers_of_weights_has_the_twin_beside_each() -> None:
    """conv1 6×6 of 1→2 channels (input), conv2 of 2→3 and a shortcut of the same spikes, then a linear layer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.spike1 = nn.Conv2d(1, 2, 1), pj.Spike()
            self.conv2, self.skip, self.spike2 = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1), pj.Spike()
            self.head = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spikes = self.spike1(self.conv1(x))
            out: torch.Tensor = self.head(self.spike2(self.conv2(spikes) + self.skip(spikes)))
            return out

    net = Net()
    with torch.no_grad():
        for conv in (net.conv1, net.conv2):
            conv.bias.fill_(100.0)
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 1, 6, 6)))
    with pj.watch(net) as activity:
        net(torch.zeros(2, 1, 6, 6))
    meter.update(activity)
    report = meter.compute()
    by_name = {row[0]: row[1:] for row in csv.reader(io.StringIO(report.csv("weights")))}
    assert by_name["conv1"][:2] == ["–", "72"]
    assert [by_name[name][0] for name in ("conv2", "skip", "head.1 Linear")] == ["216", "216", "432"]
    assert report.joules == pytest.approx(sum(each.joules for each in report.weights))
    assert report.ann_joules == pytest.approx(sum(each.ann_joules or 0.0 for each in report.weights))
    assert [each.layer.macs for each in report.weights] == [72, 216, 216, 432]
    unit = 1e9 if "[nJ]" in report.csv("weights") else 1e12
    assert float(by_name["conv1"][3]) == pytest.approx(72 * 4.6e-12 * unit)
    assert float(by_name["all together"][2]) == pytest.approx((report.total_joules or 0.0) * unit)
    both = meter.compute(["horowitz-45nm-fp32", "loihi"])
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(both.csv("weights")))}
    assert rows["conv1"][1] == "–"  # Loihi has no price for the encoder
    assert rows["conv2"][1] != "–"
    for price in ("lemaire-45nm-int32", pj.hardware.PriceList(name="mine", accumulate=1e-12, spike=1e-12, source="me")):
        assert "spikes as such" in meter.compute(price).csv("weights")
    wrong: Any = "wheights"
    with pytest.raises(PicojouleError, match="did you mean 'weights'"):
        report.latex(wrong)
    by_hand = pj.Synapses(
        {"spike1": pj.Layer("spike1", torch.ones(2, 6, 6))},
        psi="exact",
        input_shape=(1, 6, 6),
        steps=1,
        encoder_macs=0,
        dense_macs=0,
    )
    other = pj.EnergyMeter(by_hand)
    other.update(activity)
    with pytest.raises(PicojouleError, match="ψ was written by hand"):
        other.compute().latex("weights")


def test_memory_prices_charge_the_leak() -> None:
    updates = []
    for neuron in (pj.IF, pj.LIF):
        net = nn.Sequential(nn.Linear(5, 4), neuron(steps=1), nn.Linear(4, 3))
        meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 5)), "lemaire-45nm-int32")
        with pj.watch(net) as activity:
            net(torch.ones(2, 5))
        meter.update(activity)
        updates.append(meter.compute().update_joules or 0.0)
    assert updates[1] - updates[0] == pytest.approx(4 * 3.1e-12)


def test_evaluate_prints_chips_and_latex(tmp_path: Path, command: Command) -> None:
    run = pj.fit(tiny.recipe("training.epochs=1"), tmp_path)
    assert run.result.test.total_joules is not None
    assert run.result.test.total_joules > (run.result.test.joules or 0)
    status, out, _ = command("evaluate", run.path, "--trust", "--hardware", "all", "--latex")
    assert (status, out.count("tabular")) == (0, 2)
    assert len(out.splitlines()) > 8
    assert all(name in out for name in pj.hardware.names())
    status, out, _ = command("evaluate", run.path, "--trust", "--hardware", "loihi,spinnaker2", "--json")
    assert [chip["hardware"] for chip in json.loads(out)["chips"]] == ["loihi", "spinnaker2"]
    status, out, _ = command("evaluate", run.path, "--trust", "--by", "weights", "--csv")
    assert status == 0
    assert out.splitlines()[1].startswith("conv1,–,")
    status, _, err = command("evaluate", run.path, "--trust", "--hardware", "lohi")
    assert status == 2
    assert "did you mean 'loihi'" in err
    status, _, err = command("evaluate", run.path, "--trust", "--latex", "--csv")
    assert status == 2
