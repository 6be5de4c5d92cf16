"""One run of the captured graph with currents in place of tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nir
import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from picojoule.deploy.altered_layers import refuse_low_precision
from picojoule.deploy.export.nir.draft import Current, Draft, Weighted, checked_by_nir, neurons
from picojoule.deploy.export.nir.rules import EITHER_SIDE, RULES, SUMS
from picojoule.deploy.export.program import layer_of
from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import operator_name, tree_leaves
from picojoule.spikes.spiking import spiking_modules


class Translation(fx.Interpreter):
    """Runs the captured graph: operations on tensors alone are computed, operations on currents become nodes."""

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        super().__init__(program.graph_module, garbage_collect_values=False)
        self.extra_traceback = False  # a refusal is one sentence
        self.program = program
        self.layers = spiking_modules(model)
        self.draft = Draft()

    def translated(self) -> nir.NIRGraph:
        outputs = self.run(*self._arguments())
        if len(outputs) != 1 or not isinstance(outputs[0], Current):
            raise PicojouleError(
                "a network for NIR returns one tensor that depends on its input: return only the logits"
            )
        last = self.draft.without_constant(outputs[0])
        self.draft.add("output", nir.Output(np.array(last.shape)), last.sources)
        nodes = {name: node.node() if isinstance(node, Weighted) else node for name, node in self.draft.nodes.items()}
        return nir.NIRGraph(nodes, self.draft.edges, type_check=all(map(checked_by_nir, nodes.values())))

    def _arguments(self) -> list[Any]:
        values: list[Any] = []
        for spec, node in zip(self.program.graph_signature.input_specs, self.program.graph.nodes, strict=False):
            if spec.kind is InputKind.USER_INPUT:
                images = torch.zeros(node.meta["val"].shape, dtype=torch.float64)
                self.draft.add("input", nir.Input(np.array(images.shape[1:])), ())
                values.append(Current(("input",), images, shared=True))
            else:
                held = {**self.program.state_dict, **self.program.constants}[str(spec.target)]
                values.append(_precise(held.detach().cpu()) if isinstance(held, Tensor) else held)
        return values

    def run_node(self, n: fx.Node) -> Any:
        self.draft.at = n
        for result in tree_leaves(n.meta.get("val")):
            if isinstance(result, Tensor):
                refuse_low_precision(result, "the NIR export")
        value = super().run_node(n)
        read_by = [user for user in n.users if "_assert" not in str(user.target)]
        return replace(value, shared=True) if isinstance(value, Current) and len(read_by) > 1 else value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if "_assert" in str(target):  # of the exporter's own; constants here are of a finer type than it expects
            return None
        currents = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Current)]
        if not currents:
            return _precise(super().call_function(target, args, kwargs))
        if getattr(target, "__name__", "") == "getitem":  # of the several results of one operation
            return args[0]
        name = operator_name(target)
        layer = layer_of(self.draft.path(), self.layers)
        if layer is not None and name == "ge":
            return self._fired(layer, *args)
        rule = RULES.get(name)
        in_place = isinstance(args[0], Current) or name in EITHER_SIDE
        if rule is None or not in_place or (len(currents) > 1 and name not in SUMS):
            raise self.draft.refusal(name)
        result: Current = rule(self.draft, *args, **kwargs)
        expected = self.draft.at.meta["val"]
        shape = (expected[0] if isinstance(expected, tuple | list) else expected).shape
        if tuple(result.constant.shape) != tuple(shape):
            raise self.draft.refusal(name)
        return result

    def _fired(self, layer: str, u: Any, threshold: Any) -> Current:
        """`Spike` is one comparison, and a cast, which passes; what hooks do around it has rules like everything."""
        if not isinstance(u, Current) or not isinstance(threshold, int | float):
            raise self.draft.refusal("comparison with another thing than one threshold")
        shifted = np.float32(threshold) - u.constant[0].numpy()
        v_threshold = np.nextafter(shifted.astype(np.float32), np.float32(-np.inf))
        return self.draft.current(layer, neurons(v_threshold), u, torch.zeros_like(u.constant))


def _precise(value: Any) -> Any:
    """What the network computes from weights alone is computed in doubles, and rounded once at the end."""
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
