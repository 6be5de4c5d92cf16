"""Pools that add up or average: a spike reaches each window that covers it, once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.synapses.rules.call import Call


def average_pool(call: Call) -> Any:
    """Sum over windows of any stride, padding and ceil mode: a spike reaches each window that covers it, once."""
    x: Tensor = call.argument(0, "input")
    size, stride = call.argument(1, "kernel_size"), call.argument(2, "stride")
    padding, ceil = call.argument(3, "padding", 0), call.argument(4, "ceil_mode", False)
    dims = int(call.function.__name__[-2])
    stride = size if stride is None or stride in ((), []) else stride
    if dims == 1:  # the one pool that cannot be told to divide by 1
        window, step, border = (1, _single(size)), (1, _single(stride)), (0, _single(padding))
        pooled = F.avg_pool2d(x.unsqueeze(-2), window, step, border, ceil, True, 1).squeeze(-2)
    else:
        pooled = call.run(x, size, stride, padding, ceil, True, 1)
    return _inverted(call, x, pooled, dims)


def sum_pool(call: Call) -> Any:
    """Sum over windows for lp_pool of norm 1; other norms are no sums and have no rule."""
    x, size = call.argument(0, "input"), call.argument(2, "kernel_size")
    stride, ceil = call.argument(3, "stride"), call.argument(4, "ceil_mode", False)
    if call.argument(1, "norm_type") != 1:
        return NotImplemented
    dims = int(call.function.__name__[-2])
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    return average_pool(replace(call, function=average, args=(x, size, stride, 0, ceil), kwargs={}))


def adaptive_average_pool(call: Call) -> Any:
    """Sum over the windows floor(i·n/m) … ceil((i+1)·n/m), which overlap where m does not divide n."""
    x: Tensor = call.argument(0, "input")
    pooled: Tensor = call.run(*call.args, **call.kwargs)
    dims = int(call.function.__name__[-2])
    for axis in range(-dims, 0):
        n, m = x.shape[axis], pooled.shape[axis]
        widths = [-(-(i + 1) * n // m) - i * n // m for i in range(m)]
        pooled = pooled * torch.tensor(widths, dtype=x.dtype, device=x.device).view(-1, *[1] * (-axis - 1))
    return _inverted(call, x, pooled, dims)


def _inverted(call: Call, x: Tensor, pooled: Tensor, dims: int) -> Tensor:
    """Invert the ratio of the two map sizes under psi="paper", so that the paper's printed totals come out."""
    if call.psi != "paper":
        return pooled
    ratio, rest = divmod(math.prod(x.shape[-dims:]), math.prod(pooled.shape[-dims:]))
    if rest:
        raise PicojouleError(
            f"pools a map of {tuple(x.shape[-dims:])} to {tuple(pooled.shape[-dims:])}, no whole ratio, for which "
            "psi='paper' is not defined: take 'uniform' or 'exact'"
        )
    return pooled * ratio


def _single(value: int | Sequence[int]) -> int:
    return value if isinstance(value, int) else value[0]
