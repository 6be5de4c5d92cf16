"""The meter as a torchmetrics metric: the same numbers as the meter's, batch by batch and over processes."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import picojoule as pj
from picojoule.errors import PicojouleError


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), pj.Spike(0.1), nn.Linear(8, 5), pj.Spike(0.1), nn.Linear(5, 3))


def seen(net: nn.Module, samples: int) -> pj.Activity:
    with pj.watch(net) as activity:
        net(torch.randn(samples, 6))
    return activity


def test_it_counts_what_the_meter_counts_over_processes(net: nn.Module) -> None:
    synapses = pj.trace(net, torch.zeros(1, 6))
    meter, here, there = pj.EnergyMeter(synapses), pj.EnergyMetric(synapses), pj.EnergyMetric(synapses)
    for metric, samples in ((here, 7), (here, 3), (there, 5)):
        activity = seen(net, samples)
        meter.update(activity)
        metric.update(activity)
    for name, reduce in here._reductions.items():  # as torchmetrics does between processes
        setattr(here, name, reduce(torch.stack([getattr(here, name), getattr(there, name)])))
    report, computed = meter.compute(), here.compute()
    assert here.report().to_dict() == report.to_dict()
    assert computed["synops"].item() == report.synops
    assert computed["joules"].item() == report.joules
    assert computed["total_joules"].item() == report.total_joules
    assert computed["dead_rate"].item() == report.dead_rate


def test_it_resets_and_is_pickled_and_refuses_nothing_counted(net: nn.Module) -> None:
    metric = pj.EnergyMetric(pj.trace(net, torch.zeros(1, 6)), "loihi")
    metric.update(seen(net, 4))
    assert "total_joules" not in metric.compute()  # Loihi has no price for the encoder
    again = pickle.loads(pickle.dumps(metric))
    assert again.compute()["synops"] == metric.compute()["synops"]
    metric.reset()
    with pytest.raises(PicojouleError, match="nothing was counted yet"):
        metric.report()
