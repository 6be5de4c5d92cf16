"""The event engine compared with PyTorch: spikes, answers, and the meter's own count of operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.deploy import events

TRIANGLE = pj.surrogate.Triangle()  # which takes a threshold of 0 and below


def lively(net: nn.Module) -> nn.Module:
    """In evaluation mode, with batch norms as training leaves them: any sign, and a channel that was switched off."""
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias, std=0.7)
                with torch.no_grad():
                    module.weight[:2] = 0
                    module.bias[:2] = torch.tensor([2.0, 0.0])[: len(module.bias)]
    return net.eval()


def agree(net: nn.Module, images: Tensor, *, flipped: float = 1e-4, steps: int | None = None) -> events.Engine:
    """Compile and compare: spikes, logits, counts."""
    engine = events.compile(net, images[:1], steps=steps)
    with torch.no_grad(), pj.watch(net, engine.steps) as dense:
        logits = net(images)
    result, own = engine(images), engine.watch(images)
    layers = {name: layer for name, layer in engine.synapses.items() if name in own or not layer.relay}
    differing = sum(int((own[name] != dense[name]).sum()) for name in layers)
    assert differing <= flipped * sum(own[name].numel() for name in layers)
    if not differing:
        torch.testing.assert_close(result.logits, logits, rtol=1e-4, atol=1e-4)
    for name in layers:
        emitted = torch.stack(own.by_step(name)).sum(0)
        assert torch.equal(result.spikes[name], emitted.flatten(1).sum(1).long()), name
    assert result.synops.tolist() == metered(engine.synapses, own)
    return engine


def metered(synapses: pj.Synapses, activity: pj.Activity) -> list[int]:
    """Operations sample by sample, as the meter counts them."""
    totals = sum(
        (torch.stack(activity.by_step(name)).double().sum(0) * layer.fan_out).flatten(1).sum(1)
        for name, layer in synapses.items()
        if layer.fan_out.any()
    )
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    samples = len(activity.by_step(next(iter(activity)))[0])
    counts = totals.long().tolist() if isinstance(totals, Tensor) else [0] * samples
    assert sum(counts) / len(counts) == pytest.approx(meter.compute().synops, rel=1e-12)
    return counts


def small() -> nn.Module:
    return lively(
        nn.Sequential(
            nn.Conv2d(1, 70, 3), nn.BatchNorm2d(70), pj.Spike(), nn.AvgPool2d(2), nn.Conv2d(70, 12, 2), pj.Spike(0.1)
        )
        .append(nn.Flatten())
        .append(nn.Linear(48, 10))
    )
