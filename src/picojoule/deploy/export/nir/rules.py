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

from picojoule.deploy.export.nir.builder import Current, GraphBuilder, PendingLayer, Readout, float32_array
from picojoule.deploy.export.nir.readers import MEMORYLESS
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
    layer = PendingLayer(
        weight.clone(), each.clone() if uniform else torch.zeros_like(each), _writer(builder, x, *settings)
    )
    return builder.current(None, layer, x, torch.zeros_like(constant) if uniform else constant)


def _writer(builder: GraphBuilder, x: Current, *settings: Any) -> Callable[..., nir.NIRNode]:
    dims, reader = len(x.shape) - 1, builder.reader
    if not dims:
        always = not reader.knows(nir.Linear)
        return lambda weight, bias: nir.Affine(weight, bias) if always or bias.any() else nir.Linear(weight)
    usual: list[Any] = [[1] * dims, [0] * dims, [1] * dims, 1]
    stride, padding, dilation, groups = [*settings, *usual[len(settings) :]]
    if isinstance(padding, str):
        raise Unsupported(because=f"a convolution with padding={padding!r}")
    if (groups > 1 and not reader.groups) or (dims == 1 and not reader.knows(nir.Conv1d)):
        kind = "a convolution with groups" if groups > 1 else "a convolution over one axis"
        raise Unsupported("use Conv2d without groups, or take no reader", because=f"{kind}, which {reader.name} lacks")
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
    return builder.current(None, _scale(builder, x, scale), x, constant)


def _scale(builder: GraphBuilder, x: Current, scale: Tensor) -> nir.NIRNode:
    """Make a node that scales; where the reader has none, a convolution or linear layer of a diagonal."""
    if builder.reader.knows(nir.Scale):
        return nir.Scale(float32_array(scale))
    each = _by_channel(scale)
    if each is None or len(x.shape) not in (1, 3):
        raise Unsupported(
            "scale by channel, or take no reader",
            because=f"a scale of single values, which {builder.reader.name} lacks",
        )
    return _diagonal(x, each)


def _diagonal(
    x: Current,
    each: Tensor,
    kernel: Sequence[int] = (1, 1),
    stride: Sequence[int] = (1, 1),
    pad: Sequence[int] = (0, 0),
) -> nir.NIRNode:
    """Make a layer whose weights connect each channel with itself alone."""
    weight, bias = float32_array(torch.diag(each)), np.zeros(len(each), np.float32)
    if len(x.shape) == 1:
        return nir.Affine(weight, bias)
    wide = np.ascontiguousarray(np.broadcast_to(weight[:, :, None, None], (*weight.shape, *kernel)))
    return nir.Conv2d(x.shape[1:], wide, tuple(stride), tuple(pad), (1, 1), 1, bias)


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
    if x.full_shape != y.full_shape:
        raise Unsupported(because="a sum of maps of different shapes")
    if set(x.sources) & set(y.sources):
        y = builder.current(None, _scale(builder, y, torch.ones(y.shape)), y, y.constant)
    return replace(x, sources=(*x.sources, *y.sources), constant=x.constant + y.constant, shared=True)


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
    fires = isinstance(builder.nodes[x.sources[0]], nir.IF | nir.LIF)  # once at most in a step, or it is refused before
    spikes = len(x.sources) == 1 and fires and not x.constant.any()
    if not spikes or not pool.is_even or pool.is_dilated:
        raise Unsupported(because="a max pool of anything but spikes, or with dilation or ceil_mode")
    counted = _pooled(builder, nir.SumPool2d, x, pool, f"{builder.place()}.sum")
    relays = builder.reader.neurons(replace(MEMORYLESS, leak=0.0), np.ones(counted.shape), x.steps)  # none keeps a rest
    return builder.current(None, relays, counted, counted.constant)


