"""Rules of pools: of spikes, of numbers made of spikes, and of currents. Windows come from `graph.pools`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from picojoule.deploy.events.affine import Affine, Doubles
from picojoule.deploy.events.builder import ProgramBuilder, reads, writes
from picojoule.deploy.events.currents import channels_last, materialized
from picojoule.deploy.events.program import Map, Opcode
from picojoule.deploy.events.values import Analog, Buffer, Counts, Spikes, Value, map_of, value_of
from picojoule.deploy.graph.pools import Pool, Windows, is_over_map
from picojoule.deploy.graph.refusal import Unsupported


def average_pool(builder: ProgramBuilder, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower an average pool of windows of any sizes."""
    pool, source, target = Pool.of_module(layer), value_of(x).map, map_of(shape)
    rows, columns = _windows(pool, source, target)
    return _average(builder, value_of(x), target, rows, columns, pool.divisor_override)


def adaptive_pool(builder: ProgramBuilder, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower an adaptive average pool."""
    source, target = value_of(x).map, map_of(shape)
    rows = Windows.adaptive(source.height, target.height)
    columns = Windows.adaptive(source.width, target.width)
    return _average(builder, value_of(x), target, rows, columns)


def mean(builder: ProgramBuilder, x: Any, inputs: list[Any], kwargs: dict[str, Any], shape: tuple[int, ...]) -> Value:
    """Lower a mean over the whole map.

    Raises:
        Unsupported: If it goes over other axes.
    """
    source = value_of(x).map
    dim = kwargs.get("dim", inputs[1] if len(inputs) > 1 else None)
    axes = [dim] if isinstance(dim, int) else list(dim or ())
    if not is_over_map(axes, 4 if source.height > 1 or len(axes) == 2 else 3):
        raise Unsupported("take the mean over the whole map, .mean(dim=(2, 3))")
    rows, columns = Windows.adaptive(source.height, 1), Windows.adaptive(source.width, 1)
    return _average(builder, value_of(x), Map(source.channels), rows, columns)


def max_pool(builder: ProgramBuilder, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower a max pool: a relay, where it takes spikes or whole numbers of them.

    Raises:
        Unsupported: If it is dilated, returns indices, or takes parts of spikes.
    """
    pool, x, target = Pool.of_module(layer), value_of(x), map_of(shape)
    if pool.is_dilated or pool.return_indices:
        raise Unsupported("leave out its dilation and its indices")
    rows, columns = _windows(pool, x.map, target)
    windows = builder.table([*rows.table, *columns.table])
    if isinstance(x, Spikes):
        relayed = builder.spikes(target)
        relay = builder.add(Opcode.RELAY_SPIKES, **reads(x), **writes(target, relayed), windows=windows)
        return builder.add_spike_output(name, relayed, shape, relay, relay=True)
    if isinstance(x, Analog):
        x = channels_last(builder, materialized(builder, x))
        pooled = _pool(builder, x, x.numbers, target, windows, None)
        return Analog(target, pooled, Affine.identity(target.channels), from_input=x.from_input)
    if x.values is not x.counts:
        raise Unsupported("put the average pool behind it", because="which takes parts of spikes")
    numbers = _pool(builder, x, x.values, target, windows, None)
    numbers.live_out = True
    counts = Counts(target, numbers, numbers, 1.0, x.most)
    return builder.add_spike_output(name, counts, shape, builder.instructions[-1], relay=True)


def _average(
    builder: ProgramBuilder, x: Value, target: Map, rows: Windows, columns: Windows, divisor: int | None = None
) -> Value:
    divisors = np.outer(rows.divisor, columns.divisor) if divisor is None else np.full(target.pixels, divisor)
    shares = 1 / divisors.reshape(-1).astype(np.float64)
    windows = builder.table([*rows.table, *columns.table])
    if isinstance(x, Analog):
        x = channels_last(builder, materialized(builder, x))
        pooled = _pool(builder, x, x.numbers, target, windows, shares)
        return Analog(target, pooled, Affine.identity(target.channels), from_input=x.from_input)
    most = rows.widest * columns.widest
    share = float(shares[0]) if (shares == shares[0]).all() else None
    if isinstance(x, Spikes):
        values, counts = builder.buffer(target, x.frames), builder.buffer(target, x.frames)
        builder.add(
            Opcode.SUM_SPIKES,
            **reads(x),
            **writes(target, values),
            counts=counts,
            windows=windows,
            scales=builder.constant(shares),
            lanes=1,
        )
        return Counts(target, values, counts, share, most)
    values = _pool(builder, x, x.values, target, windows, shares)
    counts = _pool(builder, x, x.counts, target, windows, np.ones(target.pixels))
    scale = None if x.scale is None or share is None else x.scale * share
    return Counts(target, values, counts, scale, most * x.most)


def _pool(
    builder: ProgramBuilder, x: Value, numbers: Buffer, target: Map, windows: int, shares: Doubles | None
) -> Buffer:
    """Add an average pool of numbers, or a max pool where there are no shares."""
    pooled = builder.buffer(target, x.frames)
    fields = {**reads(x), "source": numbers, **writes(target, pooled)}
    scales = -1 if shares is None else builder.constant(shares)
    builder.add(Opcode.POOL_MAP, **fields, windows=windows, scales=scales, largest=int(shares is None))
    return pooled


def _windows(pool: Pool, source: Map, target: Map) -> tuple[Windows, Windows]:
    """Give the windows along height and width; a pool along one axis has only the width."""
    if len(pool.kernel) == 1:
        (columns,) = pool.windows((source.width,), (target.width,))
        return Windows.adaptive(source.height, target.height), columns
    rows, columns = pool.windows((source.height, source.width), (target.height, target.width))
    return rows, columns
