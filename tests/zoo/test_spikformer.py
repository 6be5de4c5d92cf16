"""Spikformer: its bill against one that is made of what arrives at each layer, and the pairs that meet in attention."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.zoo import Spikformer

STEPS, HEADS, WIDTH = 2, 2, 64
BLOCKS = ("blocks.0", "blocks.1")


@pytest.fixture(scope="module")
def net() -> Spikformer:
    torch.manual_seed(0)
    made = pj.zoo.create("spikformer", neuron=partial(pj.LIF, threshold=0.5), steps=STEPS)
    assert isinstance(made, Spikformer)
    return made


def images(samples: int) -> Tensor:
    return torch.randn(samples, 1, 32, 32, generator=torch.Generator().manual_seed(1))


def reached(conv: nn.Conv2d, spikes: Tensor) -> float:
    """Synapses that these spikes reach in a convolution: its outputs, if all weights were one."""
    ones = nn.functional.conv2d(
        spikes, torch.ones_like(conv.weight), None, conv.stride, conv.padding, conv.dilation, conv.groups
    )
    return ones.double().sum().item()


def test_the_bill_is_what_arrives(net: Spikformer) -> None:
    net.train()  # batch statistics, so that every layer fires
    synapses = pj.trace(net, images(1), steps=STEPS)
    arrived: dict[str, float] = {}

    def arrive(name: str, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        (x,) = args
        assert isinstance(module, nn.Conv2d)
        arrived[name] = reached(module, x)

    convs = {name: module for name, module in net.named_modules() if isinstance(module, nn.Conv2d) and name != "conv1"}
    hooks = [module.register_forward_pre_hook(partial(arrive, name)) for name, module in convs.items()]
    head = net.classify.register_forward_pre_hook(
        lambda module, args: arrived.update(classify=args[0].double().sum().item() * WIDTH * 10)  # mean over 64 tokens
    )
    with pj.watch(net, steps=STEPS) as activity:
        net(images(3))
    for hook in [*hooks, head]:
        hook.remove()
    for block in BLOCKS:
        q, k, v = (activity[f"{block}.attention.{x}.spike"].double().flatten(3) for x in "qkv")  # [T, B, C, tokens]
        k, v = (x.unflatten(2, (HEADS, -1)).sum(3) for x in (k, v))
        arrived[f"{block} pairs"] = (k * v).sum().item()
        arrived[f"{block} read"] = q.sum().item() * WIDTH / HEADS
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    report = meter.compute()
    assert all(arrived.values())
    assert report.synops == pytest.approx(sum(arrived.values()) / 3, rel=1e-6)
    pairs = {layer.name: layer.synops for layer in report.layers if synapses[layer.name].product}
    assert list(pairs.values()) == [pytest.approx(arrived[f"{block} pairs"] / 3) for block in BLOCKS]
    assert pj.Penalty(synapses, normalized=False)(activity).item() == pytest.approx(report.synops, rel=1e-5)


def test_only_its_first_convolution_multiplies(net: Spikformer) -> None:
    synapses = pj.trace(net, images(1), steps=STEPS, strict=True)
    assert synapses.analog_macs == 0
    assert synapses.encoder_macs == STEPS * reached(net.conv1, torch.ones(1, 1, 32, 32))
    assert pj.Penalty(synapses, normalized=False).at_one == synapses.synapses
    assert [layer.synapses for layer in synapses.products] == [64 * WIDTH * WIDTH // HEADS] * 2


def test_only_pairs_charge_keys_and_values(net: Spikformer) -> None:
    """No synapse is behind them: what a penalty takes from them, it takes from the spikes that meet."""
    synapses = pj.trace(net, images(1), steps=STEPS)
    with pj.watch(net.train(), steps=STEPS) as activity:
        net(images(2))
    shares = pj.Penalty(synapses).by_layer(activity)
    pairs = [layer.name for layer in synapses.products]
    for i, block in enumerate(BLOCKS):
        for x in "kv":
            assert not synapses[f"{block}.attention.{x}.spike"].fan_out.any()
            weight = net.get_submodule(f"{block}.attention.{x}.conv").get_parameter("weight")
            (gradient,) = torch.autograd.grad(shares[pairs[i]], weight, retain_graph=True)
            assert gradient.any()


def test_its_twin_has_the_same_parameters() -> None:
    twin, net = (pj.zoo.create("spikformer", neuron=neuron) for neuron in (nn.ReLU, pj.Spike))
    assert {n: p.shape for n, p in twin.named_parameters()} == {n: p.shape for n, p in net.named_parameters()}
    assert twin(images(2)).shape == (2, 10)
