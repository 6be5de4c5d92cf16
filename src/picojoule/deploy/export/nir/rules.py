"""What each operation is in NIR: a short rule that adds a node, or folds into one, and gives the current behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import nir
import numpy as np
import torch
from torch import Tensor, nn

from picojoule.deploy.export.nir.draft import Current, Draft, Weighted, neurons, numbers


def synapses(draft: Draft, x: Current, weight: Tensor, bias: Tensor | None = None, *settings: Any) -> Current:
    """A layer of weights; the constant in front of it comes through it as well."""
    operation = draft.at.target
    constant = operation(x.constant, weight, bias, *settings)  # type: ignore[operator]
    features = constant.dim() - weight.dim() + 2  # the axis of the output features, counted from the batch
    if features != 2:
        raise draft.refusal("linear layer on more than one axis")
    each = constant[0].flatten(1)[:, 0] if constant.dim() > 2 else constant[0]
    uniform = torch.equal(constant, each.view(-1, *[1] * (constant.dim() - 2)).expand_as(constant))
    layer = Weighted(weight.clone(), each.clone() if uniform else torch.zeros_like(each), _writer(draft, x, *settings))
    return draft.current(None, layer, x, torch.zeros_like(constant) if uniform else constant)


def _writer(draft: Draft, x: Current, *settings: Any) -> Callable[..., nir.NIRNode]:
    dims = len(x.shape) - 1
    if not dims:
        return lambda weight, bias: nir.Affine(weight, bias) if bias.any() else nir.Linear(weight)
    usual: list[Any] = [[1] * dims, [0] * dims, [1] * dims, 1]
    stride, padding, dilation, groups = [*settings, *usual[len(settings) :]]
    if isinstance(padding, str):
        raise draft.refusal(f"padding={padding!r}")
    place = [tuple(p) if len(p) == dims else tuple(p) * dims for p in (stride, padding, dilation)]
    if dims == 1:
        (step,), (border,), (gap,) = place
        return lambda weight, bias: nir.Conv1d(x.shape[1], weight, step, border, gap, groups, bias)
    return lambda weight, bias: nir.Conv2d(x.shape[1:], weight, *place, groups, bias)


def normed(
    draft: Draft,
    x: Current,
    gain: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    epsilon: float,
) -> Current:
    """γ (x − μ)/√(σ² + ε) + β = s x + t."""
    scale = (var + epsilon).rsqrt() * (1 if gain is None else gain)
    constant = (0 if shift is None else shift) - mean * scale
    wide = (-1, *[1] * (len(x.shape) - 1))
    return shifted(draft, scaled(draft, x, scale.view(wide)), constant.view(wide))


def scaled(draft: Draft, x: Current, factor: Any) -> Current:
    """x · c, folded into the weights where nothing else reads them."""
    if not isinstance(factor, Tensor | int | float):
        raise draft.refusal("product")
    scale = torch.as_tensor(factor, dtype=torch.float64).broadcast_to(x.constant.shape[1:])
    constant = x.constant * scale
    layer = draft.own_layer(x)
    if layer is not None and (each := _by_channel(scale)) is not None:
        layer.weight *= each.view(-1, *[1] * (layer.weight.dim() - 1))
        layer.bias *= each
        return replace(x, constant=constant)
    return draft.current(None, nir.Scale(numbers(scale)), x, constant)


def divided(draft: Draft, x: Current, by: Any, **kwargs: Any) -> Current:
    if kwargs or not isinstance(by, Tensor | int | float):
        raise draft.refusal("division")
    return scaled(draft, x, 1 / by)


def shifted(draft: Draft, x: Current, constant: Any) -> Current:
    """x + c, taken by the bias where nothing else reads it."""
    offset = torch.as_tensor(constant, dtype=torch.float64).broadcast_to(x.constant.shape[1:])
    layer = draft.own_layer(x)
    if layer is not None and (each := _by_channel(offset)) is not None:
        layer.bias += each
        return x
    return replace(x, constant=x.constant + offset)


def product(draft: Draft, x: Any, y: Any) -> Current:
    return scaled(draft, x, y) if isinstance(x, Current) else scaled(draft, y, x)


def negated(draft: Draft, x: Current) -> Current:
    return scaled(draft, x, -1.0)


def added(draft: Draft, x: Any, y: Any, alpha: float = 1) -> Current:
    """Edges that meet add up; two edges between the same nodes would be one, so the second gets a node between."""
    if not isinstance(x, Current):
        return shifted(draft, y if alpha == 1 else scaled(draft, y, alpha), x)
    if not isinstance(y, Current):
        return shifted(draft, x, y * alpha)
    y = y if alpha == 1 else scaled(draft, y, alpha)
    if x.shape != y.shape:
        raise draft.refusal("sum of maps of different shapes")
    if set(x.sources) & set(y.sources):
        y = draft.current(None, nir.Scale(np.ones(y.shape, np.float32)), y, y.constant)
    return Current((*x.sources, *y.sources), x.constant + y.constant, shared=True)


def subtracted(draft: Draft, x: Any, y: Any, alpha: float = 1) -> Current:
    return added(draft, x, y, -alpha)


def subtracted_from(draft: Draft, x: Current, y: Any, alpha: float = 1) -> Current:
    return added(draft, y, x, -alpha)


def passed(draft: Draft, x: Current, *_: Any, **__: Any) -> Current:
    return x


def _by_channel(scale: Tensor) -> Tensor | None:
    """One number for each channel, if the map says no more."""
    each = scale.flatten(1)[:, 0] if scale.dim() > 1 else scale
    return each if torch.equal(each.view(-1, *[1] * (scale.dim() - 1)).expand_as(scale), scale) else None


def average_pool(
    draft: Draft,
    x: Current,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Current:
    if ceil_mode or divisor is not None or (any(padding) and not count_include_pad):
        raise draft.refusal("average pool with ceil_mode, divisor_override or count_include_pad=False")
    return _pooled(draft, nir.AvgPool2d, x, size, stride or size, padding)


def adaptive_average_pool(draft: Draft, x: Current, size: Sequence[int]) -> Current:
    if len(x.shape) != 3 or any(n % m for n, m in zip(x.shape[1:], size, strict=True)):
        raise draft.refusal("adaptive pool that does not divide the map")
    window = [n // m for n, m in zip(x.shape[1:], size, strict=True)]
    return _pooled(draft, nir.AvgPool2d, x, window, window, (0, 0))


def max_pool(
    draft: Draft,
    x: Current,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Current:
    """The largest of zeros and ones is one where there is any: a sum, and neurons that fire at one."""
    spikes = len(x.sources) == 1 and isinstance(draft.nodes[x.sources[0]], nir.IF) and not x.constant.any()
    if not spikes or ceil_mode or set(dilation) != {1}:
        raise draft.refusal("max pool of anything but spikes, or with dilation or ceil_mode")
    counted = _pooled(draft, nir.SumPool2d, x, size, stride or size, padding, f"{draft.here()}.sum")
    v_threshold = np.full(counted.shape, np.nextafter(np.float32(1), np.float32(0)))
    return draft.current(None, neurons(v_threshold), counted, counted.constant)


def averaged(draft: Draft, x: Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Current:
    return _over_map(draft, nir.AvgPool2d, x, axes, keep)


def summed(draft: Draft, x: Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Current:
    return _over_map(draft, nir.SumPool2d, x, axes, keep)


def _over_map(draft: Draft, kind: type[nir.NIRNode], x: Current, axes: Sequence[int] | None, keep: bool) -> Current:
    if len(x.shape) != 3 or {axis % 4 for axis in axes or ()} != {2, 3}:
        raise draft.refusal("mean or sum over other axes than height and width")
    pooled = _pooled(draft, kind, x, x.shape[1:], x.shape[1:], (0, 0))
    return pooled if keep else _flat(draft, pooled)


def _pooled(
    draft: Draft,
    kind: type[nir.NIRNode],
    x: Current,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    name: str | None = None,
) -> Current:
    if len(x.shape) != 3:
        raise draft.refusal("pool of anything but maps of channels, height and width")
    divisor = 1 if kind is nir.SumPool2d else None
    constant = nn.functional.avg_pool2d(
        x.constant, tuple(size), tuple(stride), tuple(padding), divisor_override=divisor
    )
    whole: Any = kind
    return draft.current(name, whole(np.array(size), np.array(stride), np.array(padding)), x, constant)


def reshaped(draft: Draft, x: Current, *_: Any, **__: Any) -> Current:
    after = tuple(draft.at.meta["val"].shape)
    if after == tuple(x.constant.shape):
        return x
    if after != (len(x.constant), math.prod(x.shape)):
        raise draft.refusal("change of shape other than flattening")
    return _flat(draft, x)


def _flat(draft: Draft, x: Current) -> Current:
    flat = x.constant.flatten(1)
    flatten = nir.Flatten({"input": np.array(x.shape)}, start_dim=-len(x.shape), end_dim=-1)
    return draft.current(f"{draft.here()}.flatten" if x.sources[0] == draft.here() else None, flatten, x, flat)


SUMS = frozenset(["add", "sub", "rsub"])
EITHER_SIDE = SUMS | {"mul"}
"""Operations in which a constant may stand in front of the current."""
RULES: dict[str, Callable[..., Current]] = {
    **dict.fromkeys(("conv1d", "conv2d", "linear"), synapses),
    "_native_batch_norm_legit_no_training": normed,
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "_to_copy"), passed),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "squeeze"), reshaped),
    "add": added,
    "sub": subtracted,
    "rsub": subtracted_from,
    "mul": product,
    "div": divided,
    "neg": negated,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_average_pool,
    "_adaptive_avg_pool2d": adaptive_average_pool,
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), max_pool),
    "mean": averaged,
    "sum": summed,
}
