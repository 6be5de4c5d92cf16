"""What each operation is in NIR: a short rule that adds a node, or folds into one, and gives the current behind it.

Every rule takes the builder and then the operation's own arguments, in the order of PyTorch's basic operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import nir
import numpy as np
import torch
from torch import Tensor, nn

from picojoule.deploy.export.nir.builder import Current, GraphBuilder, PendingLayer, float32_array, neurons
from picojoule.deploy.graph.batch_norm import scale_and_shift
from picojoule.deploy.graph.pools import Pool, is_over_map
from picojoule.deploy.graph.refusal import Unsupported

REMEDIES = {
    "relu": "train with picojoule.Spike in place of ReLU",
    "cat": "add the two branches, or let each have a convolution of its own and add those",
}
"""What to do about operations without a rule, where more can be said than the usual."""


def synapses(builder: GraphBuilder, x: Current, weight: Tensor, bias: Tensor | None = None, *settings: Any) -> Current:
    """Translate a convolution or linear layer; the constant in front of it comes through it as well.

    Raises:
        Unsupported: If a linear layer works on more than one axis, or the padding is given by a word.
    """
    operation = builder.node.target
    constant = operation(x.constant, weight, bias, *settings)  # type: ignore[operator]
    features = constant.dim() - weight.dim() + 2  # the axis of the output features, counted from the batch
    if features != 2:
        raise Unsupported(because="a linear layer on more than one axis")
    each = constant[0].flatten(1)[:, 0] if constant.dim() > 2 else constant[0]
    uniform = torch.equal(constant, each.view(-1, *[1] * (constant.dim() - 2)).expand_as(constant))
    layer = PendingLayer(weight.clone(), each.clone() if uniform else torch.zeros_like(each), _writer(x, *settings))
    return builder.current(None, layer, x, torch.zeros_like(constant) if uniform else constant)


def _writer(x: Current, *settings: Any) -> Callable[..., nir.NIRNode]:
    dims = len(x.shape) - 1
    if not dims:
        return lambda weight, bias: nir.Affine(weight, bias) if bias.any() else nir.Linear(weight)
    usual: list[Any] = [[1] * dims, [0] * dims, [1] * dims, 1]
    stride, padding, dilation, groups = [*settings, *usual[len(settings) :]]
    if isinstance(padding, str):
        raise Unsupported(because=f"a convolution with padding={padding!r}")
    place = [tuple(p) if len(p) == dims else tuple(p) * dims for p in (stride, padding, dilation)]
    if dims == 1:
        (step,), (border,), (gap,) = place
        return lambda weight, bias: nir.Conv1d(x.shape[1], weight, step, border, gap, groups, bias)
    return lambda weight, bias: nir.Conv2d(x.shape[1:], weight, *place, groups, bias)


def batch_norm(
    builder: GraphBuilder,
    x: Current,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    epsilon: float,
) -> Current:
    """Translate a batch norm of fixed statistics: a scale and a shift."""
    scale, shift = scale_and_shift(mean, variance, epsilon, weight, bias)
    wide = (-1, *[1] * (len(x.shape) - 1))
    return shifted(builder, scaled(builder, x, scale.view(wide)), shift.view(wide))


def scaled(builder: GraphBuilder, x: Current, factor: Any) -> Current:
    """Translate x · c, folded into the weights where nothing else reads them.

    Raises:
        Unsupported: If the factor is not a constant.
    """
    if not isinstance(factor, Tensor | int | float):
        raise Unsupported(because="a product with something else than a constant")
    scale = torch.as_tensor(factor, dtype=torch.float64).broadcast_to(x.constant.shape[1:])
    constant = x.constant * scale
    layer = builder.foldable_layer(x)
    if layer is not None and (each := _by_channel(scale)) is not None:
        layer.weight *= each.view(-1, *[1] * (layer.weight.dim() - 1))
        layer.bias *= each
        return replace(x, constant=constant)
    return builder.current(None, nir.Scale(float32_array(scale)), x, constant)


def divided(builder: GraphBuilder, x: Current, by: Any, **kwargs: Any) -> Current:
    """Translate x / c.

    Raises:
        Unsupported: If the divisor is zero or not a constant, or the quotient is rounded.
    """
    if kwargs or not isinstance(by, Tensor | int | float) or (not isinstance(by, Tensor) and by == 0):
        raise Unsupported(because="a division by zero or something else than a constant, or a rounded one")
    return scaled(builder, x, 1 / by)


def shifted(builder: GraphBuilder, x: Current, constant: Any) -> Current:
    """Translate x + c, taken by the bias where nothing else reads it."""
    offset = torch.as_tensor(constant, dtype=torch.float64).broadcast_to(x.constant.shape[1:])
    layer = builder.foldable_layer(x)
    if layer is not None and (each := _by_channel(offset)) is not None:
        layer.bias += each
        return x
    return replace(x, constant=x.constant + offset)


def product(builder: GraphBuilder, x: Any, y: Any) -> Current:
    """Translate a product, in which the constant may stand on either side."""
    return scaled(builder, x, y) if isinstance(x, Current) else scaled(builder, y, x)


def negated(builder: GraphBuilder, x: Current) -> Current:
    """Translate −x."""
    return scaled(builder, x, -1.0)


def added(builder: GraphBuilder, x: Any, y: Any, alpha: float = 1) -> Current:
    """Translate x + α y: edges that meet add up.

    Two edges between the same nodes would be one, so the second gets a node between.

    Raises:
        Unsupported: If the maps have different shapes.
    """
    if not isinstance(x, Current):
        return shifted(builder, y if alpha == 1 else scaled(builder, y, alpha), x)
    if not isinstance(y, Current):
        return shifted(builder, x, y * alpha)
    y = y if alpha == 1 else scaled(builder, y, alpha)
    if x.shape != y.shape:
        raise Unsupported(because="a sum of maps of different shapes")
    if set(x.sources) & set(y.sources):
        y = builder.current(None, nir.Scale(np.ones(y.shape, np.float32)), y, y.constant)
    return Current((*x.sources, *y.sources), x.constant + y.constant, shared=True)


def subtracted(builder: GraphBuilder, x: Any, y: Any, alpha: float = 1) -> Current:
    """Translate x − α y."""
    return added(builder, x, y, -alpha)


def subtracted_from(builder: GraphBuilder, x: Current, y: Any, alpha: float = 1) -> Current:
    """Translate y − α x."""
    return added(builder, y, x, -alpha)


def identity(builder: GraphBuilder, x: Current, *_: Any, **__: Any) -> Current:
    """Translate an operation that changes no numbers: a copy, a cast, a change of layout."""
    return x


def _by_channel(scale: Tensor) -> Tensor | None:
    """Reduce a map to one number for each channel, if it says no more."""
    each = scale.flatten(1)[:, 0] if scale.dim() > 1 else scale
    return each if torch.equal(each.view(-1, *[1] * (scale.dim() - 1)).expand_as(scale), scale) else None


def average_pool(
    builder: GraphBuilder,
    x: Current,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Current:
    """Translate an average pool.

    Raises:
        Unsupported: If its windows have different sizes, or it divides by something else than their size.
    """
    pool = Pool.of_sizes(2, size, stride, padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    if not pool.is_even or divisor_override is not None:
        raise Unsupported(because="an average pool with ceil_mode, divisor_override or count_include_pad=False")
    return _pooled(builder, nir.AvgPool2d, x, pool)


def adaptive_average_pool(builder: GraphBuilder, x: Current, size: Sequence[int]) -> Current:
    """Translate an adaptive average pool of equal windows.

    Raises:
        Unsupported: If its outputs do not divide the map.
    """
    pool = Pool.dividing(x.shape[1:], size) if len(x.shape) == 3 else None
    if pool is None:
        raise Unsupported(because="an adaptive pool that does not divide the map")
    return _pooled(builder, nir.AvgPool2d, x, pool)


def max_pool(
    builder: GraphBuilder,
    x: Current,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Current:
    """Translate a max pool of spikes: the largest of zeros and ones is a sum, and neurons that fire at one.

    Raises:
        Unsupported: If it takes anything but spikes, or has dilation or ceil_mode.
    """
    pool = Pool.of_sizes(2, size, stride, padding, dilation, ceil_mode=ceil_mode)
    spikes = len(x.sources) == 1 and isinstance(builder.nodes[x.sources[0]], nir.IF) and not x.constant.any()
    if not spikes or not pool.is_even or pool.is_dilated:
        raise Unsupported(because="a max pool of anything but spikes, or with dilation or ceil_mode")
    counted = _pooled(builder, nir.SumPool2d, x, pool, f"{builder.place()}.sum")
    v_threshold = np.full(counted.shape, np.nextafter(np.float32(1), np.float32(0)))
    return builder.current(None, neurons(v_threshold), counted, counted.constant)


def mean(builder: GraphBuilder, x: Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Current:
    """Translate a mean over the map."""
    return _over_map(builder, nir.AvgPool2d, x, axes, keep)


def total(
    builder: GraphBuilder, x: Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Current:
    """Translate a sum over the map."""
    return _over_map(builder, nir.SumPool2d, x, axes, keep)


def _over_map(
    builder: GraphBuilder, kind: type[nir.NIRNode], x: Current, axes: Sequence[int] | None, keep: bool
) -> Current:
    if len(x.shape) != 3 or not is_over_map(axes or (), 4):
        raise Unsupported(because="a mean or sum over other axes than height and width")
    pooled = _pooled(builder, kind, x, Pool.of_sizes(2, x.shape[1:]))
    return pooled if keep else _flat(builder, pooled)


def _pooled(builder: GraphBuilder, kind: type[nir.NIRNode], x: Current, pool: Pool, name: str | None = None) -> Current:
    if len(x.shape) != 3:
        raise Unsupported(because="a pool of anything but maps of channels, height and width")
    divisor = 1 if kind is nir.SumPool2d else None
    constant = nn.functional.avg_pool2d(x.constant, pool.kernel, pool.stride, pool.padding, divisor_override=divisor)
    make: Any = kind
    sizes = (np.array(size) for size in (pool.kernel, pool.stride, pool.padding))
    return builder.current(name, make(*sizes), x, constant)


def reshaped(builder: GraphBuilder, x: Current, *_: Any, **__: Any) -> Current:
    """Translate a flattening, or a change of shape that changes nothing.

    Raises:
        Unsupported: If it is another change of shape.
    """
    after = tuple(builder.node.meta["val"].shape)
    if after == tuple(x.constant.shape):
        return x
    if after != (len(x.constant), math.prod(x.shape)):
        raise Unsupported(because="a change of shape other than flattening")
    return _flat(builder, x)


def _flat(builder: GraphBuilder, x: Current) -> Current:
    flat, place = x.constant.flatten(1), builder.place()
    flatten = nir.Flatten({"input": np.array(x.shape)}, start_dim=-len(x.shape), end_dim=-1)
    return builder.current(f"{place}.flatten" if x.sources[0] == place else None, flatten, x, flat)


SUMS = frozenset(["add", "sub", "rsub"])
EITHER_SIDE = SUMS | {"mul"}
"""Operations in which a constant may stand in front of the current."""
RULES: dict[str, Callable[..., Current]] = {
    **dict.fromkeys(("conv1d", "conv2d", "linear"), synapses),
    "_native_batch_norm_legit_no_training": batch_norm,
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "_to_copy"), identity),
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
    "mean": mean,
    "sum": total,
}
