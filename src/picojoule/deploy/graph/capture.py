"""The graph of a network's layers: what its forward pass calls, in order, by `torch.fx`.

Modules of `torch.nn`, spiking layers and the zoo's dropout are single nodes; the forward passes of all other modules
are followed. A forward pass may be written in any way that does not depend on the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from picojoule.deploy.altered_layers import alteration, hooks_of, refuse_global_hooks, refuse_low_precision
from picojoule.deploy.graph.batch_norm import Affine, features_only
from picojoule.deploy.graph.nodes import SHAPE, argument
from picojoule.deploy.graph.refusal import Destination
from picojoule.errors import PicojouleError, reason_of
from picojoule.neurons.time_steps import present, readout, unfold
from picojoule.spikes.spiking import is_spiking, unwrap
from picojoule.synapses.snapshot import unchanged
from picojoule.zoo.dropout import Dropout


def network_of(model: nn.Module, destination: Destination) -> nn.Module:
    """Take the user's own module out of its wrappers.

    Args:
        model: The network, perhaps wrapped by `torch.compile`, DDP or Fabric.
        destination: What the graph is for.

    Returns:
        The network itself.

    Raises:
        PicojouleError: If it is not an `nn.Module`, or has weights without values (on the device "meta").
    """
    model = unwrap(model)
    if not isinstance(model, nn.Module):
        raise PicojouleError(f"{destination.name} needs an nn.Module, not {type(model).__name__}: give it the network")
    empty = next((name for name, tensor in model.state_dict().items() if _is_meta(tensor)), None)
    if empty is not None:
        raise PicojouleError(
            f"{empty!r} is on the device 'meta' and has no values, so {destination.name} has nothing to take: give the "
            "model its weights, as with model.to_empty(device='cpu') and model.load_state_dict(...)"
        )
    return model


def _is_meta(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def refuse_hooks(model: nn.Module, destination: Destination) -> None:
    """Refuse what acts on the network as a whole and stands in none of its layers.

    Args:
        model: The network.
        destination: What would leave it out.

    Raises:
        PicojouleError: If the network has hooks or a forward pass set on the instance, or if hooks for all modules of
            the process are registered.
    """
    refuse_global_hooks(destination.name)
    if hooks_of(model) is not None or "forward" in vars(model):
        raise PicojouleError(
            f"{type(model).__name__} has hooks, or a forward pass set on the instance, which {destination.name} would "
            f"leave out: make them part of its class's forward pass{destination.otherwise}"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep a network in evaluation mode and without gradients for a block, and leave it as it was.

    Args:
        model: The network.

    Yields:
        Nothing.

    Example:
        >>> net = nn.Dropout().train()
        >>> with evaluating(net):
        ...     net.training
        False
        >>> net.training
        True
    """
    with unchanged(model), torch.no_grad():
        model.eval()
        yield


def layer_graph(model: nn.Module, destination: Destination) -> fx.Graph:
    """Capture the graph of a network's layers.

    Args:
        model: The network, in the mode in which it is to be captured.
        destination: What the graph is for.

    Returns:
        The graph, not yet checked against the network.

    Raises:
        PicojouleError: If the forward pass cannot be followed without numbers.

    Example:
        >>> destination = Destination("the example", "cannot take")
        >>> graph = layer_graph(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), destination)
        >>> [node.target for node in graph.nodes]
        ['input', '0', '1', 'output']
    """
    try:
        graph = _LayerTracer().trace(model)
    except PicojouleError:
        raise
    except Exception as error:  # a forward pass may raise anything when it is given no numbers
        raise _not_followed(model, error, destination) from error
    for node in list(graph.nodes):
        if node.target in (present, readout) and argument(node, 1, "steps") == 1:  # nothing is done in a single step
            node.replace_all_uses_with(*node.all_input_nodes)
            graph.erase_node(node)
    return graph


@contextmanager
def shaped_layer_graph(model: nn.Module, shape: tuple[int, ...], destination: Destination) -> Iterator[fx.Graph]:
    """Capture the graph of a network's layers in evaluation mode, with the shape of every result.

    Inside the block the model is as a forward pass leaves it, so that weights which it computes (weight norm, pruning)
    can be read from its layers as they were used; behind it the model is as it was. The graph is checked against the
    model on noise: `torch.fx` takes an assignment in place for a new value.

    Args:
        model: The network.
        shape: The shape of one sample, without the batch axis.
        destination: What the graph is for.

    Yields:
        The graph; `nodes.shape_of` reads the shapes.

    Raises:
        PicojouleError: If the forward pass cannot be followed, fails for a single sample, computes in a lower precision
            than float32, returns anything but one tensor of numbers, or returns something else than its graph.
    """
    refuse_hooks(model, destination)
    with evaluating(model):
        noise = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
        noise = noise.to(next(model.parameters(), noise))
        expected = _answer(model, noise.clone(), destination)
        if isinstance(expected, Tensor) and bool(expected.isnan().any()):
            raise PicojouleError(
                f"{type(model).__name__} answers with values that are not numbers (nan), so nothing can be compared "
                f"with it: give it weights and statistics that are finite{destination.otherwise}"
            )
        graph = layer_graph(model, destination)
        answer = _propagate_shapes(model, graph, noise.clone(), destination)
        if not isinstance(expected, Tensor) or not isinstance(answer, Tensor) or not torch.equal(expected, answer):
            raise PicojouleError(
                f"{type(model).__name__} returns something else than its graph: let it return one tensor, and "
                f"overwrite nothing in place in its forward pass (write x = x + y){destination.otherwise}"
            )
        yield graph


class _LayerTracer(fx.Tracer):
    """Takes modules of `torch.nn`, spiking layers, the ways in and out of time, and what a conversion adds as nodes."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=(present, readout, unfold, features_only))

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = type(m) in (Affine, Dropout) and alteration(m) is None  # what is hooked to them can be followed
        return is_spiking(m) or own or super().is_leaf_module(m, module_qualified_name)


class _ShapePropagation(fx.Interpreter):
    """Runs the graph once and notes the shape of each result; None for what is not a tensor."""

    def __init__(self, module: fx.GraphModule, destination: Destination) -> None:
        super().__init__(module)
        self.extra_traceback = False  # a refusal is one sentence
        self.destination = destination

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta[SHAPE] = tuple(result.shape) if isinstance(result, Tensor) else None
        if isinstance(result, Tensor):
            refuse_low_precision(result, self.destination.name)
        return result


def _propagate_shapes(model: nn.Module, graph: fx.Graph, noise: Tensor, destination: Destination) -> Any:
    """Run the graph on noise, note the shapes and return the answer."""
    try:
        return _ShapePropagation(fx.GraphModule(model, graph), destination).run(noise)
    except PicojouleError:
        raise
    except Exception as error:  # what the graph took for constants may not fit
        raise _not_followed(model, error, destination) from error


def _answer(model: nn.Module, image: Tensor, destination: Destination) -> Any:
    try:
        return model(image)
    except PicojouleError:
        raise
    except Exception as error:  # the user's forward pass may raise anything
        raise PicojouleError(
            f"the forward pass of {type(model).__name__} fails for a batch of one in evaluation mode "
            f"({reason_of(error)}), and {destination.name} answers images one by one: let it take a single image"
            f"{destination.otherwise}"
        ) from error


def _not_followed(model: nn.Module, error: Exception, destination: Destination) -> PicojouleError:
    return PicojouleError(
        f"{destination.name} cannot follow the forward pass of {type(model).__name__} ({reason_of(error)}): let what "
        f"it calls not depend on its tensors' numbers, sizes or types{destination.otherwise}"
    )
