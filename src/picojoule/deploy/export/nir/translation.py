"""One run of the captured graph with currents in place of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
from picojoule.deploy.export.nir.builder import Current, GraphBuilder, PendingLayer, checked_by_nir, neurons
from picojoule.deploy.export.nir.rules import EITHER_SIDE, REMEDIES, RULES, SUMS
from picojoule.deploy.graph.nodes import enclosing_modules, first_of, node_name, operation_name
from picojoule.deploy.graph.refusal import Unsupported
from picojoule.errors import PicojouleError, reason_of
from picojoule.kernels.torch_private import tree_leaves
from picojoule.spikes.spiking import spiking_modules


class Translation(fx.Interpreter):
    """A run of the captured graph: operations on tensors alone are computed, operations on currents become nodes.

    Args:
        model: The network.
        program: Its graph of operations.
    """

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        super().__init__(program.graph_module, garbage_collect_values=False)
        self.extra_traceback = False  # a refusal is one sentence
        self.program = program
        self.layers = spiking_modules(model)
        self.builder = GraphBuilder()

    def translated(self) -> nir.NIRGraph:
        """Run the graph and write down the nodes that it leaves.

        Returns:
            The NIR graph.

        Raises:
            PicojouleError: If an operation has no rule, or the network does not return one tensor.
        """
        specs = self.program.graph_signature.output_specs  # buffers that the pass writes are outputs too
        results = zip(specs, self.run(*self._arguments()), strict=True)
        outputs = [result for spec, result in results if spec.kind is OutputKind.USER_OUTPUT]
        if len(outputs) != 1 or not isinstance(outputs[0], Current):
            raise PicojouleError(
                "a network for NIR returns one tensor that depends on its input: return only the logits"
            )
        with NIR.refusing(lambda: "the network's output"):
            last = self.builder.with_bias_layer(outputs[0])
        self.builder.add("output", nir.Output(np.array(last.shape)), last.sources)
        pending = self.builder.nodes.items()
        nodes = {name: node.node() if isinstance(node, PendingLayer) else node for name, node in pending}
        return nir.NIRGraph(nodes, self.builder.edges, type_check=all(map(checked_by_nir, nodes.values())))

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
        currents = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Current)]
        if not currents:
            with _failing():  # computed as the network does it: in its types, with its rounding
                return super().call_function(target, args, kwargs)
        if getattr(target, "__name__", "") == "getitem":  # of the several results of one operation
            return args[0]
        node = self.builder.node
        name = operation_name(node)
        layer = first_of(enclosing_modules(node), self.layers)
        if layer is not None and name == "ge":
            return self._fired(layer, *args)
        rule = RULES.get(name)
        current_first = isinstance(args[0], Current) or name in EITHER_SIDE
        if rule is None or not current_first or (len(currents) > 1 and name not in SUMS):
            raise Unsupported(REMEDIES.get(name))
        with _failing():
            result: Current = rule(self.builder, *map(_precise, args), **kwargs)
        expected = node.meta["val"]
        shape = (expected[0] if isinstance(expected, tuple | list) else expected).shape
        if tuple(result.constant.shape) != tuple(shape):
            raise Unsupported
        return result

    def _fired(self, layer: str, u: Any, threshold: Any) -> Current:
        """Translate the one comparison of `Spike`; its cast passes, and what hooks do around it has its own rules."""
        if not isinstance(u, Current) or not isinstance(threshold, int | float):
            raise Unsupported(because="a comparison with something else than one threshold")
        shifted = np.float32(threshold) - u.constant[0].numpy()
        v_threshold = np.nextafter(shifted.astype(np.float32), np.float32(-np.inf))
        return self.builder.current(layer, neurons(v_threshold), u, torch.zeros_like(u.constant))


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
