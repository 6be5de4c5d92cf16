"""From a graph to a program: which rule each layer and each function has (`connecting`, `currents`, `pooling`).

Batch norm and everything else that scales a current is carried along (`Affine`) until it meets a threshold, where it
becomes a sign and a threshold for each channel, or a sum. Dropout does nothing, flattening spikes is a way to read
the next weights. What has no rule is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from picojoule.deploy.altered_layers import alteration, unreadable_weights
from picojoule.deploy.events.currents import add, as_analog, batch_norm, fire, reshape, scaled
from picojoule.deploy.events.draft import Draft, Weights, writes
from picojoule.deploy.events.folding import Affine, padded
from picojoule.deploy.events.graph import shape_of
from picojoule.deploy.events.pools import adaptive_pool, average_pool, max_pool, mean
from picojoule.deploy.events.program import Kind, Map, Program
from picojoule.deploy.events.synapses import convolution, linear
from picojoule.deploy.events.values import Analog, Buffer, Refused, Value, map_of, value_of
from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike


def lower(model: nn.Module, graph: fx.Graph, weights: Weights = "float32") -> Program:
    """The program of a captured graph."""
    return _Lowering(model, weights).run(graph)


class _Lowering:
    def __init__(self, model: nn.Module, weights: Weights) -> None:
        self.modules = dict(model.named_modules())
        self.draft = Draft(weights)

    def run(self, graph: fx.Graph) -> Program:
        made: dict[fx.Node, Value | None] = {}
        input_shape: tuple[int, ...] = ()
        output_shape: tuple[int, ...] = ()
        for node in graph.nodes:
            shape = shape_of(node)
            try:
                if node.op == "placeholder":
                    if input_shape or shape is None:
                        raise Refused("let the network take one tensor")
                    input_shape = shape[1:]
                    made[node] = _take(self.draft, map_of(shape))
                elif node.op == "output":
                    (answer,) = node.args
                    if not isinstance(answer, fx.Node) or made.get(answer) is None:
                        raise Refused("let the network return one tensor")
                    output_shape = (shape_of(answer) or ())[1:]
                    _give(self.draft, made[answer])
                elif shape is None or node.op == "get_attr":
                    made[node] = None  # a size or a constant; who needs its value will refuse it
                else:
                    made[node] = self.visit(node, made, shape)
            except Refused as refusal:
                raise PicojouleError(
                    f"the event engine cannot run {self.name(node)}: {refusal}, or use the dense engine"
                ) from None
        return self.draft.finished(input_shape, output_shape)

    def name(self, node: fx.Node) -> str:
        """A node as its user knows it."""
        if node.op == "call_module":
            return f"the layer {node.target!r} ({type(self.modules[str(node.target)]).__name__})"
        if node.op in ("call_function", "call_method"):
            around = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
            where = f" in the layer {around[-1]!r}" if around else ""
            return f"the operation {getattr(node.target, '__name__', node.target)!r}{where}"
        return {"placeholder": "this input", "output": "this output"}.get(node.op, str(node.target))

    def visit(self, node: fx.Node, made: dict[fx.Node, Value | None], shape: tuple[int, ...]) -> Value:
        if not node.args or any(isinstance(value, fx.Node) for value in node.kwargs.values()):
            raise Refused("give it its tensors without keywords")
        first = node.args[0]
        if node.target == "add_" and isinstance(first, fx.Node) and len(first.users) > 1:
            raise Refused("it overwrites what others read; write x = x + y")
        inputs = [made.get(arg) if isinstance(arg, fx.Node) else arg for arg in node.args]
        if node.op == "call_module":
            value = self.module(str(node.target), inputs, shape)
        else:
            called = node.target if node.op == "call_function" else getattr(Tensor, str(node.target), None)
            value = self.function(called, inputs, dict(node.kwargs), shape)
        if isinstance(value, Analog) and len(node.users) > 1:
            return replace(value, made_by=None)
        return value

    def module(self, name: str, inputs: list[Any], shape: tuple[int, ...]) -> Value:
        module, (x, *rest) = self.modules[name], inputs
        if rest:
            raise Refused("give it one argument")
        rule = next((rule for kinds, rule in _MODULES.items() if isinstance(module, kinds)), None)
        if rule is not None or isinstance(module, Spike):
            _check_plain(module)
        if isinstance(module, Spike):
            return fire(self.draft, name, x, module.threshold, shape)
        if rule is not None:
            return rule(self.draft, name, module, x, shape)
        raise Refused("use convolutions, linear layers, pools, batch norm, dropout, flatten, sums and picojoule.Spike")

    def function(self, called: Any, inputs: list[Any], kwargs: dict[str, Any], shape: tuple[int, ...]) -> Value:
        x = inputs[0]
        if called in _AS_MODULES:
            module = _AS_MODULES[called](*inputs[1:], **kwargs)
            return next(
                rule(self.draft, "", module, x, shape) for kinds, rule in _MODULES.items() if isinstance(module, kinds)
            )
        if called in _UNCHANGED:
            return value_of(x)
        if called in _RESHAPES:
            return reshape(self.draft, x, shape)
        if called in _MEANS:
            return mean(self.draft, x, inputs, kwargs, shape)
        if called in _SUMS and len(inputs) == 2 and not kwargs:
            return add(self.draft, *inputs)
        if called in _DIFFERENCES and len(inputs) == 2 and not kwargs:
            y = inputs[1]
            return add(self.draft, x, -y if isinstance(y, int | float) else scaled(y, -1.0))
        if called in _PRODUCTS and len(inputs) == 2 and not kwargs:
            factor, x = sorted(inputs, key=lambda operand: not isinstance(operand, int | float))
            if isinstance(factor, int | float):
                return scaled(x, float(factor))
        if called in _QUOTIENTS and len(inputs) == 2 and not kwargs and isinstance(inputs[1], int | float):
            return scaled(x, 1 / float(inputs[1]))
        raise Refused("write it with layers that the engine knows (see picojoule.events)")


def _check_plain(module: nn.Module) -> None:
    """A rule reads weights and settings, so there must be nothing else to what a layer does."""
    odd = alteration(module)
    if odd is not None:
        raise Refused(f"it {odd.what}, which would be left out; {odd.remedy}")
    kind = unreadable_weights(module)
    if kind is not None:
        raise Refused(f"its weights are no plain tensors ({kind}); make them plain")


def _identity(draft: Draft, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    return value_of(x)


def _flatten(draft: Draft, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    return reshape(draft, x, shape)


def _take(draft: Draft, source: Map) -> Analog:
    numbers = Buffer(Map(source.neurons).pitch)
    draft.step(Kind.INPUT, **writes(source, numbers))
    return Analog(source, numbers, Affine.identity(source.channels), pixels=True, planar=True)


def _give(draft: Draft, x: Value | None) -> None:
    answer = as_analog(draft, value_of(x))
    gain, shift = (draft.constant(padded(part, answer.map.pitch)) for part in (answer.affine.gain, answer.affine.shift))
    draft.step(Kind.OUTPUT, source=answer.numbers, scales=gain, init=shift, **writes(answer.map, -1))


_Rule = Callable[[Draft, str, nn.Module, Any, tuple[int, ...]], Value]

_MODULES: dict[tuple[type[nn.Module], ...], _Rule] = {
    (nn.Conv1d, nn.Conv2d): convolution,
    (nn.Linear,): linear,
    (nn.BatchNorm1d, nn.BatchNorm2d): batch_norm,
    (nn.AvgPool1d, nn.AvgPool2d): average_pool,
    (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d): adaptive_pool,
    (nn.MaxPool1d, nn.MaxPool2d): max_pool,
    (nn.Flatten,): _flatten,
    (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.Identity): _identity,
}
_AS_MODULES: dict[Any, Callable[..., nn.Module]] = {
    F.avg_pool1d: nn.AvgPool1d,
    F.avg_pool2d: nn.AvgPool2d,
    F.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    F.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    F.max_pool1d: nn.MaxPool1d,
    F.max_pool2d: nn.MaxPool2d,
}
_UNCHANGED = {F.dropout, F.dropout1d, F.dropout2d, F.alpha_dropout, Tensor.contiguous, Tensor.clone, Tensor.float}
_RESHAPES = {torch.flatten, torch.reshape, Tensor.flatten, Tensor.reshape, Tensor.view}
_MEANS = {torch.mean, Tensor.mean}
_SUMS = {operator.add, torch.add, Tensor.add, Tensor.add_}
_DIFFERENCES = {operator.sub, torch.sub, Tensor.sub}
_PRODUCTS = {operator.mul, torch.mul, Tensor.mul}
_QUOTIENTS = {operator.truediv, torch.div, Tensor.div}
