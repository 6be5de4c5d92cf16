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
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from picojoule.deploy.altered_layers import alteration, computes_weights, hooks_of, refuse_global_hooks
from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import BatchNorm, ConvNd, ConvTransposeNd, DropoutNd
from picojoule.neurons.lif import IF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.time_steps import present, readout
from picojoule.spikes.layout import TimeLayout
from picojoule.spikes.spiking import is_spiking, unwrap
from picojoule.zoo.dropout import Dropout


def convert(net: nn.Module, steps: int = 1) -> nn.Module:
    """The spiking network, in evaluation mode; layers keep their names, and `net` stays as it is.

    It takes images and gives logits like `net`. Trace and watch it with the same `steps`.

    >>> net = nn.Sequential(nn.Linear(4, 3), QuantizedReLU(), nn.Linear(3, 2))
    >>> convert(net, steps=5)(torch.zeros(7, 4)).shape
    torch.Size([7, 2])
    """
    net = unwrap(net)
    if not isinstance(net, nn.Module):
        raise PicojouleError(f"convert needs an nn.Module, not {type(net).__name__}")
    TimeLayout(steps)  # says what is wrong with it
    if not any(isinstance(module, QuantizedReLU) for module in net.modules()):
        raise PicojouleError(
            f"{type(net).__name__} has no quantised ReLU that could become a spiking neuron: train it with "
            "picojoule.QuantizedReLU (neuron.kind = 'qrelu')"
        )
    refuse_global_hooks("the conversion")
    if hooks_of(net) is not None or "forward" in vars(net):
        _refuse(
            f"{type(net).__name__}, which has hooks or a forward pass set on the instance,",
            "make them part of its class's forward pass",
        )
    for name, module in net.named_modules():
        if computes_weights(module):
            _refuse(
                f"{name!r}, whose weights are computed from others,",
                "make them plain, with torch.nn.utils.prune.remove or parametrize.remove_parametrizations",
            )
    return _Conversion(copy.deepcopy(net).eval(), steps).run()


def _refuse(what: str, remedy: str) -> NoReturn:
    raise PicojouleError(f"{what} cannot be converted to spikes over time: {remedy}")


class Affine(nn.Module):
    """x·scale + shift for each channel: a batch norm whose statistics are fixed."""

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.scale: Tensor
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = (c.view(-1, *[1] * (x.dim() - 2)) for c in (self.scale, self.shift))
        return x * scale + shift


@dataclass(frozen=True)
class _Signal:
    """What an edge of the network carries: analog values, or numbers of spikes."""

    spikes: bool
    share: float = 1.0
    """What each spike counts for the next weights: 1/k² behind an average pool."""


_ANALOG = _Signal(spikes=False)


