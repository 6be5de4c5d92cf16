"""Networks of the zoo that fire at a given rate, without training: to measure where no trained network is at hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import picojoule as pj


@torch.no_grad()
def firing_at(name: str, rate: float, images: Tensor, seed: int = 0) -> nn.Module:
    """Random weights, and batch norms set layer by layer so that each spiking layer fires at `rate` on these images.

    Channels differ as they do after training: each has a preference of its own, so that few of them do most of it.
    """
    torch.manual_seed(seed)
    net = pj.zoo.create(name).eval()
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.register_forward_hook(lambda norm, args, _: _calibrated(norm, args[0], rate))
    net(images)
    for norm in norms:
        norm._forward_hooks.clear()
    return net


def _calibrated(norm: nn.modules.batchnorm._BatchNorm, currents: Tensor, rate: float) -> Tensor:
    axes = [axis for axis in range(currents.dim()) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(currents.dim())]
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(currents.mean(axes))
    norm.running_var.copy_(currents.var(axes))
    preference = torch.randn(currents.shape[1])
    scale = (norm.running_var + norm.eps).sqrt()
    normed = (currents - norm.running_mean.view(shape)) / scale.view(shape) + preference.view(shape)
    sample = normed.flatten()[torch.randperm(normed.numel())[:200_000]]
    norm.bias.copy_(preference + 1 - sample.quantile(1 - rate))
    return normed + (norm.bias - preference).view(shape)