def mean(builder: GraphBuilder, x: Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Current:
    """Translate a mean over the map, or over the time steps."""
    if x.split and list(axes or ()) == [0] and not keep:
        return _read_out(x, "mean")
    return _over_map(builder, nir.AvgPool2d, x, axes, keep)


def total(
    builder: GraphBuilder, x: Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Current:
    """Translate a sum over the map, or over the time steps."""
    if x.split and list(axes or ()) == [0] and not keep:
        return _read_out(x, "sum")
    return _over_map(builder, nir.SumPool2d, x, axes, keep)


def _read_out(x: Current, how: Readout) -> Current:
    """Note that the steps are read out: the graph is one step, and whoever runs it takes the mean or sum."""
    by_step = x.constant.unflatten(0, (x.steps, -1))
    constant = by_step.mean(0) if how == "mean" else by_step.sum(0)
    return replace(x, constant=constant, steps=1, split=False, readout=how, shared=True)


def _over_map(
    builder: GraphBuilder, kind: type[nir.NIRNode], x: Current, axes: Sequence[int] | None, keep: bool
) -> Current:
    axes = [axis - x.split if axis > 0 else axis for axis in axes or ()]
    if len(x.shape) != 3 or not is_over_map(axes, 4):
        raise Unsupported(because="a mean or sum over other axes than height and width")
    pooled = _pooled(builder, kind, x, Pool.of_sizes(2, x.shape[1:]))
    return pooled if keep else _flat(builder, pooled)


def _pooled(builder: GraphBuilder, kind: type[nir.NIRNode], x: Current, pool: Pool, name: str | None = None) -> Current:
    if len(x.shape) != 3:
        raise Unsupported(because="a pool of anything but maps of channels, height and width")
    divisor = 1 if kind is nir.SumPool2d else None
    constant = nn.functional.avg_pool2d(x.constant, pool.kernel, pool.stride, pool.padding, divisor_override=divisor)
    if not builder.reader.knows(kind):
        each = torch.full(
            (x.shape[0],), 1.0 if kind is nir.SumPool2d else 1 / math.prod(pool.kernel), dtype=torch.float64
        )
        return builder.current(name, _diagonal(x, each, pool.kernel, pool.stride, pool.padding), x, constant)
    make: Any = kind
    sizes = (np.array(size) for size in (pool.kernel, pool.stride, pool.padding))
    return builder.current(name, make(*sizes), x, constant)


def reshaped(builder: GraphBuilder, x: Current, *_: Any, **__: Any) -> Current:
    """Translate a flattening, or a change of shape that changes nothing.

    Raises:
        Unsupported: If it is another change of shape.
    """
    after, rows = tuple(builder.node.meta["val"].shape), len(x.constant)
    for split, lead in ((False, (rows,)), (True, (x.steps, rows // x.steps))):
        if after[: len(lead)] == lead and (x.steps > 1 or split is x.split):
            x, rest = replace(x, split=split), after[len(lead) :]
            if rest in (x.shape, (math.prod(x.shape),)):
                return x if rest == x.shape else _flat(builder, x)
    raise Unsupported(because="a change of shape other than flattening")


def _flat(builder: GraphBuilder, x: Current) -> Current:
    flat, place = x.constant.flatten(1), builder.place()
    flatten = nir.Flatten({"input": np.array(x.shape)}, start_dim=-len(x.shape), end_dim=-1)
    return builder.current(f"{place}.flatten" if x.sources[0] == place else None, flatten, x, flat)


def for_each_step(builder: GraphBuilder, x: Any, *sizes: Any, **kwargs: Any) -> Current:
    """Translate what gives the same sample to each time step: cat, stack, repeat, expand, and the axis for it.

    Raises:
        Unsupported: If it joins or repeats anything else.
    """
    name, parts = str(builder.node.target).split(".")[1], list(x) if isinstance(x, list | tuple) else [x]
    first = parts[0]
    after = tuple(builder.node.meta["val"].shape)
    rows, dims = len(first.constant), len(first.shape) + 1
    same = isinstance(first, Current) and all(part is first for part in parts)
    if not same or first.steps > 1 or after[len(after) - len(first.shape) :] != first.shape:
        raise Unsupported(
            REMEDIES.get(name), because="what joins or repeats anything but one sample for each time step"
        )
    split = len(after) == dims + 1
    steps = after[0] if split else after[0] // rows
    if split and after[1] != rows:
        raise Unsupported(because="what repeats samples in another order than step by step")
    repeated = torch.cat([first.constant] * steps)
    return Current(first.sources, repeated, shared=True, steps=steps, split=split, readout=first.readout)


SUMS = frozenset(["add", "sub", "rsub"])
JOINS = frozenset(["cat", "stack"])
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
    **dict.fromkeys(("cat", "stack", "repeat", "expand", "unsqueeze"), for_each_step),
    "mean": mean,
    "sum": total,
}