class _Tracer(fx.Tracer):
    """Neurons and the zoo's dropout are single nodes, like PyTorch's own layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_spiking(m) or type(m) is Dropout or super().is_leaf_module(m, module_qualified_name)


class _Conversion:
    """One pass over the network's graph, in the order in which it runs."""

    def __init__(self, net: nn.Module, steps: int) -> None:
        self.net, self.steps = net, steps
        try:
            self.graph = _Tracer().trace(net)
        except Exception as error:  # a forward pass may do anything
            raise PicojouleError(
                f"the forward pass of {type(net).__name__} cannot be followed ({type(error).__name__}: {error}): what "
                "it runs must not depend on values or shapes"
            ) from error
        self.signals: dict[fx.Node, _Signal] = {}
        self.synaptic: list[ConvNd | nn.Linear] = []
        """Layers of weights; their biases act in every step."""
        self.called: set[str] = set()

    def run(self) -> nn.Module:
        for node in list(self.graph.nodes):
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
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
            if name not in _FUNCTIONS:
                _refuse(f"the operation {name}", f"use only {', '.join(_FUNCTIONS)}, and layers as modules")
            self.signals[node] = _FUNCTIONS[name](self, name, node)
        else:
            _refuse(f"the tensor {node.target!r}, used as it is,", "keep weights inside layers")

    def _input(self, node: fx.Node) -> None:
        if self.signals:
            _refuse(f"a network of several inputs ({node.target!r})", "let it take one batch of images")
        self.signals[node] = _ANALOG
        with self.graph.inserting_after(node):
            shared = self.graph.call_function(present, (node, self.steps), {"shared": True})
        node.replace_all_uses_with(shared, lambda user: user is not shared)
        self.signals[shared] = _ANALOG

    def _output(self, node: fx.Node) -> None:
        (result,) = node.args
        if not isinstance(result, fx.Node):
            _refuse("a network that returns several things", "let it return the logits alone")
        if self.signals[result].share != 1:
            _refuse("an output of pooled spikes", "let weights follow the pool")
        with self.graph.inserting_before(node):
            node.args = (self.graph.call_function(readout, (result, self.steps), {"summed": True}),)

    def _module(self, node: fx.Node, name: str, module: nn.Module) -> None:
        rule = next((rule for kind, rule in _MODULES.items() if isinstance(module, kind)), None)
        if rule is None or (is_spiking(module) and type(module) is not QuantizedReLU):
            _refuse(f"{name!r} ({type(module).__name__})", _remedy(module))
        odd = alteration(module)
        if odd is not None:
            _refuse(f"{name!r} ({type(module).__name__}), which {odd.what},", odd.remedy)
        if name in self.called and rule not in (_dropped, _flattened):  # which leave nothing of themselves behind
            _refuse(f"{name!r}, which is used at two places,", "make two modules")
        self.called.add(name)
        source = node.args[0] if node.args else None
        if len(node.all_input_nodes) != 1 or not isinstance(source, fx.Node):
            _refuse(f"{name!r}, which takes several inputs,", "let it take one tensor")
        self.signals[node] = rule(self, node, name, module, self.signals[source])

    def replace(self, name: str, module: nn.Module) -> None:
        parent, _, child = name.rpartition(".")
        setattr(self.net.get_submodule(parent), child, module)

    def joint(self, name: str, nodes: Iterable[Any]) -> _Signal:
        """The one thing that all operands of an operation carry."""
        operands = list(nodes)
        if not all(isinstance(operand, fx.Node) for operand in operands):
            _refuse(f"{name} with a constant", "put the constant into the bias of a layer")
        kinds = {self.signals[operand] for operand in operands}
        if len(kinds) == 1:
            return kinds.pop()
        if any(signal.share != 1 for signal in kinds):
            _refuse(f"{name} of pooled spikes and something else", "pool both in the same way")
        return _ANALOG


# -------------------------------------------------------------------------------------------------------------- modules


def _synapses(conversion: _Conversion, node: fx.Node, name: str, module: Any, signal: _Signal) -> _Signal:
    module.weight = nn.Parameter(module.weight.detach() * signal.share)  # another layer may share the old ones
    conversion.synaptic.append(module)
    return _ANALOG


def _neuron(conversion: _Conversion, node: fx.Node, name: str, module: nn.Module, signal: _Signal) -> _Signal:
    if signal.share != 1:
        _refuse(f"{name!r}, which pooled spikes feed directly,", "let weights follow the pool")
    conversion.replace(name, IF(steps=conversion.steps))
    return _Signal(spikes=True)


def _batch_norm(conversion: _Conversion, node: fx.Node, name: str, norm: Any, signal: _Signal) -> _Signal:
    if norm.running_mean is None:
        _refuse(f"{name!r}, whose statistics are those of the batch,", "let it track running statistics")
    if signal.spikes:
        _refuse(f"{name!r}, a batch norm of spikes,", "put it before the neuron")
    (source,) = node.all_input_nodes
    layer = conversion.net.get_submodule(str(source.target)) if source.op == "call_module" else None
    if isinstance(layer, ConvNd | nn.Linear) and len(source.users) == 1:
        if isinstance(layer, nn.Linear):
            if norm.num_features != layer.out_features:
                _refuse_further_axes(name)
            with conversion.graph.inserting_before(source):
                source.args = (conversion.graph.call_function(features_alone, (source.args[0], name)),)
        _fold(layer, norm)
        node.replace_all_uses_with(source)
        conversion.graph.erase_node(node)
        return _ANALOG
    scale = torch.rsqrt(norm.running_var + norm.eps) * (1 if norm.weight is None else norm.weight.detach())
    shift = (0 if norm.bias is None else norm.bias.detach()) - norm.running_mean * scale
    conversion.replace(name, Affine(scale, shift / conversion.steps))
    return _ANALOG


def features_alone(x: Tensor, norm: str) -> Tensor:
    """What a linear layer takes that its batch norm is folded into."""
    if x.dim() != 2:  # then the norm's channels are not the layer's outputs, even where there are as many
        _refuse_further_axes(norm)
    return x


def _refuse_further_axes(norm: str) -> NoReturn:
    _refuse(
        f"{norm!r}, a batch norm behind a linear layer that takes more than [batch, features],",
        "flatten before the layer, or use a convolution",
    )


