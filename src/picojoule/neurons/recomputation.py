"""A potential that need not be kept: batch norm keeps its own input, from which it can be had again.

A spiking layer needs its potential u for the backward pass. Behind a batch norm in training that would be the second
tensor of the activation's size, for the norm keeps its input x, and u = x·a + b with a = γ/σ and b = β − μ·a.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


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
    node = u.grad_fn
    if node is None or node.name() != "NativeBatchNormBackward0" or u.dtype not in _WEIGHTS:
        return None
    if u._version or _somebody_packs():  # written to since, unseen by autograd; or see there
        return None
    saved: Any = node  # whose attributes depend on the operation
    bias = getattr(node.next_functions[2][0], "variable", None)
    if bias is None or not saved._saved_training:
        return None
    try:
        x, weight = saved._saved_input, saved._saved_weight
    except RuntimeError:  # freed by a backward pass that has been already
        return None
    if weight is None or weight.dtype != _WEIGHTS[u.dtype] or x.dtype != u.dtype or x.stride() != u.stride():
        return None
    return Source(x, weight, bias, saved._saved_result1, saved._saved_result2), saved._saved_eps


_WEIGHTS = {torch.float32: torch.float32, torch.float64: torch.float64, torch.bfloat16: torch.float32}
"""What γ, β and the statistics are for a potential of some kind; for bfloat16, what they are under autocast."""


def _somebody_packs() -> bool:
    """Whether saved tensors are packed just now, for instance by activation checkpointing: a look would unpack them."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is None or top(True) is not None
