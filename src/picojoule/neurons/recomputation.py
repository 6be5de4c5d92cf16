"""Recomputation: behind a batch norm a spiking layer computes its potential anew instead of keeping it.

A spiking layer needs its potential u for the backward pass. Behind a batch norm in training that would be the second
tensor of the activation's size, for the norm keeps its input x already, and

    u = x·a + b,    a = γ/σ,    b = β − μ·a

What it gains: the peak memory of a training step of VGG11 with 100 images falls from 288 to 201 MiB, by
`benchmarks/switches.py`. What was computed anew differs from what fired in the last bits of float32, and so do the
gradients. PICOJOULE_RECOMPUTATION=0 lets the potential be kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.kernels.switches import Switch
from picojoule.kernels.torch_private import saved_batch_norm, version


class NormalizedPotential(NamedTuple):
    """A potential straight from a batch norm: the norm's input, its γ and β, and the statistics of the batch."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor
    inverse_deviation: Tensor

    def part(self, samples: slice) -> NormalizedPotential:
        """Return where the potential of some of the samples comes from.

        Args:
            samples: Which of them.

        Returns:
            Their part of x, with the statistics of the whole batch.
        """
        return self._replace(x=self.x[samples])

    def potential(self, eps: float) -> Tensor:
        """Compute the potential u anew, in the dtype and memory layout that it had.

        Args:
            eps: The ε of the batch norm.

        Returns:
            The potential; where second derivatives are asked for, as a function of x, γ and β.
        """
        if torch.is_grad_enabled():
            return F.batch_norm(self.x, None, None, self.weight, self.bias, training=True, eps=eps)
        if self.x.dtype != self.weight.dtype:  # one pass, in float32 and rounded once, which no other operator makes
            variance = self.inverse_deviation**-2 - eps
            return F.batch_norm(self.x, self.mean, variance, self.weight, self.bias, eps=eps)
        shape = (1, -1, *(1,) * (self.x.dim() - 2))
        scale = self.weight * self.inverse_deviation
        shift = self.bias - self.mean * scale
        return torch.addcmul(shift.view(shape), self.x, scale.view(shape))


def recomputable(u: Tensor) -> tuple[NormalizedPotential, float] | None:
    """Find the batch norm that a potential comes from.

    Args:
        u: The potential.

    Returns:
        What is needed to compute it anew, with the norm's ε. None if u does not come straight from a batch norm in
        training, was written to since, or recomputation is switched off.

    >>> norm, x = torch.nn.BatchNorm1d(3), torch.randn(5, 3, requires_grad=True)
    >>> u = norm(2 * x)
    >>> normalized, eps = recomputable(u)
    >>> torch.allclose(normalized.potential(eps), u)
    True
    >>> recomputable(2 * u) is None
    True
    """
    if not Switch.RECOMPUTATION.is_on or u.dtype not in _WEIGHTS or u.grad_fn is None:
        return None
    if version(u):  # written to since, unseen by autograd
        return None
    saved = saved_batch_norm(u)
    if saved is None or saved.weight.dtype != _WEIGHTS[u.dtype]:
        return None
    if saved.x.dtype != u.dtype or saved.x.stride() != u.stride():
        return None
    return NormalizedPotential(*saved[:-1]), saved.eps


_WEIGHTS = {torch.float32: torch.float32, torch.float64: torch.float64, torch.bfloat16: torch.float32}
"""The dtype of γ, β and the statistics, by that of the potential; for bfloat16, what it is under autocast."""