def _fold(layer: ConvNd | nn.Linear, norm: Any) -> None:
    statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    if isinstance(layer, nn.Linear):
        layer.weight, layer.bias = fuse_linear_bn_weights(layer.weight, layer.bias, *statistics)
    else:
        transposed = isinstance(layer, ConvTransposeNd)
        layer.weight, layer.bias = fuse_conv_bn_weights(layer.weight, layer.bias, *statistics, transpose=transposed)


def _average_pool(conversion: _Conversion, node: fx.Node, name: str, pool: Any, signal: _Signal) -> _Signal:
    if not signal.spikes:
        return signal
    if pool.ceil_mode or (pool.padding not in (0, (0, 0), (0, 0, 0)) and not pool.count_include_pad):
        _refuse(f"{name!r}, whose windows have different sizes,", "pool without ceil_mode and padding")
    axes = 2 if isinstance(pool, nn.AvgPool2d) else 3
    window = pool.kernel_size if isinstance(pool.kernel_size, tuple) else (pool.kernel_size,) * axes
    whole = type(pool)(pool.kernel_size, pool.stride, pool.padding, divisor_override=1)
    conversion.replace(name, whole)
    return _Signal(spikes=True, share=signal.share / (pool.divisor_override or math.prod(window)))


def _dropped(conversion: _Conversion, node: fx.Node, name: str, module: nn.Module, signal: _Signal) -> _Signal:
    node.replace_all_uses_with(node.all_input_nodes[0])
    conversion.graph.erase_node(node)
    return signal


def _flattened(conversion: _Conversion, node: fx.Node, name: str, module: Any, signal: _Signal) -> _Signal:
    _keeps_batch(repr(name), [module.start_dim])
    return signal


_ModuleRule = Callable[[_Conversion, fx.Node, str, Any, _Signal], _Signal]
_MODULES: dict[type[nn.Module] | tuple[type[nn.Module], ...], _ModuleRule] = {
    (ConvNd, nn.Linear): _synapses,
    QuantizedReLU: _neuron,
    BatchNorm: _batch_norm,
    (nn.AvgPool2d, nn.AvgPool3d): _average_pool,
    (DropoutNd, nn.Identity): _dropped,
    nn.Flatten: _flattened,
}


def _remedy(module: nn.Module) -> str:
    if is_spiking(module) or isinstance(module, nn.ReLU):
        return "only picojoule.QuantizedReLU becomes a spiking neuron, so train with neuron.kind = 'qrelu'"
    if "Pool" in type(module).__name__:
        return "use nn.AvgPool2d, whose windows all have one size"
    return "everything between neurons must be a convolution, a linear layer, batch norm, an average pool or dropout"


# ------------------------------------------------------------------------------------------------------------ functions


def _added(conversion: _Conversion, name: str, node: fx.Node) -> _Signal:
    if node.kwargs.get("alpha", 1) != 1:
        _refuse(f"{name} with alpha", "put the factor into the weights")
    return conversion.joint(name, [*node.args, *(v for k, v in node.kwargs.items() if k != "alpha")])


def _argument(node: fx.Node, place: int, *names: str, default: Any = None) -> Any:
    """Of a call, by its place or under any of its names."""
    if len(node.args) > place:
        return node.args[place]
    return next((node.kwargs[name] for name in names if name in node.kwargs), default)


def _joined(conversion: _Conversion, name: str, node: fx.Node) -> _Signal:
    _keeps_batch(name, [_argument(node, 1, "dim", "axis", default=0)])
    return conversion.joint(name, _argument(node, 0, "tensors"))


def _reduced(conversion: _Conversion, name: str, node: fx.Node) -> _Signal:
    signal = conversion.joint(name, [_argument(node, 0, "input")])
    if signal.spikes:
        _refuse(f"{name} of spikes", "use nn.AvgPool2d, whose k² is known")
    dims = _argument(node, 1, "dim", "axis")
    _keeps_batch(name, [0] if dims is None else dims if isinstance(dims, list | tuple) else [dims])
    return signal


def _reshaped(conversion: _Conversion, name: str, node: fx.Node) -> _Signal:
    _keeps_batch(name, [_argument(node, 1, "start_dim", default=0)])
    return conversion.joint(name, [_argument(node, 0, "input")])


def _keeps_batch(name: str, dims: Iterable[Any]) -> None:
    if 0 in dims:
        _refuse(f"{name} along the batch", "say which other axes are meant")


_FunctionRule = Callable[[_Conversion, str, fx.Node], _Signal]
_FUNCTIONS: dict[str, _FunctionRule] = {
    **dict.fromkeys((operator.add.__name__, operator.iadd.__name__), _added),
    "cat": _joined,
    "flatten": _reshaped,
    "mean": _reduced,
    "sum": _reduced,
}
