"""The kernels of PyTorch that the oracle can follow, by what they do to spikes."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

VIEWS = frozenset(
    "view _unsafe_view permute transpose t expand slice select squeeze unsqueeze alias detach unbind split "
    "split_with_sizes as_strided unfold diagonal lift_fresh _reshape_alias view_as resize_ set_ requires_grad_ "
    "squeeze_ unsqueeze_ transpose_ t_ _conj swapaxes movedim chunk narrow is_same_size".split()
)
"""The result is the same memory seen otherwise, which has its shadow already (`_unsafe_view` of a fresh result too)."""

MOVES = frozenset(
    "clone _to_copy contiguous copy cat stack index_select index gather masked_fill fill zero constant_pad_nd "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d flip "
    "roll repeat upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d pixel_shuffle pixel_unshuffle im2col channel_shuffle index_put lift_fresh_copy "
    "slice_scatter select_scatter tril triu".split()
)
"""Elements change their place, or are filled with constants."""

ELEMENTWISE = frozenset("add sub rsub mul div neg".split())

SUMS = frozenset("sum mean cumsum".split())

MATRIX = frozenset("mm addmm bmm baddbmm mv addmv dot vdot linear matmul addbmm".split())

PASSES = frozenset(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "native_dropout _batch_norm_with_update batch_norm_with_update".split()
)
"""Element by element, and every element is what it was."""


def average(x: Tensor, args: Any) -> Tensor:
    """An average pool that adds up instead: how many spikes are in each window."""
    size, stride, padding, ceil = (*args[1:], *[None] * 4)[:4]
    pool = (
        torch.nn.functional.avg_pool2d
        if x.dim() - len(size) <= 2 and len(size) == 2
        else torch.nn.functional.avg_pool3d
    )
    return pool(x, size, stride or size, padding or 0, bool(ceil), True, 1)


def adaptive_average(x: Tensor, shape: torch.Size) -> Tensor:
    """The same for windows floor(i·n/m) … ceil((i+1)·n/m) of the last axes."""
    dims = list(range(2 - x.dim(), 0)) if x.dim() > 3 else [-1]
    dims = [axis for axis in dims if axis < 0]
    for axis in dims:
        n, m = x.shape[axis], shape[axis]
        parts = [
            x.narrow(axis, i * n // m, -(-(i + 1) * n // m) - i * n // m).sum(axis, keepdim=True) for i in range(m)
        ]
        x = torch.cat(parts, axis)
    return x


def dilated_columns(x: Tensor, weight: Tensor, how: list[Any]) -> Tensor:
    """A convolution, plain or transposed, tap by tap: every element of x is added where a weight takes it.

    Written with slices alone, so that nothing of the real kernel's arithmetic is used.
    """
    stride, padding, dilation, transposed, output_padding, groups = how[:6]
    spatial = weight.dim() - 2
    stride, padding, dilation, output_padding = (
        list(v) * spatial if len(v) == 1 else list(v) for v in (stride, padding, dilation, output_padding)
    )
    unbatched = x.dim() == spatial + 1
    x = x.unsqueeze(0) if unbatched else x
    taps = weight.shape[2:]
    if transposed:
        return _scattered(x, weight, stride, padding, dilation, output_padding, groups, taps)
    padded = x.new_zeros(*x.shape[:2], *(n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)))
    padded[(slice(None), slice(None), *(slice(p, p + n) for n, p in zip(x.shape[2:], padding, strict=True)))] = x
    sizes = [
        (n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(padded.shape[2:], dilation, taps, stride, strict=True)
    ]
    out = x.new_zeros(len(x), weight.shape[0], *sizes)
    for tap in product(*map(range, taps)):
        window = tuple(
            slice(t * d, t * d + s * (m - 1) + 1, s) for t, d, s, m in zip(tap, dilation, stride, sizes, strict=True)
        )
        out += _mixed(padded[(slice(None), slice(None), *window)], weight[(slice(None), slice(None), *tap)], groups)
    return out


def _mixed(x: Tensor, w: Tensor, groups: int) -> Tensor:
    """Channels through one tap's matrix [out, in / groups], group by group."""
    parts = zip(x.chunk(groups, 1), w.chunk(groups, 0), strict=True)
    return torch.cat([torch.einsum("bc...,oc->bo...", a, b) for a, b in parts], 1)


def _scattered(
    x: Tensor, w: Tensor, stride: Any, padding: Any, dilation: Any, extra: Any, groups: int, taps: Any
) -> Tensor:
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, s, d, k, e in zip(x.shape[2:], stride, dilation, taps, extra, strict=True)
    ]
    out = x.new_zeros(len(x), w.shape[1] * groups, *full)
    for tap in product(*map(range, taps)):
        place = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, x.shape[2:], strict=True)
        )
        parts = zip(x.chunk(groups, 1), w[(slice(None), slice(None), *tap)].chunk(groups, 0), strict=True)
        mixed = torch.cat([torch.einsum("bc...,co->bo...", a, b) for a, b in parts], 1)
        out[(slice(None), slice(None), *place)] += mixed
    cut = tuple(slice(p, n - p) for p, n in zip(padding, full, strict=True))
    return out[(slice(None), slice(None), *cut)]
