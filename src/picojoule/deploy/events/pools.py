"""Rules of pools: of spikes, of numbers made of spikes, and of currents."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from picojoule.deploy.events.currents import interleaved, plain
from picojoule.deploy.events.draft import Draft, reads, writes
from picojoule.deploy.events.folding import Affine, Doubles, Windows, pair
from picojoule.deploy.events.program import Kind, Map
from picojoule.deploy.events.values import Analog, Buffer, Counts, Refused, Spikes, Value, map_of, value_of


def average_pool(draft: Draft, name: str, pool: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    assert isinstance(pool, nn.AvgPool1d | nn.AvgPool2d)
    source, target = value_of(x).map, map_of(shape)
    rows, columns = _windows(pool, source, target, pool.count_include_pad)
    return _averaged(draft, value_of(x), target, rows, columns, getattr(pool, "divisor_override", None))


def adaptive_pool(draft: Draft, name: str, pool: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    source, target = value_of(x).map, map_of(shape)
    rows = Windows.adaptive(source.height, target.height)
    columns = Windows.adaptive(source.width, target.width)
    return _averaged(draft, value_of(x), target, rows, columns)


def mean(draft: Draft, x: Any, inputs: list[Any], kwargs: dict[str, Any], shape: tuple[int, ...]) -> Value:
    source = value_of(x).map
    dim = kwargs.get("dim", inputs[1] if len(inputs) > 1 else None)
    axes = [dim] if isinstance(dim, int) else list(dim or ())
    rank = 4 if source.height > 1 or len(axes) == 2 else 3
    if sorted(axis % rank for axis in axes) != list(range(2, rank)):
        raise Refused("take the mean over the whole map, .mean(dim=(2, 3))")
    rows, columns = Windows.adaptive(source.height, 1), Windows.adaptive(source.width, 1)
    return _averaged(draft, value_of(x), Map(source.channels), rows, columns)


def _averaged(
    draft: Draft, x: Value, target: Map, rows: Windows, columns: Windows, divisor: int | None = None
) -> Value:
    divisors = np.outer(rows.divisor, columns.divisor) if divisor is None else np.full(target.pixels, divisor)
    shares = 1 / divisors.reshape(-1).astype(np.float64)
    windows = draft.table([*rows.table, *columns.table])
    if isinstance(x, Analog):
        x = interleaved(draft, plain(draft, x))
        pooled = _pooled(draft, x, x.numbers, target, windows, shares)
        return Analog(target, pooled, Affine.identity(target.channels), pixels=x.pixels)
    widest = [max(b - a for a, b in zip(w.first, w.last, strict=True)) for w in (rows, columns)]
    most = widest[0] * widest[1]
    share = float(shares[0]) if (shares == shares[0]).all() else None
    if isinstance(x, Spikes):
        values, counts = draft.buffer(target), draft.buffer(target)
        draft.step(
            Kind.SUM_SPIKES,
            **reads(x),
            **writes(target, values),
            counts=counts,
            windows=windows,
            scales=draft.constant(shares),
            lanes=1,
        )
        return Counts(target, values, counts, share, most)
    values = _pooled(draft, x, x.values, target, windows, shares)
    counts = _pooled(draft, x, x.counts, target, windows, np.ones(target.pixels))
    scale = None if x.scale is None or share is None else x.scale * share
    return Counts(target, values, counts, scale, most * x.most)


def max_pool(draft: Draft, name: str, pool: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    assert isinstance(pool, nn.MaxPool1d | nn.MaxPool2d)
    if pair(pool, pool.dilation) != (1, 1) or pool.return_indices:
        raise Refused("leave out its dilation and its indices")
    x = value_of(x)
    target = map_of(shape)
    rows, columns = _windows(pool, x.map, target, True)
    windows = draft.table([*rows.table, *columns.table])
    if isinstance(x, Spikes):
        relayed = Spikes(target, draft.mask(target))
        step = draft.step(Kind.RELAY_SPIKES, **reads(x), **writes(target, relayed.mask), windows=windows)
        return draft.emits(name, relayed, shape, step, relay=True)
    if isinstance(x, Analog):
        x = interleaved(draft, plain(draft, x))
        pooled = _pooled(draft, x, x.numbers, target, windows, None)
        return Analog(target, pooled, Affine.identity(target.channels), pixels=x.pixels)
    if x.values is not x.counts:
        raise Refused("it takes parts of spikes; put the average pool behind it")
    numbers = _pooled(draft, x, x.values, target, windows, None)
    numbers.kept = True
    counts = Counts(target, numbers, numbers, 1.0, x.most)
    return draft.emits(name, counts, shape, draft.steps[-1], relay=True)


def _pooled(draft: Draft, x: Value, numbers: Buffer, target: Map, windows: int, shares: Doubles | None) -> Buffer:
    """An average pool, or a max pool where there are no shares."""
    made = draft.buffer(target)
    fields = {**reads(x), "source": numbers, **writes(target, made)}
    scales = -1 if shares is None else draft.constant(shares)
    draft.step(Kind.POOL_MAP, **fields, windows=windows, scales=scales, largest=int(shares is None))
    return made


def _windows(pool: Any, source: Map, target: Map, include_pad: bool) -> tuple[Windows, Windows]:
    """Those of a pool along height and width."""
    kernel, stride = pair(pool, pool.kernel_size), pair(pool, pool.stride)
    padding = pair(pool, pool.padding, 0)
    rows = Windows.sliding(source.height, target.height, kernel[0], stride[0], padding[0], include_pad)
    return rows, Windows.sliding(source.width, target.width, kernel[1], stride[1], padding[1], include_pad)
