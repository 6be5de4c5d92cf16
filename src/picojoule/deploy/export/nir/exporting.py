"""From a network to a NIR graph. The package `nir` is imported only when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from picojoule.deploy.export.destinations import NIR
from picojoule.deploy.export.verification import refuse_difference
from picojoule.deploy.graph.operations import network_and_zeros, operation_graph
from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.spikes.spiking import spiking_modules

if TYPE_CHECKING:
    import nir


def to_nir(model: nn.Module, example: Tensor) -> nir.NIRGraph:
    """Export a network of `picojoule.Spike` as a NIR graph.

    The graph is executed and compared with the network, on the example and on noise, before it is given out.

    Args:
        model: The network; it stays as it is.
        example: A batch as the network takes it.

    Returns:
        The graph, whose nodes are named after the network's layers.

    Raises:
        PicojouleError: If the network has other neurons or an operation that NIR cannot express, or if the graph does
            not reproduce it.

    Example:
        >>> import torch
        >>> import picojoule as pj
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), pj.Spike(), nn.Linear(3, 2, bias=False))
        >>> graph = to_nir(net, torch.zeros(1, 4))
        >>> {name: type(node).__name__ for name, node in graph.nodes.items()}
        {'input': 'Input', '0': 'Affine', '2': 'IF', '3': 'Linear', 'output': 'Output'}
        >>> graph.nodes["2"].v_threshold
        array([0.99999994, 0.99999994, 0.99999994], dtype=float32)
    """
    graph = translated(model, example)
    check(model, example, graph)
    return graph


def translated(model: nn.Module, example: Tensor) -> nir.NIRGraph:
    """Translate a network by the rules, without comparing the result with it.

    Args:
        model: The network.
        example: A batch as the network takes it.

    Returns:
        The graph.

    Raises:
        PicojouleError: If the network has other neurons or an operation that NIR cannot express.
    """
    model, images = network_and_zeros(model, example, NIR)
    _check_neurons(model)
    from picojoule.deploy.export.nir.translation import Translation  # brings nir, which is optional

    return Translation(model, operation_graph(model, images)).translated()


def check(model: nn.Module, example: Tensor, graph: nir.NIRGraph) -> None:
    """Refuse a graph that does something else than the network.

    Args:
        model: The network.
        example: A batch as the network takes it.
        graph: The graph.

    Raises:
        PicojouleError: If it differs by more than rounding.
    """
    from picojoule.deploy.export.nir.execution import executed

    refuse_difference(model, example, NIR, lambda images: executed(graph, model, images))


def _check_neurons(model: nn.Module) -> None:
    layers = spiking_modules(model)
    if not layers:
        raise PicojouleError(
            f"{type(model).__name__} has no spiking layer that picojoule knows: train it with picojoule.Spike, or "
            "export to ONNX"
        )
    for name, layer in layers.items():
        if type(layer) is not Spike:
            raise PicojouleError(
                f"the neurons {name!r} ({type(layer).__name__}) have no node in NIR that does the same: use "
                "picojoule.Spike, or export to ONNX"
            )
