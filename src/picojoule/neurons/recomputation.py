"""A potential that need not be kept: batch norm keeps its own input, from which it can be had again.

A spiking layer needs its potential u for the backward pass. Behind a batch norm in training that would be the second
tensor of the activation's size, for the norm keeps its input x, and u = x·a + b with a = γ/σ and b = β − μ·a.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.kernels.switches import Switch
from picojoule.kernels.torch_private import saved_batch_norm, version


class Source(NamedTuple):
    """What a batch norm keeps, and its β."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor
    inverse_deviation: Tensor

    def potential(self, eps: float) -> Tensor:
        """u, by the same arithmetic; where second derivatives are asked for, as a function of x, γ and β."""
        if torch.is_grad_enabled():
            return F.batch_norm(self.x, None, None, self.weight, self.bias, training=True, eps=eps)
        if self.x.dtype != self.weight.dtype:  # one pass, in float32 and rounded once, which no other operator makes
            variance = self.inverse_deviation**-2 - eps
            return F.batch_norm(self.x, self.mean, variance, self.weight, self.bias, eps=eps)
        shape = (1, -1, *(1,) * (self.x.dim() - 2))
        scale = self.weight * self.inverse_deviation
        shift = self.bias - self.mean * scale
        return torch.addcmul(shift.view(shape), self.x, scale.view(shape))


def source(u: Tensor) -> tuple[Source, float] | None:
    """Where u comes from, with the norm's ε; None if not straight from a batch norm in training.

    >>> norm, x = torch.nn.BatchNorm1d(3), torch.randn(5, 3, requires_grad=True)
    >>> u = norm(2 * x)
    >>> kept, eps = source(u)
    >>> torch.allclose(kept.potential(eps), u)
    True
    >>> source(2 * u) is None
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
    return Source(*saved[:-1]), saved.eps


_WEIGHTS = {torch.float32: torch.float32, torch.float64: torch.float64, torch.bfloat16: torch.float32}
"""What γ, β and the statistics are for a potential of some kind; for bfloat16, what they are under autocast."""
