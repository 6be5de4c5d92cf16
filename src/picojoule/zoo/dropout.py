"""Dropout as in `nn.Dropout`, with a mask that is quick to draw on a CPU.

PyTorch draws one Bernoulli number per element there, on one core, which takes a fifth of a training step. Here a draw
is a hash of the element's position under a seed from PyTorch's generator: one seed, one checkpoint of the random state
and `torch.manual_seed` govern both. Thirty-two bits make the probability a multiple of 2⁻³²; what is kept is scaled by
the probability that was really used, so the expectation is exact.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from picojoule.kernels.draws import LEVELS
from picojoule.kernels.fused import drop, fits_one_pass
from picojoule.kernels.torch_private import has_forward_mode
from picojoule.neurons.spike import is_eager


class Dropout(nn.Dropout):
    """Dropout: while training each element is zero with probability ``p``, and the rest is scaled by ``1/(1-p)``.

    The backward pass draws the mask again from its seed, so nothing of the activation's size is kept.

    >>> import torch
    >>> x = torch.ones(8, 1000, requires_grad=True)
    >>> y = Dropout(0.5)(x)
    >>> sorted(set(y.flatten().tolist()))
    [0.0, 2.0]
    >>> y.sum().backward()
    >>> torch.equal(x.grad, y)  # what was dropped passes no gradient
    True
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of `x` in training; give it back as it is in evaluation."""
        if self.training and 0 < self.p < 1 and not self.inplace and _draws_by_seed(x):
            seed = int(torch.randint(2**63 - 1, ()))
            dropped: Tensor = _Dropout.apply(x, self.p, seed)  # type: ignore[no-untyped-call]
            return dropped
        return F.dropout(x, self.p, self.training, self.inplace)


def _draws_by_seed(x: Tensor) -> bool:
    return is_eager(x) and not has_forward_mode(x) and fits_one_pass(x)


class _Dropout(Function):
    """Dropout by a seed: it is linear, so the backward pass is the same function of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed, ctx.stride = p, seed, x.stride()
        dropped = min(max(round(p * LEVELS), 1), LEVELS - 1)
        return drop(x, seed, dropped, LEVELS / (LEVELS - dropped))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if not is_eager(grad):  # many gradients at once, which share one mask
            ones = torch.empty_strided(grad.shape, ctx.stride, dtype=grad.dtype).fill_(1)
            return grad * _Dropout.apply(ones, ctx.p, ctx.seed), None, None  # type: ignore[no-untyped-call]
        if grad.stride() != ctx.stride:
            grad = torch.empty_strided(grad.shape, ctx.stride, dtype=grad.dtype).copy_(grad)
        masked: Tensor = _Dropout.apply(grad, ctx.p, ctx.seed)  # type: ignore[no-untyped-call]
        return masked, None, None
