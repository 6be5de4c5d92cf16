"""Out to NIR, the exchange format of neuromorphic chips and simulators.

A network is run once with *currents* in place of tensors: a current is the sum of what some NIR nodes put out, plus a
constant. Each operation has a short rule that adds a node and gives the current behind it:

* convolutions, linear layers, average and sum pools, means over the map, and flattening are nodes of their own;
* a batch norm directly behind one convolution or linear layer, which nothing else reads, folds into its weights and
  bias; any other becomes a `Scale` and a constant;
* a sum is no node: edges that meet at one node add up;
* constants that no bias can take travel on with the current, and the neurons subtract them from their thresholds.

`Spike` becomes `IF` with r = 1 and v_reset = 0, run for one step of length 1 from v = 0: v = I, which fires at v > θ
as NIR defines it. Ours fires at u ≥ θ, so the exported threshold is the next smaller float32. NIR's `Threshold` would
say the same without a state, but hardly any reader knows it. A max pool of spikes is a `SumPool2d` and neurons that
fire at one spike or more. Shapes in NIR have no batch axis; flattening is written with negative axes, which mean the
same with one.

What NIR cannot express is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from picojoule.activity import spiking_modules
from picojoule.errors import PicojouleError
from picojoule.export.program import captured, layer_of, prepared
from picojoule.neuron import Spike

if TYPE_CHECKING:
    import nir
    from torch.export import ExportedProgram

REMEDY = "build it from Conv1d, Conv2d, Linear, batch norm, average pools, sums and picojoule.Spike, or export to ONNX"
REMEDIES = {
    "relu": "train with picojoule.Spike in place of ReLU, or export to ONNX",
    "cat": "add the two branches, or let each have a convolution of its own and add those, or export to ONNX",
}


def to_nir(model: nn.Module, example: Tensor) -> nir.NIRGraph:
    """The network as a NIR graph; `example` is a batch of which only the shape of a sample matters.

    >>> import picojoule as pj
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), pj.Spike(), nn.Linear(3, 2, bias=False))
    >>> graph = to_nir(net, torch.zeros(1, 4))
    >>> {name: type(node).__name__ for name, node in graph.nodes.items()}
    {'input': 'Input', '0': 'Affine', '2': 'IF', '3': 'Linear', 'output': 'Output'}
    >>> graph.nodes["2"].v_threshold
    array([0.99999994, 0.99999994, 0.99999994], dtype=float32)
    """
    model, images = prepared(model, example)
    _check_neurons(model)
    return _Translation(model, captured(model, images)).translated()


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


@dataclass(frozen=True, eq=False)
class _Current:
    """What flows at one place of the network: the sum of what nodes put out, plus a constant [B, …] in float64."""

    sources: tuple[str, ...]
    constant: Tensor
    shared: bool = False
    """Whether something else reads it too, so that its node must stay as it is."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.constant.shape[1:])


@dataclass(eq=False)
class _Synapses:
    """A convolution or linear layer before it is written: batch norms may still fold into it."""

    weight: Tensor  # float64, output channels first
    bias: Tensor  # float64
    write: Callable[[NDArray[np.float32], NDArray[np.float32]], nir.NIRNode]

    def node(self) -> nir.NIRNode:
        return self.write(_numbers(self.weight), _numbers(self.bias))


