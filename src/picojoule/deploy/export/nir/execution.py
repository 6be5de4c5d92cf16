"""Execution of a NIR graph for one step of length 1 from rest, so that it can be compared with the network."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

import nir
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.deploy.reproduction import Executed
from picojoule.spikes.spiking import is_relay, spiking_modules, unwrap


def executed(graph: nir.NIRGraph, model: nn.Module, images: Tensor) -> Executed:
    """Run a graph on a batch, and sort out the spikes of those of its neurons that are layers of the model.

    Args:
        graph: The graph.
        model: The network that it was made of.
        images: A batch.

    Returns:
        The graph's output and spikes.
    """
    out = run(graph, images.to("cpu", torch.float32))
    model = unwrap(model)
    relays = [name for name, module in model.named_modules() if is_relay(module)]
    spikes = {name: [out[node] for node in _calls(graph, name)] for name in [*spiking_modules(model), *relays]}
    return Executed(out["output"], {name: calls for name, calls in spikes.items() if calls})


def run(graph: nir.NIRGraph, images: Tensor) -> dict[str, Tensor]:
    """Compute what every node puts out; what several edges bring to a node adds up.

    Args:
        graph: The graph.
        images: A batch [B, …].

    Returns:
        The outputs by the nodes' names.
    """
    before: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        before[target].append(source)
    out: dict[str, Tensor] = {}
    for name in TopologicalSorter(before).static_order():
        parts = [out[source] for source in before[name]]
        node = graph.nodes[name]
        out[name] = images if isinstance(node, nir.Input) else _step(node, sum(parts[1:], start=parts[0]))
    return out


def _calls(graph: nir.NIRGraph, layer: str) -> list[str]:
    """List the neurons that one layer became, in the order of its calls: the second is called `layer:2`."""
    names = [name for name, node in graph.nodes.items() if isinstance(node, nir.IF)]
    later = [name for name in names if name.rpartition(":")[0] == layer and name.rpartition(":")[2].isdigit()]
    return [name for name in names if name == layer] + sorted(later, key=lambda name: int(name.rpartition(":")[2]))


def _step(node: nir.NIRNode, x: Tensor) -> Tensor:
    match node:
        case nir.Output():
            return x
        case nir.Affine():
            return F.linear(x, _tensor(node.weight), _tensor(node.bias))
        case nir.Linear():
            return F.linear(x, _tensor(node.weight))
        case nir.Scale():
            return x * _tensor(node.scale)
        case nir.Flatten():
            return x.flatten(int(node.start_dim), int(node.end_dim))
        case nir.Conv1d() | nir.Conv2d():
            convolve: Any = F.conv1d if isinstance(node, nir.Conv1d) else F.conv2d
            place = [_sizes(size) for size in (node.stride, node.padding, node.dilation)]
            currents: Tensor = convolve(x, _tensor(node.weight), _tensor(node.bias), *place, int(node.groups))
            return currents
        case nir.SumPool2d() | nir.AvgPool2d():
            window, stride, padding = (_sizes(size) for size in (node.kernel_size, node.stride, node.padding))
            divisor = 1 if isinstance(node, nir.SumPool2d) else None
            return F.avg_pool2d(x, window, stride, padding, divisor_override=divisor)
        case nir.IF():
            return (_tensor(node.r) * x > _tensor(node.v_threshold)).float()
    raise NotImplementedError(type(node).__name__)  # which no rule writes


def _tensor(numbers: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.float32))


def _sizes(size: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.atleast_1d(size))
