"""Synapses counted one by one, in plain numpy: no gradients, and nothing of picojoule.

A network is a list of `Node`s (see `networks`). Every value here is an array of *counts* with a leading batch axis:
how many spikes arrive at each place. To count one neuron's synapses a single spike is set, everything behind it is
followed up to the next weights, and each weight that the spike meets is charged once. All neurons of a layer are
followed at the same time, one in each row of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

SOURCES = ("input", "spike", "relay")


@dataclass
class Node:
    op: str
    inputs: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    """Of one sample, with a leading 1."""
    weights_of: int | None = None
    """For a synaptic module that is used again: the node that owns its weights."""


def is_synaptic(node: Node) -> bool:
    return node.op in ("conv", "conv_transpose", "linear", "matmul", "mm")


# -------------------------------------------------------------------------------------------------------------- passing


def window(n: int, k: int, stride: int, padding: int, ceil: bool) -> np.ndarray:
    """[outputs, n] ones where an average pool's window covers an element."""
    span = n + 2 * padding - k
    outputs = (math.ceil(span / stride) if ceil else span // stride) + 1
    if ceil and (outputs - 1) * stride >= n + padding:  # a window must start inside the map or its left border
        outputs -= 1
    covers = np.zeros((outputs, n), dtype=np.int64)
    for o, tap in product(range(outputs), range(k)):
        if 0 <= o * stride - padding + tap < n:
            covers[o, o * stride - padding + tap] = 1
    return covers


def adaptive_window(n: int, outputs: int) -> np.ndarray:
    covers = np.zeros((outputs, n), dtype=np.int64)
    for o in range(outputs):
        covers[o, math.floor(o * n / outputs) : math.ceil((o + 1) * n / outputs)] = 1
    return covers


def along(x: np.ndarray, axis: int, covers: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.moveaxis(x, axis, -1) @ covers.T, -1, axis)


def pixel_shuffle(x: np.ndarray, r: int) -> np.ndarray:
    b, c, h, w = x.shape
    out = np.zeros((b, c // r**2, h * r, w * r), dtype=x.dtype)
    for channel, i, j in product(range(c // r**2), range(h * r), range(w * r)):
        out[:, channel, i, j] = x[:, channel * r**2 + (i % r) * r + j % r, i // r, j // r]
    return out


def unfolded(x: np.ndarray, k: int) -> np.ndarray:
    """Sliding k×k patches as columns: [B, C·k·k, positions]."""
    _, c, h, w = x.shape
    columns = [
        np.stack(
            [x[:, channel, i + di, j + dj] for channel, di, dj in product(range(c), range(k), range(k))],
            axis=1,
        )
        for i, j in product(range(h - k + 1), range(w - k + 1))
    ]
    return np.stack(columns, axis=2)


def passed(node: Node, arrivals: list[np.ndarray]) -> np.ndarray:
    """What a passing operation makes of the counts that arrive."""
    x, s = arrivals[0], node.settings
    match node.op:
        case "batch_norm" | "dropout" | "detach" | "scale" | "cast" | "clone" | "bias" | "negative" | "identity":
            return x
        case "tanh":
            return np.ones_like(x)  # of pixels: some analog value everywhere
        case "reshape":
            return x.reshape(len(x), *s["shape"])
        case "permute":
            return x.transpose(0, *s["axes"])
        case "slice":
            return x[(slice(None), *s["index"])]
        case "select":
            return np.take(x, s["index"], axis=s["axis"])
        case "index_select":
            return np.take(x, list(s["index"]), axis=s["axis"])
        case "flip":
            return np.flip(x, s["axis"])
        case "roll":
            return np.roll(x, s["shift"], s["axis"])
        case "repeat":
            return np.concatenate([x] * s["times"], axis=s["axis"])
        case "repeat_interleave":
            return np.repeat(x, s["times"], axis=s["axis"])
        case "chunk":
            size = math.ceil(x.shape[s["axis"]] / 2)
            parts = np.split(x, [size], axis=s["axis"])
            return parts[s["part"]]
        case "sum" | "mean":
            return x.sum(axis=s["axes"], keepdims=s["keepdim"])
        case "pixel_shuffle":
            return pixel_shuffle(x, s["r"])
        case "unfold":
            return unfolded(x, s["k"])
        case "upsample":
            for axis, size in enumerate(s["size"], start=2):
                n = x.shape[axis]
                x = np.take(x, [math.floor(o * n / size) for o in range(size)], axis=axis)
            return x
        case "pad":
            modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
            widths = [(0, 0)] * (x.ndim - len(s["widths"])) + list(s["widths"])
            return np.pad(x, widths, mode=modes[s["mode"]])
        case "avg_pool" | "sum_pool":
            for axis, (k, stride, padding) in enumerate(s["axes"], start=2):
                x = along(x, axis, window(x.shape[axis], k, stride, padding, s["ceil"]))
            return x
        case "adaptive_avg_pool":
            for axis, size in enumerate(s["size"], start=2):
                x = along(x, axis, adaptive_window(x.shape[axis], size))
            return x
        case "relay":  # only its shape: what passes a max pool depends on the data
            for axis, (k, stride, padding) in enumerate(s["axes"], start=2):
                x = along(x, axis, window(x.shape[axis], k, stride, padding, s["ceil"]))
            return x
        case "spike":
            return x
        case "add":
            return arrivals[0] + arrivals[1]
        case "cat":
            return np.concatenate(arrivals, axis=s["axis"])
        case "stack":
            return np.stack(arrivals, axis=s["axis"])
        case "write":  # zeros with two values written into them, side by side
            return np.concatenate(arrivals, axis=1)
    raise AssertionError(f"the oracle does not know {node.op}")


# ------------------------------------------------------------------------------------------------------------- synapses


def same_padding(k: int, dilation: int) -> tuple[int, int]:
    total = dilation * (k - 1)
    return total // 2, total - total // 2


def entering(node: Node, x: np.ndarray) -> np.ndarray:
    """The map that meets the weights: a convolution's padding mode copies values before them."""
    s = node.settings
    if node.op != "conv" or s["padding_mode"] == "zeros":
        return x
    widths = [
        same_padding(k, d) if s["padding"] == "same" else (p, p)
        for k, d, p in zip(s["kernel"], s["dilation"], _tuple(s["padding"], len(s["kernel"])), strict=True)
    ]
    return passed(Node("pad", settings={"widths": widths, "mode": s["padding_mode"]}), [x])


def _tuple(value: Any, length: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) * length


def fan_out(node: Node, shape: tuple[int, ...], present: np.ndarray) -> np.ndarray:
    """[*shape]: the weights that one spike at each place of one sample meets, counted tap by tap."""
    s = node.settings
    if node.op in ("linear", "mm", "matmul"):
        met = np.zeros(shape, dtype=np.int64)
        for row, column in product(*map(range, present.shape)):
            if node.op == "linear":
                met[..., column] += present[row, column]
            elif s.get("left"):
                met[..., column, :] += present[row, column]
            else:
                met[..., row] += present[row, column]
        return met
    sizes, kernel = shape[1:], s["kernel"]
    met = np.zeros(shape, dtype=np.int64)
    stride, dilation, groups = s["stride"], s["dilation"], s["groups"]
    if node.op == "conv":
        if s["padding_mode"] != "zeros":
            pads = [(0, 0)] * len(sizes)
        elif s["padding"] == "same":
            pads = [same_padding(k, d) for k, d in zip(kernel, dilation, strict=True)]
        else:
            pads = [(p, p) for p in s["padding"]]
        outputs = [
            (n + sum(pad) - d * (k - 1) - 1) // st + 1
            for n, pad, d, k, st in zip(sizes, pads, dilation, kernel, stride, strict=True)
        ]
        per_group = present.shape[0] // groups
        for out, tap in product(product(*map(range, outputs)), product(*map(range, kernel))):
            at = tuple(
                o * st - pad[0] + t * d for o, st, pad, t, d in zip(out, stride, pads, tap, dilation, strict=True)
            )
            if all(0 <= a < n for a, n in zip(at, sizes, strict=True)):
                for channel in range(shape[0]):
                    group, inner = divmod(channel, shape[0] // groups)
                    rows = slice(group * per_group, (group + 1) * per_group)
                    met[(channel, *at)] += present[(rows, inner, *tap)].sum()
        return met
    outputs = [
        (n - 1) * st - 2 * p + d * (k - 1) + op + 1
        for n, st, p, d, k, op in zip(sizes, stride, s["padding"], dilation, kernel, s["output_padding"], strict=True)
    ]
    for at, tap in product(product(*map(range, sizes)), product(*map(range, kernel))):
        out = tuple(a * st - p + t * d for a, st, p, t, d in zip(at, stride, s["padding"], tap, dilation, strict=True))
        if all(0 <= o < n for o, n in zip(out, outputs, strict=True)):
            for channel in range(shape[0]):
                met[(channel, *at)] += present[(channel, slice(None), *tap)].sum()
    return met


# --------------------------------------------------------------------------------------------------------------- totals


@dataclass
class Count:
    fan_out: dict[int, np.ndarray]
    """By the node of the spiking layer or relay, in the shape of its map."""
    encoder_macs: int
    dense_macs: int


def count(nodes: list[Node], present: dict[int, np.ndarray]) -> Count:
    """`present`: the weights of each synaptic node as ones, with zeros where they were pruned."""
    fans: dict[int, np.ndarray] = {}
    for i, node in enumerate(nodes):
        if is_synaptic(node):
            shape = entering(node, np.zeros(nodes[node.inputs[0]].shape, dtype=np.int64)).shape[1:]
            fans[i] = fan_out(node, shape, present[i if node.weights_of is None else node.weights_of])

    def follow(start: int, emitted: np.ndarray, once: bool) -> np.ndarray:
        """The weights met by each row of `emitted`, by what `start` alone sends out."""
        rows = len(emitted)
        values: dict[int, np.ndarray] = {start: emitted}
        met = np.zeros(rows, dtype=np.int64)
        for i, node in enumerate(nodes):
            if i == start or not any(values[j].any() for j in node.inputs if j in values):
                continue
            arrivals = [values.get(j, np.zeros((rows, *nodes[j].shape[1:]), dtype=np.int64)) for j in node.inputs]
            if is_synaptic(node):
                x = entering(node, arrivals[0])
                met += ((x > 0 if once else x) * fans[i]).reshape(rows, -1).sum(1)
            elif node.op not in SOURCES or (node.op == "relay" and not node.settings["of_spikes"]):
                values[i] = passed(node, arrivals)
        return met

    fan_outs = {}
    for i, node in enumerate(nodes):
        feeds_spikes = node.op == "relay" and node.settings["of_spikes"]
        if node.op == "spike" or feeds_spikes:
            neurons = math.prod(node.shape)
            one_each = np.eye(neurons, dtype=np.int64).reshape(neurons, *node.shape[1:])
            fan_outs[i] = follow(i, one_each, once=False).reshape(node.shape[1:])
    encoder = follow(0, np.ones(nodes[0].shape, dtype=np.int64), once=True)
    return Count(fan_outs, int(encoder[0]), int(sum(fan.sum() for fan in fans.values())))
