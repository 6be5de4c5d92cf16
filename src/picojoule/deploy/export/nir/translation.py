"""One run of the captured graph with currents in place of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import nir
import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from picojoule.deploy.altered_layers import refuse_low_precision
from picojoule.deploy.export.destinations import NIR
from picojoule.deploy.export.nir.builder import Current, GraphBuilder, PendingLayer, Readout, checked_by_nir
from picojoule.deploy.export.nir.readers import MEMORYLESS, Reader
from picojoule.deploy.export.nir.rules import EITHER_SIDE, JOINS, REMEDIES, RULES, SUMS
from picojoule.deploy.graph.nodes import enclosing_modules, first_of, node_name, operation_name
from picojoule.deploy.graph.refusal import Unsupported
from picojoule.errors import PicojouleError, reason_of
from picojoule.kernels.torch_private import tree_leaves
from picojoule.neurons.lif import Membrane, MembraneNeuron
from picojoule.spikes.spiking import spiking_modules


@dataclass(frozen=True, eq=False)
class Translated:
    """A network as a NIR graph of one time step, and how it is to be run.

    Attributes:
        graph: The graph.
        reader: The program that is to read it.
        steps: Time steps of a sample, each of which gets the same input.
        split: Whether the network puts out [T, B, …].
        readout: What becomes of the outputs of all steps; None leaves them.
        layers: For the nodes of each spiking layer's calls, whether the layer puts out [T, B, …].
        max_spikes: Of a neuron in one step.
    """

    graph: nir.NIRGraph
    reader: Reader
    steps: int
    split: bool
    readout: Readout | None
    layers: dict[str, list[tuple[str, bool]]]
    max_spikes: int | None


@dataclass(frozen=True)
class Inside:
    """A value inside the forward pass of neurons with a membrane, which are translated as one."""

    spikes: Current


class Translation(fx.Interpreter):
    """A run of the captured graph: operations on tensors alone are computed, operations on currents become nodes.

    Args:
        model: The network.
        program: Its graph of operations.
        reader: The program that is to read the graph.
    """

    def __init__(self, model: nn.Module, program: ExportedProgram, reader: Reader) -> None:
        super().__init__(program.graph_module, garbage_collect_values=False)
        self.extra_traceback = False  # a refusal is one sentence
        self.program = program
        self.layers = spiking_modules(model)
        self.builder = GraphBuilder(reader)
        self._calls: dict[str, Inside] = {}
        """The calls of neurons with a membrane, by their place in the graph."""
        self._nodes: dict[str, list[tuple[str, bool]]] = {}
        self._steps = 1
        self._max_spikes: set[int | None] = set()

    def translated(self) -> Translated:
        """Run the graph and write down the nodes that it leaves.

        Returns:
            The NIR graph, and how it is to be run.

        Raises:
            PicojouleError: If an operation has no rule, or the network does not return one tensor.
        """
        specs = self.program.graph_signature.output_specs  # buffers that the pass writes are outputs too
        results = zip(specs, self.run(*self._arguments()), strict=True)
        outputs = [_outside(result) for spec, result in results if spec.kind is OutputKind.USER_OUTPUT]
        if len(outputs) != 1 or not isinstance(outputs[0], Current):
            raise PicojouleError(
                "a network for NIR returns one tensor that depends on its input: return only the logits"
            )
        with NIR.refusing(lambda: "the network's output"):
            last = self.builder.with_bias_layer(outputs[0])
        self.builder.add("output", nir.Output(np.array(last.shape)), last.sources)
        pending = self.builder.nodes.items()
        nodes = {name: node.node() if isinstance(node, PendingLayer) else node for name, node in pending}
        graph = nir.NIRGraph(nodes, self.builder.edges, type_check=all(map(checked_by_nir, nodes.values())))
        if len(self._max_spikes) > 1:
            raise PicojouleError(
                "some neurons of the network fire once in a step at most and others more often, which no reader of NIR "
                "tells apart: let all have the same max_spikes"
            )
        most = next(iter(self._max_spikes), 1)
        return Translated(graph, self.builder.reader, self._steps, last.split, last.readout, self._nodes, most)

    def _arguments(self) -> list[Any]:
        values: list[Any] = []
        for spec, node in zip(self.program.graph_signature.input_specs, self.program.graph.nodes, strict=False):
            if spec.kind is InputKind.USER_INPUT:
                images = torch.zeros(node.meta["val"].shape, dtype=torch.float64)
                self.builder.add("input", nir.Input(np.array(images.shape[1:])), ())
                values.append(Current(("input",), images, shared=True))
            else:
                held = {**self.program.state_dict, **self.program.constants}[str(spec.target)]
                values.append(held.detach().cpu() if isinstance(held, Tensor) else held)
        return values

    def run_node(self, n: fx.Node) -> Any:
        """Run one node, refusing by its name what has no rule.

        Args:
            n: The node.

        Returns:
            A current, or what the operation gives for tensors alone.

        Raises:
            PicojouleError: If it has no rule, fails, or computes in a lower precision than float32.
        """
        self.builder.node = n
        for result in tree_leaves(n.meta.get("val")):
            if isinstance(result, Tensor):
                refuse_low_precision(result, NIR.name)
        with NIR.refusing(partial(node_name, n)):
            value = super().run_node(n)
        read_by = [user for user in n.users if "_assert" not in str(user.target)]
        return replace(value, shared=True) if isinstance(value, Current) and len(read_by) > 1 else value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operation on tensors alone, or apply the rule of one on currents.

        Args:
            target: The operation.
            args: What it is given.
            kwargs: What it is given by name.

        Returns:
            A tensor or a current.

        Raises:
            Unsupported: If an operation on currents has no rule, or one on tensors fails.
        """
        if "_assert" in str(target):  # of the exporter's own, about types and shapes that are known by now
            return None
        currents = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Current | Inside)]
        if not currents:
            with _failing():  # computed as the network does it: in its types, with its rounding
                return super().call_function(target, args, kwargs)
        node = self.builder.node
        layer = first_of(enclosing_modules(node), self.layers)
        if layer is not None and isinstance(self.layers[layer], MembraneNeuron):
            return self._within(layer, currents[0])
        args = torch.fx.node.map_aggregate(args, _outside)
        if getattr(target, "__name__", "") == "getitem":  # of the several results of one operation
            return args[0]
        name = operation_name(node)
        if layer is not None and name == "ge":
            return self._fired(layer, *args)
        rule = RULES.get(name)
        current_first = isinstance(args[0], Current) or name in EITHER_SIDE | JOINS
        if rule is None or not current_first or (len(currents) > 1 and name not in SUMS | JOINS):
            raise Unsupported(REMEDIES.get(name))
        with _failing():
            result: Current = rule(self.builder, *map(_precise, args), **kwargs)
        expected = node.meta["val"]
        shape = (expected[0] if isinstance(expected, tuple | list) else expected).shape
        if result.full_shape != tuple(shape):
            raise Unsupported
        return result

    def _within(self, layer: str, value: Current | Inside) -> Inside:
        """Translate the whole forward pass of neurons with a membrane where it takes its first current."""
        neurons = self.layers[layer]
        call = next(path for path, _ in self.builder.node.meta["nn_module_stack"].values() if _is_at(path, layer))
        if call not in self._calls:
            assert isinstance(value, Current)
            assert isinstance(neurons, MembraneNeuron)
            if (neurons.steps or value.steps) != value.steps or value.split is not (neurons.steps is None):
                raise Unsupported(because="which takes other time steps than the network gives it")
            self._calls[call] = Inside(self._neurons(layer, neurons.membrane, value))
        return self._calls[call]

    def _fired(self, layer: str, u: Any, threshold: Any) -> Current:
        """Translate the one comparison of `Spike`; its cast passes, and what hooks do around it has its own rules."""
        if not isinstance(u, Current) or not isinstance(threshold, int | float):
            raise Unsupported(because="a comparison with something else than one threshold")
        return self._neurons(layer, replace(MEMORYLESS, threshold=1.0), u, threshold)

    def _neurons(self, layer: str, membrane: Membrane, x: Current, threshold: float | None = None) -> Current:
        """Add a layer of neurons; a constant in front of them is taken off their thresholds where none is kept."""
        if x.readout is not None:
            raise Unsupported(because="neurons behind the mean or sum over time")
        if x.constant.any() and x.steps > 1 and membrane.leak < 1:
            raise Unsupported(
                because="neurons that integrate a constant which no bias takes",
                remedy="let each batch norm stand directly behind one convolution or linear layer without padding",
            )
        highest = np.float32(membrane.threshold if threshold is None else threshold) - x.constant[0].numpy()
        current = self.builder.current(
            layer, self.builder.reader.neurons(membrane, highest, x.steps), x, torch.zeros_like(x.constant)
        )
        self._nodes.setdefault(layer, []).append((current.sources[0], x.split))
        self._steps = max(self._steps, x.steps)
        self._max_spikes.add(membrane.max_spikes)
        return current


def _outside(value: Any) -> Any:
    """Take what neurons with a membrane put out, where an operation outside of them reads it."""
    return value.spikes if isinstance(value, Inside) else value


def _is_at(path: Any, layer: str) -> bool:
    return str(path).partition("@")[0] == layer


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:  # operations of the user's own may raise anything, PyTorch's for types without a kernel
        raise Unsupported(because=f"which fails outside of the network ({reason_of(error)})") from error


def _precise(value: Any) -> Any:
    """Convert to doubles: what is folded into weights is rounded once, at the end."""
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