class _Translation(fx.Interpreter):
    """Runs the captured graph: operations on tensors alone are computed, operations on currents become nodes."""

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        super().__init__(program.graph_module, garbage_collect_values=False)
        self.extra_traceback = False  # a refusal is one sentence
        self.program = program
        self.layers = spiking_modules(model)
        self.nodes: dict[str, nir.NIRNode | _Synapses] = {}
        self.edges: list[tuple[str, str]] = []
        self.at: fx.Node

    def translated(self) -> nir.NIRGraph:
        import nir

        outputs = self.run(*self._arguments())
        if len(outputs) != 1 or not isinstance(outputs[0], _Current):
            raise PicojouleError(
                "a network for NIR returns one tensor that depends on its input: return only the logits"
            )
        last = self._without_constant(outputs[0])
        self._add("output", nir.Output(np.array(last.shape)), last.sources)
        nodes = {name: node.node() if isinstance(node, _Synapses) else node for name, node in self.nodes.items()}
        return nir.NIRGraph(nodes, self.edges, type_check=all(map(checked_by_nir, nodes.values())))

    def _arguments(self) -> list[Any]:
        import nir
        from torch.export.graph_signature import InputKind

        values: list[Any] = []
        for spec, node in zip(self.program.graph_signature.input_specs, self.program.graph.nodes, strict=False):
            if spec.kind is InputKind.USER_INPUT:
                images = torch.zeros(node.meta["val"].shape, dtype=torch.float64)
                self._add("input", nir.Input(np.array(images.shape[1:])), ())
                values.append(_Current(("input",), images, shared=True))
            else:
                held = {**self.program.state_dict, **self.program.constants}[str(spec.target)]
                value = held.detach().cpu() if isinstance(held, Tensor) else held
                values.append(value.double() if isinstance(value, Tensor) and value.is_floating_point() else value)
        return values

    # -------------------------------------------------------------------------------------------------------- the rules

    def run_node(self, n: fx.Node) -> Any:
        self.at = n
        value = super().run_node(n)
        read_by = [user for user in n.users if "_assert" not in str(user.target)]
        return replace(value, shared=True) if isinstance(value, _Current) and len(read_by) > 1 else value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if "_assert" in str(target):  # of the exporter's own; constants here are of a finer type than it expects
            return None
        currents = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _Current)]
        if not currents:
            return super().call_function(target, args, kwargs)
        if getattr(target, "__name__", "") == "getitem":  # of the several results of one operation
            return args[0]
        name = target._opname
        layer = layer_of(self._path(), self.layers)
        if layer is not None:
            return self._in_neuron(name, layer, *args)
        rule = _RULES.get(name)
        in_place = isinstance(args[0], _Current) or name in _EITHER_SIDE
        if rule is None or not in_place or (len(currents) > 1 and name not in _SUMS):
            raise self._refusal(name)
        result: _Current = rule(self, *args, **kwargs)
        expected = self.at.meta["val"]
        shape = (expected[0] if isinstance(expected, tuple | list) else expected).shape
        if tuple(result.constant.shape) != tuple(shape):
            raise self._refusal(name)
        return result

    def _in_neuron(self, name: str, layer: str, *args: Any) -> Any:
        """`Spike` is one comparison and a cast."""
        import nir

        if name != "ge":
            return args[0] if isinstance(args[0], _Current) else None
        u, threshold = args
        shifted = np.float32(threshold) - u.constant[0].numpy()
        v_threshold = np.nextafter(shifted.astype(np.float32), np.float32(-np.inf))
        r, rest = np.ones_like(v_threshold), np.zeros_like(v_threshold)
        return self._current(layer, nir.IF(r=r, v_threshold=v_threshold, v_reset=rest), u, torch.zeros_like(u.constant))

    def synapses(self, x: _Current, weight: Tensor, bias: Tensor | None = None, *settings: Any) -> _Current:
        """A layer of weights; the constant in front of it comes through it as well."""
        operation = self.at.target
        constant = operation(x.constant, weight, bias, *settings)  # type: ignore[operator]
        features = constant.dim() - weight.dim() + 2  # the axis of the output features, counted from the batch
        if features != 2:
            raise self._refusal("linear layer on more than one axis")
        each = constant[0].flatten(1)[:, 0] if constant.dim() > 2 else constant[0]
        uniform = torch.equal(constant, each.view(-1, *[1] * (constant.dim() - 2)).expand_as(constant))
        layer = _Synapses(
            weight.clone(), each.clone() if uniform else torch.zeros_like(each), self._writer(x, *settings)
        )
        return self._current(None, layer, x, torch.zeros_like(constant) if uniform else constant)

    def _writer(self, x: _Current, *settings: Any) -> Callable[..., nir.NIRNode]:
        import nir

        dims = len(x.shape) - 1
        if not dims:
            return lambda weight, bias: nir.Affine(weight, bias) if bias.any() else nir.Linear(weight)
        usual: list[Any] = [[1] * dims, [0] * dims, [1] * dims, 1]
        stride, padding, dilation, groups = [*settings, *usual[len(settings) :]]
        if isinstance(padding, str):
            raise self._refusal(f"padding={padding!r}")
        place = [tuple(p) if len(p) == dims else tuple(p) * dims for p in (stride, padding, dilation)]
        if dims == 1:
            (step,), (border,), (gap,) = place
            return lambda weight, bias: nir.Conv1d(x.shape[1], weight, step, border, gap, groups, bias)
        return lambda weight, bias: nir.Conv2d(x.shape[1:], weight, *place, groups, bias)

    def normed(
        self,
        x: _Current,
        gain: Tensor | None,
        shift: Tensor | None,
        mean: Tensor,
        var: Tensor,
        momentum: float,
        epsilon: float,
    ) -> _Current:
        """γ (x − μ)/√(σ² + ε) + β = s x + t."""
        scale = (var + epsilon).rsqrt() * (1 if gain is None else gain)
        constant = (0 if shift is None else shift) - mean * scale
        wide = (-1, *[1] * (len(x.shape) - 1))
        return self.shifted(self.scaled(x, scale.view(wide)), constant.view(wide))

    def scaled(self, x: _Current, factor: Any) -> _Current:
        """x · c, folded into the weights where nothing else reads them."""
        import nir

        if not isinstance(factor, Tensor | int | float):
            raise self._refusal("product")
        scale = torch.as_tensor(factor, dtype=torch.float64).broadcast_to(x.constant.shape[1:])
        constant = x.constant * scale
        layer = self._own_synapses(x)
        if layer is not None and (each := _by_channel(scale)) is not None:
            layer.weight *= each.view(-1, *[1] * (layer.weight.dim() - 1))
            layer.bias *= each
            return replace(x, constant=constant)
        return self._current(None, nir.Scale(_numbers(scale)), x, constant)

    def divided(self, x: _Current, by: Any, **kwargs: Any) -> _Current:
        if kwargs or not isinstance(by, Tensor | int | float):
            raise self._refusal("division")
        return self.scaled(x, 1 / by)

    def shifted(self, x: _Current, constant: Any) -> _Current:
        """x + c, taken by the bias where nothing else reads it."""
        offset = torch.as_tensor(constant, dtype=torch.float64).broadcast_to(x.constant.shape[1:])
        layer = self._own_synapses(x)
        if layer is not None and (each := _by_channel(offset)) is not None:
            layer.bias += each
            return x
        return replace(x, constant=x.constant + offset)

    def product(self, x: Any, y: Any) -> _Current:
        return self.scaled(x, y) if isinstance(x, _Current) else self.scaled(y, x)

    def negated(self, x: _Current) -> _Current:
        return self.scaled(x, -1.0)

    def added(self, x: Any, y: Any, alpha: float = 1) -> _Current:
        """Edges that meet add up; two edges between the same nodes would be one, so the second gets a node between."""
        import nir

        if not isinstance(x, _Current):
            return self.shifted(y if alpha == 1 else self.scaled(y, alpha), x)
        if not isinstance(y, _Current):
            return self.shifted(x, y * alpha)
        y = y if alpha == 1 else self.scaled(y, alpha)
        if x.shape != y.shape:
            raise self._refusal("sum of maps of different shapes")
        if set(x.sources) & set(y.sources):
            y = self._current(None, nir.Scale(np.ones(y.shape, np.float32)), y, y.constant)
        return _Current((*x.sources, *y.sources), x.constant + y.constant, shared=True)

    def subtracted(self, x: Any, y: Any, alpha: float = 1) -> _Current:
        return self.added(x, y, -alpha)

    def subtracted_from(self, x: _Current, y: Any, alpha: float = 1) -> _Current:
        return self.added(y, x, -alpha)

    def passed(self, x: _Current, *_: Any, **__: Any) -> _Current:
        return x

    def average_pool(
        self,
        x: _Current,
        size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0, 0),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> _Current:
        import nir

        if ceil_mode or divisor is not None or (any(padding) and not count_include_pad):
            raise self._refusal("average pool with ceil_mode, divisor_override or count_include_pad=False")
        return self._pooled(nir.AvgPool2d, x, size, stride or size, padding)

    def adaptive_average_pool(self, x: _Current, size: Sequence[int]) -> _Current:
        import nir

        if len(x.shape) != 3 or any(n % m for n, m in zip(x.shape[1:], size, strict=True)):
            raise self._refusal("adaptive pool that does not divide the map")
        window = [n // m for n, m in zip(x.shape[1:], size, strict=True)]
        return self._pooled(nir.AvgPool2d, x, window, window, (0, 0))

    def max_pool(
        self,
        x: _Current,
        size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0, 0),
        dilation: Sequence[int] = (1, 1),
        ceil_mode: bool = False,
    ) -> _Current:
        """The largest of zeros and ones is one where there is any: a sum, and neurons that fire at one."""
        import nir

        spikes = len(x.sources) == 1 and isinstance(self.nodes[x.sources[0]], nir.IF) and not x.constant.any()
        if not spikes or ceil_mode or set(dilation) != {1}:
            raise self._refusal("max pool of anything but spikes, or with dilation or ceil_mode")
        counted = self._pooled(nir.SumPool2d, x, size, stride or size, padding, f"{self._here()}.sum")
        v_threshold = np.full(counted.shape, np.nextafter(np.float32(1), np.float32(0)))
        neurons = nir.IF(r=np.ones_like(v_threshold), v_threshold=v_threshold, v_reset=np.zeros_like(v_threshold))
        return self._current(None, neurons, counted, counted.constant)

    def averaged(self, x: _Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> _Current:
        import nir

        return self._over_map(nir.AvgPool2d, x, axes, keep)

    def summed(self, x: _Current, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> _Current:
        import nir

        return self._over_map(nir.SumPool2d, x, axes, keep)

    def _over_map(self, kind: type[nir.NIRNode], x: _Current, axes: Sequence[int] | None, keep: bool) -> _Current:
        if len(x.shape) != 3 or {axis % 4 for axis in axes or ()} != {2, 3}:
            raise self._refusal("mean or sum over other axes than height and width")
        pooled = self._pooled(kind, x, x.shape[1:], x.shape[1:], (0, 0))
        return pooled if keep else self._flat(pooled)

    def _pooled(
        self,
        kind: type[nir.NIRNode],
        x: _Current,
        size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        name: str | None = None,
    ) -> _Current:
        import nir

        if len(x.shape) != 3:
            raise self._refusal("pool of anything but maps of channels, height and width")
        divisor = 1 if kind is nir.SumPool2d else None
        constant = nn.functional.avg_pool2d(
            x.constant, tuple(size), tuple(stride), tuple(padding), divisor_override=divisor
        )
        whole: Any = kind
        return self._current(name, whole(np.array(size), np.array(stride), np.array(padding)), x, constant)

    def reshaped(self, x: _Current, *_: Any, **__: Any) -> _Current:
        after = tuple(self.at.meta["val"].shape)
        if after == tuple(x.constant.shape):
            return x
        if after != (len(x.constant), math.prod(x.shape)):
            raise self._refusal("change of shape other than flattening")
        return self._flat(x)

    def _flat(self, x: _Current) -> _Current:
        import nir

        flat = x.constant.flatten(1)
        flatten = nir.Flatten({"input": np.array(x.shape)}, start_dim=-len(x.shape), end_dim=-1)
        return self._current(f"{self._here()}.flatten" if x.sources[0] == self._here() else None, flatten, x, flat)

    # ------------------------------------------------------------------------------------------------------ the graph

    def _current(self, name: str | None, node: nir.NIRNode | _Synapses, x: _Current, constant: Tensor) -> _Current:
        return _Current((self._add(name or self._here(), node, x.sources),), constant)

    def _here(self) -> str:
        """The innermost module around the operation, or the operation if the network itself calls it."""
        return next((part for part in reversed(self._path()) if part), str(self.at.target._opname))  # type: ignore[union-attr]

    def _add(self, name: str, node: nir.NIRNode | _Synapses, sources: tuple[str, ...]) -> str:
        taken = sum(other == name or other.startswith(f"{name}:") for other in self.nodes)
        name = f"{name}:{taken + 1}" if taken else name
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return name

    def _own_synapses(self, x: _Current) -> _Synapses | None:
        """The layer of weights that x comes from, if nothing else does and nothing else reads it."""
        node = self.nodes[x.sources[0]]
        sole = len(x.sources) == 1 and not x.shared and not x.constant.any()
        return node if sole and isinstance(node, _Synapses) else None

    def _without_constant(self, x: _Current) -> _Current:
        """A constant that reached the output gets a layer of its own."""
        import nir

        if not x.constant.any():
            return x
        if len(x.shape) != 1:
            raise self._refusal("constant added to an output map")
        affine = nir.Affine(np.eye(x.shape[0], dtype=np.float32), _numbers(x.constant[0]))
        return self._current("bias", affine, x, torch.zeros_like(x.constant))

    def _path(self) -> list[str]:
        """The names of the modules around the operation, the outermost first."""
        return [str(path).partition("@")[0] for path, _ in self.at.meta.get("nn_module_stack", {}).values()]

    def _refusal(self, name: str) -> PicojouleError:
        where = next((repr(part) for part in reversed(self._path()) if part), "the network's own forward pass")
        return PicojouleError(f"NIR cannot express {name} (in {where}): {REMEDIES.get(name, REMEDY)}")


def _by_channel(scale: Tensor) -> Tensor | None:
    """One number for each channel, if the map says no more."""
    each = scale.flatten(1)[:, 0] if scale.dim() > 1 else scale
    return each if torch.equal(each.view(-1, *[1] * (scale.dim() - 1)).expand_as(scale), scale) else None


def _numbers(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.numpy(), dtype=np.float32)


def checked_by_nir(node: nir.NIRNode) -> bool:
    """Whether the shape that `nir` works out for a node is right: it takes every kernel for square and ungrouped."""
    groups, weight = getattr(node, "groups", 1), getattr(node, "weight", np.ones((1, 1, 1, 1)))
    return groups == 1 and len(set(weight.shape[2:])) <= 1


_SUMS = frozenset(["add", "sub", "rsub"])
_EITHER_SIDE = _SUMS | {"mul"}
"""Operations in which a constant may stand in front of the current."""
_RULES: dict[str, Callable[..., _Current]] = {
    **dict.fromkeys(("conv1d", "conv2d", "linear"), _Translation.synapses),
    "_native_batch_norm_legit_no_training": _Translation.normed,
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "_to_copy"), _Translation.passed),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "squeeze"), _Translation.reshaped),
    "add": _Translation.added,
    "sub": _Translation.subtracted,
    "rsub": _Translation.subtracted_from,
    "mul": _Translation.product,
    "div": _Translation.divided,
    "neg": _Translation.negated,
    "avg_pool2d": _Translation.average_pool,
    "adaptive_avg_pool2d": _Translation.adaptive_average_pool,
    "_adaptive_avg_pool2d": _Translation.adaptive_average_pool,
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _Translation.max_pool),
    "mean": _Translation.averaged,
    "sum": _Translation.summed,
}
