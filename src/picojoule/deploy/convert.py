"""Conversion of a network of quantised ReLUs into one of integrate-and-fire neurons over T time steps.

* Each `QuantizedReLU` becomes an `IF` of threshold 1 that resets by subtraction, may fire several times in a step and
  keeps no potential below −1.
* Batch norm is folded into the weights of the convolution or linear layer that it directly follows; elsewhere (the
  stream of a residual network) it becomes a scale and a shift before the neuron.
* An average pool of spikes becomes a sum, so that spikes stay whole, and the next weights are divided by its k².
* The steps share one image: each gets a T-th of it as a constant current, and a T-th of every bias; potentials start
  at 0 for each image; the logits of all steps are summed.

In one step the network computes what the quantised one does, but for the rounding of the folded weights. In several,
the charge that reaches each neuron of the first layer is the same and so are its spikes; further on spikes may come
that later inhibition would have prevented, which no conversion of this kind can take back. Everything between the
neurons must be linear: what is not is refused by name.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import fx, nn

from picojoule.deploy.altered_layers import alteration, computes_weights
from picojoule.deploy.graph.batch_norm import Affine, features_only, fold_into, scale_and_shift_of
from picojoule.deploy.graph.capture import layer_graph, network_of, refuse_hooks
from picojoule.deploy.graph.nodes import argument, node_name, operation_name
from picojoule.deploy.graph.pools import Pool
from picojoule.deploy.graph.refusal import Destination, Unsupported
from picojoule.errors import PicojouleError, reason_of
from picojoule.kernels.torch_private import BatchNorm, ConvNd, DropoutNd
from picojoule.neurons.lif import IF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.time_steps import present, readout
from picojoule.spikes.layout import TimeLayout
from picojoule.spikes.spiking import is_spiking

_DESTINATION = Destination("the conversion to spikes", "cannot take")


def convert(net: nn.Module, steps: int = 1) -> nn.Module:
    """Convert a network of quantised ReLUs into one of integrate-and-fire neurons.

    The result takes images and gives logits like `net`, and its layers keep their names. Trace and watch it with the
    same `steps`.

    Args:
        net: The network, with `picojoule.QuantizedReLU` as its neurons; it stays as it is.
        steps: The number of time steps T that share one image.

    Returns:
        The spiking network, in evaluation mode.

    Raises:
        PicojouleError: If `steps` is not a number of time steps, the network has no quantised ReLU or cannot be
            copied, or something between its neurons is not linear or cannot be read from its layers.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 3), QuantizedReLU(), nn.Linear(3, 2))
        >>> convert(net, steps=5)(torch.zeros(7, 4)).shape
        torch.Size([7, 2])
    """
    net = network_of(net, _DESTINATION)
    TimeLayout(steps)  # says what is wrong with it
    if not any(isinstance(module, QuantizedReLU) for module in net.modules()):
        raise PicojouleError(
            f"{type(net).__name__} has no quantised ReLU that could become a spiking neuron: train it with "
            "picojoule.QuantizedReLU (neuron.kind = 'qrelu')"
        )
    refuse_hooks(net, _DESTINATION)
    for name, module in net.named_modules():
        if computes_weights(module):
            raise _DESTINATION.refusal(
                f"the layer {name!r} ({type(module).__name__}), whose weights are computed from others",
                "make them plain, with torch.nn.utils.prune.remove or parametrize.remove_parametrizations",
            )
    return _Converter(_copied(net).eval(), steps).run()


def _copied(net: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(net)
    except Exception as error:  # whatever a network holds may refuse to be copied
        raise PicojouleError(
            f"{_DESTINATION.name} works on a copy, and {type(net).__name__} cannot be copied ({reason_of(error)}): "
            "keep sparse weights, tensors with a history (detach them), locks and open files out of it"
        ) from error


@dataclass(frozen=True)
class _Signal:
    """What an edge of the network carries: analog values, or numbers of spikes."""

    spikes: bool
    share: float = 1.0
    """What each spike counts for the next weights: 1/k² behind an average pool."""


_ANALOG = _Signal(spikes=False)


class _Converter:
    """One pass over the network's graph, in the order in which it runs."""

    def __init__(self, net: nn.Module, steps: int) -> None:
        self.net, self.steps = net, steps
        self.graph = layer_graph(net, _DESTINATION)
        self.signals: dict[fx.Node, _Signal] = {}
        self.synaptic: list[ConvNd | nn.Linear] = []
        """Layers of weights; their biases act in every step."""
        self.called: set[str] = set()

    def run(self) -> nn.Module:
        for node in list(self.graph.nodes):
            with _DESTINATION.refusing(partial(node_name, node, self.net)):
                self._visit(node)
        for module in self.synaptic:
            if module.bias is not None:
                module.bias = nn.Parameter(module.bias.detach() / self.steps)
        self.graph.lint()
        converted = fx.GraphModule(self.net, self.graph, type(self.net).__name__)
        converted.delete_all_unused_submodules()
        return converted.eval()

    # ------------------------------------------------------------------------------------------------------------ nodes

    def _visit(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._input(node)
        elif node.op == "output":
            self._output(node)
        elif node.op == "call_module":
            self._module(node, str(node.target), self.net.get_submodule(str(node.target)))
        elif node.op in ("call_function", "call_method"):
            rule = _FUNCTIONS.get(operation_name(node))
            if rule is None:
                raise Unsupported(f"use only {', '.join(_FUNCTIONS)}, and layers as modules")
            self.signals[node] = rule(self, node)
        else:
            raise Unsupported("keep weights inside layers", because="which is used outside of a layer")

    def _input(self, node: fx.Node) -> None:
        if self.signals:
            raise Unsupported("let the network take one batch of images", because="one of several inputs")
        self.signals[node] = _ANALOG
        with self.graph.inserting_after(node):
            shared = self.graph.call_function(present, (node, self.steps), {"shared": True})
        node.replace_all_uses_with(shared, lambda user: user is not shared)
        self.signals[shared] = _ANALOG

    def _output(self, node: fx.Node) -> None:
        (result,) = node.args
        if not isinstance(result, fx.Node):
            raise Unsupported("let it return the logits alone", because="which is several things")
        if self.signals[result].share != 1:
            raise Unsupported("let weights follow the pool", because="which is pooled spikes")
        with self.graph.inserting_before(node):
            node.args = (self.graph.call_function(readout, (result, self.steps), {"summed": True}),)

    def _module(self, node: fx.Node, name: str, module: nn.Module) -> None:
        rule = next((rule for kind, rule in _MODULES.items() if isinstance(module, kind)), None)
        if rule is None or (is_spiking(module) and type(module) is not QuantizedReLU):
            raise Unsupported(_remedy(module))
        odd = alteration(module)
        if odd is not None:
            raise Unsupported(odd.remedy, because=f"which {odd.what}")
        if name in self.called and rule not in (_remove, _flatten):  # which leave nothing of themselves behind
            raise Unsupported("make two modules", because="which is used at two places")
        self.called.add(name)
        source = node.args[0] if node.args else None
        if len(node.all_input_nodes) != 1 or not isinstance(source, fx.Node):
            raise Unsupported("let it take one tensor", because="which takes several inputs")
        self.signals[node] = rule(self, node, name, module, self.signals[source])

    def replace(self, name: str, module: nn.Module) -> None:
        parent, _, child = name.rpartition(".")
        setattr(self.net.get_submodule(parent), child, module)

    def common_signal(self, operands: Iterable[Any]) -> _Signal:
        """Give the one thing that all operands of an operation carry."""
        operands = list(operands)
        if not all(isinstance(operand, fx.Node) for operand in operands):
            raise Unsupported("put the constant into the bias of a layer", because="which takes a constant")
        signals = {self.signals[operand] for operand in operands}
        if len(signals) == 1:
            return signals.pop()
        if any(signal.share != 1 for signal in signals):
            raise Unsupported("pool both in the same way", because="which takes pooled spikes and something else")
        return _ANALOG


# -------------------------------------------------------------------------------------------------------------- modules


def _synapses(converter: _Converter, node: fx.Node, name: str, module: Any, signal: _Signal) -> _Signal:
    module.weight = nn.Parameter(module.weight.detach() * signal.share)  # another layer may share the old ones
    converter.synaptic.append(module)
    return _ANALOG


def _neuron(converter: _Converter, node: fx.Node, name: str, module: nn.Module, signal: _Signal) -> _Signal:
    if signal.share != 1:
        raise Unsupported("let weights follow the pool", because="which pooled spikes feed directly")
    converter.replace(name, IF(steps=converter.steps))
    return _Signal(spikes=True)


def _batch_norm(converter: _Converter, node: fx.Node, name: str, norm: Any, signal: _Signal) -> _Signal:
    scale, shift = scale_and_shift_of(norm)
    if signal.spikes:
        raise Unsupported("put it before the neuron", because="a batch norm of spikes")
    (source,) = node.all_input_nodes
    layer = converter.net.get_submodule(str(source.target)) if source.op == "call_module" else None
    if not isinstance(layer, ConvNd | nn.Linear) or len(source.users) != 1:
        converter.replace(name, Affine(scale, shift / converter.steps))
        return _ANALOG
    if isinstance(layer, nn.Linear):
        if norm.num_features != layer.out_features:
            raise Unsupported(_FLATTEN_FIRST, because=_FURTHER_AXES)
        with converter.graph.inserting_before(source):
            refusal = str(_DESTINATION.refusal(f"the layer {name!r}, {_FURTHER_AXES}", _FLATTEN_FIRST))
            source.args = (converter.graph.call_function(features_only, (source.args[0], refusal)),)
    fold_into(layer, norm)
    node.replace_all_uses_with(source)
    converter.graph.erase_node(node)
    return _ANALOG


_FURTHER_AXES = "a batch norm behind a linear layer that takes more than [batch, features]"
_FLATTEN_FIRST = "flatten before the layer, or use a convolution"


def _average_pool(converter: _Converter, node: fx.Node, name: str, module: Any, signal: _Signal) -> _Signal:
    if not signal.spikes:
        return signal
    pool = Pool.of_module(module)
    if not pool.is_even:
        raise Unsupported("pool without ceil_mode and padding", because="whose windows have different sizes")
    summing = type(module)(module.kernel_size, module.stride, module.padding, divisor_override=1)
    converter.replace(name, summing)
    return _Signal(spikes=True, share=signal.share / pool.divisor)


def _remove(converter: _Converter, node: fx.Node, name: str, module: nn.Module, signal: _Signal) -> _Signal:
    node.replace_all_uses_with(node.all_input_nodes[0])
    converter.graph.erase_node(node)
    return signal


def _flatten(converter: _Converter, node: fx.Node, name: str, module: Any, signal: _Signal) -> _Signal:
    _refuse_batch_axis([module.start_dim])
    return signal


_ModuleRule = Callable[[_Converter, fx.Node, str, Any, _Signal], _Signal]
_MODULES: dict[type[nn.Module] | tuple[type[nn.Module], ...], _ModuleRule] = {
    (ConvNd, nn.Linear): _synapses,
    QuantizedReLU: _neuron,
    BatchNorm: _batch_norm,
    (nn.AvgPool2d, nn.AvgPool3d): _average_pool,
    (DropoutNd, nn.Identity): _remove,
    nn.Flatten: _flatten,
}


def _remedy(module: nn.Module) -> str:
    if is_spiking(module) or isinstance(module, nn.ReLU):
        return "only picojoule.QuantizedReLU becomes a spiking neuron, so train with neuron.kind = 'qrelu'"
    if "Pool" in type(module).__name__:
        return "use nn.AvgPool2d, whose windows all have one size"
    return "everything between neurons must be a convolution, a linear layer, batch norm, an average pool or dropout"


# ------------------------------------------------------------------------------------------------------------ functions


def _add(converter: _Converter, node: fx.Node) -> _Signal:
    if node.kwargs.get("alpha", 1) != 1:
        raise Unsupported("put the factor into the weights", because="which has a factor alpha")
    return converter.common_signal([*node.args, *(v for k, v in node.kwargs.items() if k != "alpha")])


def _concatenate(converter: _Converter, node: fx.Node) -> _Signal:
    _refuse_batch_axis([argument(node, 1, "dim", "axis", default=0)])
    return converter.common_signal(argument(node, 0, "tensors"))


def _reduce(converter: _Converter, node: fx.Node) -> _Signal:
    signal = converter.common_signal([argument(node, 0, "input")])
    if signal.spikes:
        raise Unsupported("use nn.AvgPool2d, whose k² is known", because="which takes spikes")
    dims = argument(node, 1, "dim", "axis")
    _refuse_batch_axis([0] if dims is None else dims if isinstance(dims, list | tuple) else [dims])
    return signal


def _reshape(converter: _Converter, node: fx.Node) -> _Signal:
    _refuse_batch_axis([argument(node, 1, "start_dim", default=0)])
    return converter.common_signal([argument(node, 0, "input")])


def _refuse_batch_axis(dims: Iterable[Any]) -> None:
    if 0 in dims:
        raise Unsupported("say which other axes are meant", because="which goes along the batch")


_FunctionRule = Callable[[_Converter, fx.Node], _Signal]
_FUNCTIONS: dict[str, _FunctionRule] = {
    **dict.fromkeys((operator.add.__name__, operator.iadd.__name__), _add),
    "cat": _concatenate,
    "flatten": _reshape,
    "mean": _reduce,
    "sum": _reduce,
}
