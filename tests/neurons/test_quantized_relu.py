"""The quantised ReLU, its gradient, and that it is counted."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import picojoule as pj
from picojoule.neurons.quantized_relu import quantized_relu


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rounds_down_and_knows_nothing_below_zero(dtype: torch.dtype) -> None:
    x = torch.linspace(-4, 40, 353, dtype=torch.float64).to(dtype)
    y = pj.QuantizedReLU()(x)
    assert y.tolist() == [max(0, math.floor(value)) for value in x.tolist()]
    assert y.dtype == dtype


def test_its_gradient_is_that_of_the_relu() -> None:
    x = torch.tensor([-1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, 7.3], requires_grad=True)
    upstream = torch.arange(1.0, 8.0)
    (grad,) = torch.autograd.grad(quantized_relu(x), x, upstream)
    (relu,) = torch.autograd.grad(x.relu(), x, upstream)
    assert grad.tolist() == relu.tolist() == [0, 0, 0, 4, 5, 6, 7]


def test_channels_last_stays_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    y = quantized_relu(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.is_contiguous(memory_format=torch.channels_last)


def test_several_spikes_in_one_value_cost_that_many() -> None:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), pj.QuantizedReLU(), nn.Linear(1, 5, bias=False))
    nn.init.ones_(net[0].weight)
    synapses = pj.trace(net, torch.zeros(1, 1))
    meter, penalty = pj.EnergyMeter(synapses), pj.Penalty(synapses, normalized=False)
    with pj.watch(net) as activity:
        net(torch.tensor([[3.9], [-2.0]]))
    meter.update(activity)
    assert meter.compute().synops == 3 * 5 / 2
    omega = penalty(activity)
    assert omega == 3 * 5 / 2
    omega.backward()
    assert net[0].weight.grad.item() == pytest.approx(3.9 * 5 / 2)  # the silent sample has none
