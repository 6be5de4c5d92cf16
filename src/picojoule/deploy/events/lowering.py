"""From a graph of layers to a program: which rule each layer and each function has.

Batch norm and everything else that scales a current is carried along (`Affine`) until it meets a threshold, where it
becomes a sign and a threshold for each channel, or a sum. Dropout does nothing, flattening spikes is a way to read
the next weights. What has no rule is refused by name.

The rule of a layer (in `synapses`, `currents` and `pools`) takes the builder, the layer's name, the layer, the value
that it is given, and the shape of its result with the batch axis. It adds instructions and returns the value that the
layer leaves, or raises `Unsupported`. Rules know nothing of time: where the steps are in a tensor is known here and in
`time`, and a value has as many frames as there are steps in which it differs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from picojoule.deploy.altered_layers import alteration, unreadable_weights
from picojoule.deploy.events.affine import Affine, padded
from picojoule.deploy.events.builder import ProgramBuilder, WeightType, writes
from picojoule.deploy.events.currents import add, as_analog, batch_norm, reshape, scaled
from picojoule.deploy.events.neurons import fire
from picojoule.deploy.events.pools import adaptive_pool, average_pool, max_pool, mean
from picojoule.deploy.events.program import Map, Opcode, Program
from picojoule.deploy.events.synapses import convolution, linear
from picojoule.deploy.events.time import Time, over_time, result_time
from picojoule.deploy.events.values import Analog, Buffer, Value, map_of, value_of
from picojoule.deploy.graph.batch_norm import Affine as ScaledAndShifted
from picojoule.deploy.graph.batch_norm import features_only
from picojoule.deploy.graph.nodes import node_name, shape_of
from picojoule.deploy.graph.refusal import Destination, Unsupported
from picojoule.neurons.lif import MembraneNeuron
from picojoule.neurons.spike import Spike

DESTINATION = Destination("the event engine", "cannot run", otherwise=", or use the dense engine")


def lower(model: nn.Module, graph: fx.Graph, weights: WeightType = "float32", steps: int = 1) -> Program:
    """Lower a captured graph to a program.

    Args:
        model: The network, as the forward pass has left it.
        graph: Its graph of layers, with shapes.
        weights: How weights that spikes feed are stored: "float32" or "int8".
        steps: Time steps T.

    Returns:
        The program.

    Raises:
        PicojouleError: If a layer or an operation has no rule.
    """
    return _Lowering(model, weights, steps).run(graph)


class _Lowering:
    """One pass over a graph, in the order in which it runs."""

    def __init__(self, model: nn.Module, weights: WeightType, steps: int) -> None:
        self.model = model
        self.builder = ProgramBuilder(weights, steps)
        self.values: dict[fx.Node, Value | None] = {}
        """What each node leaves; None for a size or a constant, which no rule takes for a value."""
        self.times: dict[fx.Node, Time] = {}
        """Where the time steps are in what each node leaves."""
        self.input_shape: tuple[int, ...] = ()
        self.output_shape: tuple[int, ...] = ()

    def run(self, graph: fx.Graph) -> Program:
        for node in graph.nodes:
            with DESTINATION.refusing(partial(node_name, node, self.model)):
                self.visit(node, shape_of(node))
        return self.builder.build(self.input_shape, self.output_shape)

    def visit(self, node: fx.Node, shape: tuple[int, ...] | None) -> None:
        if node.op == "placeholder":
            if self.input_shape or shape is None:
                raise Unsupported("let the network take one tensor")
            self.input_shape = shape[1:]
            self.values[node], self.times[node] = _input(self.builder, map_of(shape)), Time.NONE
        elif node.op == "output":
            (answer,) = node.args
            if not isinstance(answer, fx.Node) or self.values.get(answer) is None:
                raise Unsupported("let the network return one tensor")
            if self.builder.steps > 1 and self.times[answer] is not Time.NONE:
                raise Unsupported("let it return the mean over its time steps, [batch, …]")
            self.output_shape = (shape_of(answer) or ())[1:]
            _output(self.builder, self.values[answer])
        elif shape is None or node.op == "get_attr":
            self.values[node] = None
        else:
            self.values[node] = self.call(node, shape)

    def call(self, node: fx.Node, shape: tuple[int, ...]) -> Value:
        first = node.args[0] if node.args else None
        sequence = isinstance(first, list | tuple)
        if not node.args or any(isinstance(value, fx.Node) for value in node.kwargs.values()):
            raise Unsupported("give it its tensors without keywords")
        if node.target == "add_" and isinstance(first, fx.Node) and len(first.users) > 1:
            raise Unsupported("write x = x + y", because="which overwrites what others read")
        steps, sources = self.builder.steps, [arg for arg in node.all_input_nodes if arg in self.times]
        if steps > 1 and node.op != "call_module":
            moved = over_time(self.builder, node, [(self.values[arg], self.times[arg]) for arg in sources], shape)
            if moved is not None:
                value, self.times[node] = moved
                return _shared(value, node)
        time = result_time([self.times[arg] for arg in sources])
        self.times[node] = time
        shape = shape[1:] if time is Time.AXIS else shape
        inputs = [self.values.get(arg) if isinstance(arg, fx.Node) else arg for arg in node.args]
        if node.op == "call_module":
            value = self.module(str(node.target), inputs, shape, time)
        elif sequence:
            raise Unsupported("write it with layers that the engine knows (see picojoule.events)")
        else:
            called = node.target if node.op == "call_function" else getattr(Tensor, str(node.target), None)
            value = self.function(called, inputs, dict(node.kwargs), shape)
        return _shared(value, node)

    def module(self, name: str, inputs: list[Any], shape: tuple[int, ...], time: Time) -> Value:
        module, (x, *rest) = self.model.get_submodule(name), inputs
        if rest:
            raise Unsupported("give it one argument")
        rule = next((rule for kinds, rule in _MODULES.items() if isinstance(module, kinds)), None)
        spiking = isinstance(module, Spike | MembraneNeuron)
        if rule is not None or spiking:
            _check_plain(module)
        if time is Time.AXIS and not spiking and not isinstance(module, _ANY_AXES):
            raise Unsupported("fold time into the batch for it, .flatten(0, 1)", because="which takes [T, batch, …]")
        if isinstance(module, Spike | MembraneNeuron):
            if time is Time.NONE and self.builder.steps > 1:
                raise Unsupported("give it its input in every time step, [T·B, …]", because="which takes a single step")
            if time is Time.AXIS:
                self.builder.with_time_axis.add(name)
            return fire(self.builder, name, module, x, shape)
        if rule is not None:
            return rule(self.builder, name, module, x, shape)
        raise Unsupported(
            "use convolutions, linear layers, pools, batch norm, dropout, flatten, sums, and picojoule.Spike, IF and "
            "LIF as neurons"
        )

    def function(self, called: Any, inputs: list[Any], kwargs: dict[str, Any], shape: tuple[int, ...]) -> Value:
        x = inputs[0]
        if called in _AS_MODULES:
            module = _AS_MODULES[called](*inputs[1:], **kwargs)
            return next(
                rule(self.builder, "", module, x, shape)
                for kinds, rule in _MODULES.items()
                if isinstance(module, kinds)
            )
        if called in _UNCHANGED:
            return value_of(x)
        if called in _RESHAPES:
            return reshape(self.builder, x, shape)
        if called in _MEANS:
            return mean(self.builder, x, inputs, kwargs, shape)
        if called in _SUMS and len(inputs) == 2 and not kwargs:
            return add(self.builder, *inputs)
        if called in _DIFFERENCES and len(inputs) == 2 and not kwargs:
            y = inputs[1]
            return add(self.builder, x, -y if isinstance(y, int | float) else scaled(y, -1.0))
        if called in _PRODUCTS and len(inputs) == 2 and not kwargs:
            factor, x = sorted(inputs, key=lambda operand: not isinstance(operand, int | float))
            if isinstance(factor, int | float):
                return scaled(x, float(factor))
        if called in _QUOTIENTS and len(inputs) == 2 and not kwargs and isinstance(inputs[1], int | float):
            if not inputs[1]:
                raise Unsupported("divide by something else", because="a division by zero")
            return scaled(x, 1 / float(inputs[1]))
        raise Unsupported("write it with layers that the engine knows (see picojoule.events)")


def _shared(value: Value, node: fx.Node) -> Value:
    """Make a value that several read one that nothing can be folded into."""
    return replace(value, producer=None) if isinstance(value, Analog) and len(node.users) > 1 else value


def _check_plain(module: nn.Module) -> None:
    """Refuse a layer that does more than its weights and settings say, because a rule reads nothing else."""
    odd = alteration(module)
    if odd is not None:
        raise Unsupported(odd.remedy, because=f"which {odd.what}")
    kind = unreadable_weights(module)
    if kind is not None:
        raise Unsupported("make them plain", because=f"whose weights are not plain tensors ({kind})")


def _identity(builder: ProgramBuilder, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    return value_of(x)


def _flatten(builder: ProgramBuilder, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    return reshape(builder, x, shape)


def _input(builder: ProgramBuilder, source: Map) -> Analog:
    numbers = Buffer(Map(source.neurons).pitch)
    builder.add(Opcode.INPUT, **writes(source, numbers))
    return Analog(source, numbers, Affine.identity(source.channels), from_input=True, planar=True)


def _output(builder: ProgramBuilder, x: Value | None) -> None:
    answer = as_analog(builder, value_of(x))
    affine, pitch = answer.affine, answer.map.pitch
    gain, shift = (builder.constant(padded(part, pitch)) for part in (affine.gain, affine.shift))
    nowhere = Buffer(0, address=0)
    builder.add(Opcode.OUTPUT, source=answer.numbers, scales=gain, init=shift, **writes(answer.map, nowhere))


_Rule = Callable[[ProgramBuilder, str, nn.Module, Any, tuple[int, ...]], Value]

_MODULES: dict[tuple[type[nn.Module], ...], _Rule] = {
    (nn.Conv1d, nn.Conv2d): convolution,
    (nn.Linear,): linear,
    (nn.BatchNorm1d, nn.BatchNorm2d, ScaledAndShifted): batch_norm,
    (nn.AvgPool1d, nn.AvgPool2d): average_pool,
    (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d): adaptive_pool,
    (nn.MaxPool1d, nn.MaxPool2d): max_pool,
    (nn.Flatten,): _flatten,
    (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.Identity): _identity,
}
_ANY_AXES = (nn.Linear, nn.Dropout, nn.AlphaDropout, nn.Identity)
"""Layers that take [T, B, …] as they take [B, …]."""
_AS_MODULES: dict[Any, Callable[..., nn.Module]] = {
    F.avg_pool1d: nn.AvgPool1d,
    F.avg_pool2d: nn.AvgPool2d,
    F.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    F.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    F.max_pool1d: nn.MaxPool1d,
    F.max_pool2d: nn.MaxPool2d,
}
_UNCHANGED: set[Any] = {
    features_only,
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.alpha_dropout,
    Tensor.contiguous,
    Tensor.clone,
    Tensor.float,
}
_RESHAPES = {torch.flatten, torch.reshape, Tensor.flatten, Tensor.reshape, Tensor.view}
_MEANS = {torch.mean, Tensor.mean}
_SUMS = {operator.add, torch.add, Tensor.add, Tensor.add_}
_DIFFERENCES = {operator.sub, torch.sub, Tensor.sub}
_PRODUCTS = {operator.mul, torch.mul, Tensor.mul}
_QUOTIENTS = {operator.truediv, torch.div, Tensor.div}
