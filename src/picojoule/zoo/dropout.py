"""Dropout as in `nn.Dropout`, with a mask that is quick to draw on a CPU.

PyTorch draws one Bernoulli number an element there, on one core, which takes a fifth of a training step. Here NumPy's
SFC64 draws sixteen bits an element, seeded from PyTorch's generator: one seed, one checkpoint of the random state and
`torch.manual_seed` govern both. Sixteen bits make the probability a multiple of 2⁻¹⁶; what is kept is scaled by the
probability that was really used, so the expectation is exact.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from picojoule.neuron import is_dense, is_eager

_LEVELS = 1 << 16


class Dropout(nn.Dropout):
    """Zero each element with probability ``p`` while training, and scale the rest by ``1/(1-p)``.

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
        if self.training and 0 < self.p < 1 and not self.inplace and x.device.type == "cpu" and is_eager(x):
            seed = int(torch.randint(2**63 - 1, ()))
            dropped: Tensor = _Dropout.apply(x, self.p, seed)  # type: ignore[no-untyped-call]
            return dropped
        return F.dropout(x, self.p, self.training, self.inplace)


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.mask = partial(_mask, x.shape, x.stride() if is_dense(x) else None, x.dtype, p, seed)
        mask: Tensor = ctx.mask()
        return mask.mul_(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.mask() * grad, None, None


def _mask(shape: torch.Size, stride: tuple[int, ...] | None, dtype: torch.dtype, p: float, seed: int) -> Tensor:
    """0, or the scale; laid out in memory like the input."""
    size = shape.numel()
    dropped = min(max(round(p * _LEVELS), 1), _LEVELS - 1)
    words = np.random.SFC64(seed).random_raw(-(-size // 4))
    draws = torch.from_numpy(words.view(np.int16))[:size]
    mask = torch.ge(draws, dropped - _LEVELS // 2, out=torch.empty(size, dtype=dtype))
    mask.mul_(_LEVELS / (_LEVELS - dropped))
    return mask.view(shape) if stride is None else mask.as_strided(shape, stride)
