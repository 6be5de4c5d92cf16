"""From a network to a NIR graph. The package `nir` is imported only when one is made."""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING

from torch import Tensor, nn

from picojoule.deploy.export.destinations import NIR
from picojoule.deploy.export.verification import refuse_difference
from picojoule.deploy.graph.operations import network_and_zeros, operation_graph
from picojoule.errors import PicojouleError
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.spike import Spike
from picojoule.spikes.spiking import spiking_modules

if TYPE_CHECKING:
    import nir

    from picojoule.deploy.export.nir.translation import Translated


def to_nir(model: nn.Module, example: Tensor, reader: str = "nir") -> nir.NIRGraph:
    """Export a network of `picojoule.Spike`, `IF` or `LIF` as a NIR graph of one time step.

    The graph is executed and compared with the network, on the example and on noise, before it is given out.

    Args:
        model: The network; it stays as it is.
        example: A batch as the network takes it.
        reader: The program that is to read it: "norse", "snntorch", "spikingjelly", "sinabs", or "nir" for all that
            follow NIR's own equations.

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
    result = translated(model, example, reader)
    check(model, example, result, result.graph)
    return result.graph


def translated(model: nn.Module, example: Tensor, reader: str = "nir") -> Translated:
    """Translate a network by the rules, without comparing the result with it.

    Args:
        model: The network.
        example: A batch as the network takes it.
        reader: The program that is to read it.

    Returns:
        The graph, and how it is to be run.

    Raises:
        PicojouleError: If the network has other neurons or an operation that NIR cannot express.
    """
    model, images = network_and_zeros(model, example, NIR)
    _check_neurons(model)
    _check_nir()
    from picojoule.deploy.export.nir.readers import reader_named  # brings nir, which is optional
    from picojoule.deploy.export.nir.translation import Translation

    known = reader_named(reader)
    return Translation(model, operation_graph(model, images), known).translated()


def check(model: nn.Module, example: Tensor, result: Translated, graph: nir.NIRGraph) -> None:
    """Refuse a graph that does something else than the network.

    Args:
        model: The network.
        example: A batch as the network takes it.
        result: How the graph is to be run.
        graph: The graph, perhaps read back from a file.

    Raises:
        PicojouleError: If it differs by more than rounding.
    """
    from picojoule.deploy.export.nir.execution import executed

    refuse_difference(model, example, NIR, lambda images: executed(result, graph, model, images))


def _check_neurons(model: nn.Module) -> None:
    layers = spiking_modules(model)
    if not layers:
        raise PicojouleError(
            f"{type(model).__name__} has no spiking layer that picojoule knows: train it with picojoule.Spike, or "
            "export to ONNX"
        )
    for name, layer in layers.items():
        if type(layer) not in (Spike, IF, LIF):
            raise PicojouleError(
                f"the neurons {name!r} ({type(layer).__name__}) have no node in NIR that does the same: use "
                "picojoule.Spike, IF or LIF, or export to ONNX"
            )


def _check_nir() -> None:
    """Refuse a version of nir that knows less than what is written; sinabs brings one."""
    here = importlib.metadata.version("nir")
    if tuple(map(int, re.findall(r"\d+", here)[:3])) < (1, 0, 8):
        raise PicojouleError(
            f"exporting to nir needs nir 1.0.8 or newer, and here is {here}: export in another environment; what is "
            "written with reader='sinabs' can be read with older ones"
        )
