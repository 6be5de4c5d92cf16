"""Execution of a NIR graph from rest as its reader runs it, so that it can be compared with the network."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

import nir
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.deploy.export.nir.readers import tensor_of
from picojoule.deploy.export.nir.translation import Translated
from picojoule.deploy.reproduction import Executed
from picojoule.spikes.spiking import is_relay, unwrap


def executed(translated: Translated, graph: nir.NIRGraph, model: nn.Module, images: Tensor) -> Executed:
    """Run a graph on a batch, and sort out the spikes of those of its neurons that are layers of the model.

    Args:
        translated: How it is to be run.
        graph: The graph, perhaps read back from a file.
        model: The network that it was made of.
        images: A batch, the same in every step.

    Returns:
        The graph's output and spikes.
    """
    steps = run(translated, graph, images.to("cpu", torch.float32))
    model = unwrap(model)
    relays = {name: _relays(graph, name) for name, module in model.named_modules() if is_relay(module)}
    calls = translated.layers | {name: [(node, False) for node in nodes] for name, nodes in relays.items() if nodes}
    spikes = {name: [_joined(steps, node, split) for node, split in nodes] for name, nodes in calls.items()}
    if translated.readout is None:
        return Executed(_joined(steps, "output", translated.split), spikes)
    outputs = torch.stack([out["output"] for out in steps])
    return Executed(outputs.mean(0) if translated.readout == "mean" else outputs.sum(0), spikes)


def run(translated: Translated, graph: nir.NIRGraph, images: Tensor) -> list[dict[str, Tensor]]:
    """Compute what every node puts out in each step; what several edges bring to a node adds up.

    Args:
        translated: How it is to be run.
        graph: The graph.
        images: A batch [B, …].

    Returns:
        The outputs by the nodes' names, step by step.
    """
    before: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        before[target].append(source)
    order = list(TopologicalSorter(before).static_order())
    neurons = {
        name: translated.reader.equations(node, translated.max_spikes)
        for name, node in graph.nodes.items()
        if isinstance(node, nir.IF | nir.LIF)
    }
    potentials: dict[str, Tensor | None] = dict.fromkeys(neurons)
    steps: list[dict[str, Tensor]] = []
    for _ in range(translated.steps):
        out: dict[str, Tensor] = {}
        for name in order:
            parts, node = [out[source] for source in before[name]], graph.nodes[name]
            x = images if isinstance(node, nir.Input) else sum(parts[1:], start=parts[0])
            if name in neurons:
                out[name], potentials[name] = neurons[name].step(potentials[name], x)
            else:
                out[name] = x if isinstance(node, nir.Input) else _step(node, x)
        steps.append(out)
    return steps


def _joined(steps: list[dict[str, Tensor]], node: str, split: bool) -> Tensor:
    """Put the steps together as the network has them, [T·B, …] or [T, B, …]."""
    outputs = [out[node] for out in steps]
    return torch.stack(outputs) if split else torch.cat(outputs)


def _relays(graph: nir.NIRGraph, layer: str) -> list[str]:
    """List the neurons that one max pool became, in the order of its calls: the second is called `layer:2`."""
    names = [name for name, node in graph.nodes.items() if isinstance(node, nir.IF | nir.LIF)]
    later = [name for name in names if name.rpartition(":")[0] == layer and name.rpartition(":")[2].isdigit()]
    return [name for name in names if name == layer] + sorted(later, key=lambda name: int(name.rpartition(":")[2]))


def _step(node: nir.NIRNode, x: Tensor) -> Tensor:
    match node:
        case nir.Output():
            return x
        case nir.Affine():
            return F.linear(x, tensor_of(node.weight), tensor_of(node.bias))
        case nir.Linear():
            return F.linear(x, tensor_of(node.weight))
        case nir.Scale():
            return x * tensor_of(node.scale)
        case nir.Flatten():
            return x.flatten(int(node.start_dim), int(node.end_dim))
        case nir.Conv1d() | nir.Conv2d():
            convolve: Any = F.conv1d if isinstance(node, nir.Conv1d) else F.conv2d
            place = [_sizes(size) for size in (node.stride, node.padding, node.dilation)]
            currents: Tensor = convolve(x, tensor_of(node.weight), tensor_of(node.bias), *place, int(node.groups))
            return currents
        case nir.SumPool2d() | nir.AvgPool2d():
            window, stride, padding = (_sizes(size) for size in (node.kernel_size, node.stride, node.padding))
            divisor = 1 if isinstance(node, nir.SumPool2d) else None
            return F.avg_pool2d(x, window, stride, padding, divisor_override=divisor)
    raise NotImplementedError(type(node).__name__)  # which no rule writes


def _sizes(size: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.atleast_1d(size))
