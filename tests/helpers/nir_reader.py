"""An independent reader of NIR files, in NumPy, written from the equations in NIR's documentation: it shares no code
with the exporter."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

import nir
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def execute(graph: nir.NIRGraph, images: Array, forced: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """What every node puts out in one step of length 1 from rest, for a batch [B, …].

    What several edges bring to a node adds up. Nodes in `forced` compute their output, but those behind them are given
    the forced one: so each layer is tried on identical inputs.
    """
    forced = forced or {}
    before: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        before[target].append(source)
    out: dict[str, Array] = {}
    for name in TopologicalSorter(before).static_order():
        node = graph.nodes[name]
        if isinstance(node, nir.Input):
            out[name] = images
            continue
        parts = [forced.get(source, out[source]) for source in before[name]]
        out[name] = step(node, sum(parts[1:], start=parts[0]))
    return out


def step(node: nir.NIRNode, x: Array) -> Array:
    match node:
        case nir.Output():
            return x
        case nir.Affine():
            return x @ node.weight.T + node.bias
        case nir.Linear():
            return x @ node.weight.T
        case nir.Scale():
            return x * node.scale
        case nir.Flatten():
            assert node.start_dim == -(x.ndim - 1) or node.start_dim == 0
            assert node.end_dim == -1
            return x.reshape(len(x), -1)
        case nir.Conv1d():
            stride, padding, dilation = ((1, int(v)) for v in (node.stride, node.padding, node.dilation))
            flat = convolution(x[:, :, None], node.weight[:, :, None], stride, (0, padding[1]), dilation, node.groups)
            return flat[:, :, 0] + node.bias[:, None]
        case nir.Conv2d():
            maps = convolution(x, node.weight, node.stride, node.padding, node.dilation, node.groups)
            return maps + node.bias[:, None, None]
        case nir.SumPool2d() | nir.AvgPool2d():
            total = sum_pool(x, node.kernel_size, node.stride, node.padding)
            return total / np.float32(np.prod(node.kernel_size)) if isinstance(node, nir.AvgPool2d) else total
        case nir.IF():
            v = node.r * x  # dv/dt = R I for one unit of time from v = 0
            return (v > node.v_threshold).astype(np.float32)
        case _:
            raise NotImplementedError(type(node).__name__)


def windows(x: Array, kernel: object, stride: object, padding: object, dilation: object = (1, 1)) -> Array:
    """[B, C, H', W', kh, kw]: what each output position sees."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (tuple(map(int, v)) for v in (kernel, stride, padding, dilation))
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    seen = np.lib.stride_tricks.sliding_window_view(x, (dh * (kh - 1) + 1, dw * (kw - 1) + 1), axis=(2, 3))
    return seen[:, :, ::sh, ::sw, ::dh, ::dw]


def convolution(x: Array, weight: Array, stride: object, padding: object, dilation: object, groups: int) -> Array:
    seen = windows(x, weight.shape[2:], stride, padding, dilation)
    parts = []
    for inputs, weights in zip(np.split(seen, int(groups), axis=1), np.split(weight, int(groups), axis=0), strict=True):
        b, c, h, w, kh, kw = inputs.shape
        columns = inputs.transpose(0, 2, 3, 1, 4, 5).reshape(b * h * w, c * kh * kw)
        parts.append((columns @ weights.reshape(len(weights), -1).T).reshape(b, h, w, -1).transpose(0, 3, 1, 2))
    return np.concatenate(parts, axis=1)


def sum_pool(x: Array, kernel: object, stride: object, padding: object) -> Array:
    return windows(x, kernel, stride, padding).sum((4, 5))
