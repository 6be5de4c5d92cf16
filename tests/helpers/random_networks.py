"""Random small networks, drawn as a list of nodes that both PyTorch (`Network`) and the oracle can run.

A network is drawn in stages: some values are joined, pass a few operations, meet synapses and fire. Any earlier value
can be used again, so residual sums, dense concatenations and branches come by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

from oracle import Node, entering, is_synaptic, passed
from picojoule.neurons.spike import Spike

Pick = Callable[[Sequence[Any]], Any]
Settings = dict[str, Any]
Shape = tuple[int, ...]

LARGEST = 160  # elements of a value
SPATIAL = {3: 1, 4: 2, 5: 3}  # axes of a map by the rank of its batch

# ---------------------------------------------------------------------------------------- operations: what can be drawn


def axis_of(pick: Pick, shape: Shape) -> int:
    return pick(range(1, len(shape)))


def draw_reshape(pick: Pick, shape: Shape) -> Settings | None:
    inner = shape[1:]
    choices = [(math.prod(inner),)]
    choices += [(*inner[:i], math.prod(inner[i : i + 2]), *inner[i + 2 :]) for i in range(len(inner) - 1)]
    choices += [
        (*inner[:i], n // f, f, *inner[i + 1 :])
        for i, n in enumerate(inner)
        for f in (2, 3)
        if n % f == 0 and n > f and len(inner) < 4
    ]
    return {"shape": pick(choices), "form": pick(["reshape", "view", "flatten", "module"])}


def draw_permute(pick: Pick, shape: Shape) -> Settings | None:
    axes = list(range(1, len(shape)))
    a, b = pick(axes), pick(axes)
    axes[a - 1], axes[b - 1] = axes[b - 1], axes[a - 1]
    return {"axes": tuple(axes), "swapped": (a, b), "form": pick(["permute", "transpose", "movedim", "keyword"])}


def draw_slice(pick: Pick, shape: Shape) -> Settings | None:
    index = tuple(pick([slice(None), slice(0, n, 2), slice(n // 2, None), slice(0, max(1, n - 1))]) for n in shape[1:])
    return {"index": index}


def draw_select(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) < 3:
        return None
    axis = axis_of(pick, shape)
    return {"axis": axis, "index": pick(range(shape[axis])), "form": pick(["select", "index", "unbind"])}


def draw_index_select(pick: Pick, shape: Shape) -> Settings | None:
    axis = axis_of(pick, shape)
    return {"axis": axis, "index": tuple(pick(range(shape[axis])) for _ in range(pick([1, 2, 3])))}


def draw_axis(pick: Pick, shape: Shape) -> Settings | None:
    return {"axis": axis_of(pick, shape)}


def draw_roll(pick: Pick, shape: Shape) -> Settings | None:
    return {"axis": axis_of(pick, shape), "shift": pick([-1, 1, 2])}


def draw_repeat(pick: Pick, shape: Shape) -> Settings | None:
    return {"axis": axis_of(pick, shape), "times": 2}


def draw_chunk(pick: Pick, shape: Shape) -> Settings | None:
    axis = axis_of(pick, shape)
    if shape[axis] < 2:
        return None
    return {"axis": axis, "part": pick([0, 1]), "form": pick(["chunk", "split", "tensor_split"])}


def draw_sum(pick: Pick, shape: Shape) -> Settings | None:
    keepdim = pick([False, True])
    if len(shape) < 3 and not keepdim:
        return None
    axis = axis_of(pick, shape)
    # a global mean: every axis of the map
    axes = pick([(axis,), tuple(range(2, len(shape)))]) if len(shape) > 2 else (axis,)
    return {"axes": axes, "keepdim": keepdim, "form": pick(["method", "function"])}


def draw_pixel_shuffle(pick: Pick, shape: Shape) -> Settings | None:
    return {"r": 2, "form": pick(["module", "function"])} if len(shape) == 4 and shape[1] % 4 == 0 else None


def draw_unfold(pick: Pick, shape: Shape) -> Settings | None:
    return {"k": 2} if len(shape) == 4 and min(shape[2:]) >= 2 else None


def draw_upsample(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) not in SPATIAL:
        return None
    return {"size": tuple(pick([n, n + 1, 2 * n]) for n in shape[2:]), "form": pick(["module", "function"])}


def draw_pad(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) not in SPATIAL:
        return None
    mode = pick(["constant", "reflect", "replicate", "circular"])
    most = {"constant": 2, "reflect": 1, "replicate": 2, "circular": 1}[mode]
    if mode == "reflect" and min(shape[2:]) < 2:
        return None
    widths = tuple((pick(range(most + 1)), pick(range(most + 1))) for _ in shape[2:])
    return {"widths": widths, "mode": mode, "form": pick(["function", "keyword"])}


def pool_axes(pick: Pick, shape: Shape) -> list[tuple[int, int, int]]:
    axes = []
    for n in shape[2:]:
        k = pick([k for k in (1, 2, 3) if k <= n])
        axes.append((k, pick([1, 2, 3]), pick(range(k // 2 + 1))))
    return axes


def draw_avg_pool(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) not in SPATIAL:
        return None
    ceil, include = pick([False, True]), pick([False, True])
    form = pick(["module", "function", "keyword"])
    return {"axes": pool_axes(pick, shape), "ceil": ceil, "include": include, "form": form}


def draw_sum_pool(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) not in SPATIAL:
        return None
    axes = [(k, stride, 0) for k, stride, _ in pool_axes(pick, shape)]
    return {"axes": axes, "ceil": pick([False, True]), "form": pick(["module", "function"])}


def draw_max_pool(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) not in SPATIAL:
        return None
    return {"axes": pool_axes(pick, shape), "ceil": pick([False, True]), "indices": pick([False, True])}


def draw_adaptive(pick: Pick, shape: Shape) -> Settings | None:
    if len(shape) not in SPATIAL:
        return None
    return {"size": tuple(pick([1, 2, 3, n]) for n in shape[2:]), "form": pick(["module", "function"])}


def draw_batch_norm(pick: Pick, shape: Shape) -> Settings | None:
    return {"form": pick(["module", "function"])} if len(shape) <= 5 else None


def drawn_form(*forms: str) -> Callable[[Pick, Shape], Settings]:
    return lambda pick, shape: {"form": pick(forms)}


DRAWN: dict[str, Callable[[Pick, Shape], Settings | None]] = {
    "batch_norm": draw_batch_norm,
    "dropout": drawn_form("module", "channels", "function", "in_place"),
    "detach": drawn_form("detach", "data", "no_grad"),
    "scale": drawn_form("times", "over", "buffer", "in_place", "reversed"),
    "bias": drawn_form("number", "buffer", "in_place", "minus", "reversed"),
    "negative": drawn_form("operator"),
    "cast": drawn_form("float", "double", "to", "keyword", "bfloat16"),
    "clone": drawn_form("clone", "contiguous"),
    "reshape": draw_reshape,
    "permute": draw_permute,
    "slice": draw_slice,
    "select": draw_select,
    "index_select": draw_index_select,
    "flip": draw_axis,
    "roll": draw_roll,
    "repeat": draw_repeat,
    "repeat_interleave": draw_repeat,
    "chunk": draw_chunk,
    "sum": draw_sum,
    "mean": draw_sum,
    "pixel_shuffle": draw_pixel_shuffle,
    "unfold": draw_unfold,
    "upsample": draw_upsample,
    "pad": draw_pad,
    "avg_pool": draw_avg_pool,
    "sum_pool": draw_sum_pool,
    "adaptive_avg_pool": draw_adaptive,
}
SCALING = frozenset("batch_norm scale bias negative mean dropout avg_pool sum_pool adaptive_avg_pool".split())
"""After these, and after dropout while training, values are no whole spikes any more, so no max pool may follow."""


# ------------------------------------------------------------------------------------------------------------- synapses


def draw_conv(pick: Pick, shape: Shape) -> Settings:
    sizes = shape[2:]
    mode = pick(["zeros", "zeros", "reflect", "replicate", "circular"])
    same = pick([False, False, True])
    kernel, padding, dilation = [], [], []
    for n in sizes:
        most = n - 1 if mode == "reflect" else min(n, 2)
        p = pick(range(min(most, 2) + 1))
        room = n if same else n + 2 * p
        choices = [(k, d) for k in (1, 2, 3) for d in (1, 2) if d * (k - 1) + 1 <= room]
        if same:  # what a padding mode copies must be on the map
            choices = [(k, d) for k, d in choices if mode == "zeros" or (d * (k - 1) + 1) // 2 <= most]
        k, d = pick(choices)
        kernel.append(k), padding.append(p), dilation.append(d)
    groups = pick([g for g in (1, 2, 3) if shape[1] % g == 0])
    return {
        "kernel": tuple(kernel),
        "stride": tuple(1 if same else pick([1, 2, 3]) for _ in sizes),
        "padding": "same" if same else tuple(padding),
        "dilation": tuple(dilation),
        "groups": groups,
        "padding_mode": mode,
        "out": groups * pick([1, 2]),
        "bias": pick([False, True]),
        "form": pick(["module", "function", "keyword"]) if mode == "zeros" else "module",
    }


def draw_conv_transpose(pick: Pick, shape: Shape) -> Settings:
    stride, dilation, extra, kernel, padding = [], [], [], [], []
    for _ in shape[2:]:
        s, d, k = pick([1, 2]), pick([1, 2]), pick([1, 2, 3])
        stride.append(s), dilation.append(d), kernel.append(k)
        padding.append(pick([p for p in (0, 1) if 2 * p <= d * (k - 1)]))
        extra.append(pick(range(max(s, d))))
    groups = pick([g for g in (1, 2, 3) if shape[1] % g == 0])
    return {
        "kernel": tuple(kernel),
        "stride": tuple(stride),
        "padding": tuple(padding),
        "output_padding": tuple(extra),
        "dilation": tuple(dilation),
        "groups": groups,
        "out": groups * pick([1, 2]),
        "bias": pick([False, True]),
        "form": pick(["module", "function", "keyword"]),
    }


def draw_synapse(pick: Pick, shape: Shape, op: str) -> Settings:
    if op == "conv":
        return draw_conv(pick, shape)
    if op == "conv_transpose":
        return draw_conv_transpose(pick, shape)
    if op == "linear":
        return {"out": pick([1, 2, 3]), "bias": pick([False, True]), "form": pick(["module", "function", "keyword"])}
    if op == "matmul":
        return {
            "out": pick([1, 2, 3]),
            "left": len(shape) > 2 and pick([False, True]),
            "form": pick(["operator", "keyword"]),
        }
    return {"out": pick([1, 2, 3]), "form": pick(["method", "keyword"])}


class Synapse(nn.Module):
    """Conv, ConvTranspose, Linear or a bare product, called as a module, as a function or with keywords."""

    def __init__(self, node: Node, shape: Shape, spatial: int) -> None:
        super().__init__()
        s = self.settings = node.settings
        self.op, self.spatial = node.op, spatial
        if node.op in ("conv", "conv_transpose"):
            names = ("stride", "padding", "dilation", "groups", "bias")
            names += ("padding_mode",) if node.op == "conv" else ("output_padding",)
            kind = getattr(nn, f"Conv{'Transpose' if node.op == 'conv_transpose' else ''}{spatial}d")
            self.layer = kind(shape[1], s["out"], s["kernel"], **{name: s[name] for name in names})
        elif node.op == "linear":
            self.layer = nn.Linear(shape[-1], s["out"], bias=s["bias"])
        else:
            size = (s["out"], shape[-2]) if s.get("left") else (shape[-1], s["out"])
            self.weight = nn.Parameter(torch.randn(size))

    @property
    def owner(self) -> nn.Module:
        return getattr(self, "layer", self)

    def forward(self, x: Tensor) -> Tensor:
        s, form = self.settings, self.settings["form"]
        if self.op == "matmul":
            first, second = (self.weight, x) if s["left"] else (x, self.weight)
            return first @ second if form == "operator" else torch.matmul(input=first, other=second)
        if self.op == "mm":
            return x.mm(self.weight) if form == "method" else torch.mm(input=x, mat2=self.weight)
        if form == "module":
            return self.layer(x)
        weight, bias = self.layer.weight, self.layer.bias
        if self.op == "linear":
            return F.linear(x, weight, bias) if form == "function" else F.linear(input=x, weight=weight, bias=bias)
        names = ["stride", "padding", "dilation", "groups"]
        if self.op == "conv_transpose":
            names = ["stride", "padding", "output_padding", "groups", "dilation"]
        function = getattr(F, f"{self.op}{self.spatial}d")
        if form == "function":
            return function(x, weight, bias, *(s[name] for name in names))
        return function(input=x, weight=weight, bias=bias, **{name: s[name] for name in names})


# ------------------------------------------------------------------------------------------------------ as PyTorch code


def torch_pool(name: str, s: Settings, spatial: int, **more: Any) -> nn.Module:
    kernel, stride, padding = zip(*s["axes"], strict=True)
    return getattr(nn, f"{name}{spatial}d")(kernel, stride, padding, ceil_mode=s["ceil"], **more)


def module_for(node: Node, shape: Shape) -> nn.Module | None:
    """The module that a node needs; `shape` is that of its (first) input."""
    s, spatial = node.settings, SPATIAL.get(len(shape), 0)
    form = s.get("form")
    if is_synaptic(node) and node.weights_of is None:
        return Synapse(node, shape, spatial)
    match node.op, form:
        case "spike", _:
            return Spike()
        case "relay", _:
            return torch_pool("MaxPool", s, spatial, return_indices=s["indices"])
        case "batch_norm", _:
            return {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](shape[1])
        case "dropout", "module":
            return nn.Dropout(0.5)
        case "dropout", "channels":
            return getattr(nn, f"Dropout{spatial}d")(0.5) if spatial else nn.AlphaDropout(0.5)
        case "reshape", "module":
            return nn.Sequential(nn.Flatten(), nn.Unflatten(1, s["shape"]))
        case "pixel_shuffle", "module":
            return nn.PixelShuffle(s["r"])
        case "upsample", "module":
            return nn.Upsample(size=s["size"])
        case "avg_pool", "module":
            return torch_pool("AvgPool", s, spatial, count_include_pad=s["include"])
        case "sum_pool", "module":
            kernel, stride, _ = zip(*s["axes"], strict=True)
            sizes = (kernel[0], stride[0]) if spatial == 1 else (kernel, stride)
            return getattr(nn, f"LPPool{spatial}d")(1, *sizes, ceil_mode=s["ceil"])
        case "adaptive_avg_pool", "module":
            return getattr(nn, f"AdaptiveAvgPool{spatial}d")(s["size"])
    return None


def ran(node: Node, module: nn.Module | None, buffer: Tensor, x: Tensor, *others: Tensor) -> Tensor:
    """One node's operation as a model would write it."""
    s, form = node.settings, node.settings.get("form")
    spatial = SPATIAL.get(x.dim(), 0)
    if (module is not None and form not in ("function", "keyword")) or is_synaptic(node):
        out = module(x)
        return out[0] if isinstance(out, tuple) else out
    match node.op, form:
        case "batch_norm", _:
            return F.batch_norm(x, module.running_mean, module.running_var, module.weight, module.bias)
        case "dropout", "function":
            return F.dropout(x, 0.3, training=False)
        case "dropout", "in_place":
            return F.dropout(x, p=0.3, training=False, inplace=True)
        case "detach", "detach":
            return x.detach()
        case "detach", "data":
            return x.data
        case "detach", "no_grad":
            with torch.no_grad():
                return x.clone()
        case "scale", "times":
            return x * 0.5
        case "scale", "over":
            return x / buffer
        case "scale", "buffer":
            return torch.mul(input=x, other=buffer)
        case "scale", "reversed":
            return buffer * x
        case "scale", "in_place":
            x = x.clone()
            x *= 3
            return x
        case "bias", "number":
            return 2 + x
        case "bias", "buffer":
            return torch.add(input=x, other=buffer, alpha=2)
        case "bias", "reversed":
            return 1 - x
        case "bias", "minus":
            return buffer - x
        case "bias", "in_place":
            x = x.clone()
            x += buffer
            return x
        case "negative", _:
            return -x
        case "tanh", _:
            return torch.tanh(x)
        case "cast", "float" | "double" | "bfloat16":
            return getattr(x, form)()
        case "cast", "to":
            return x.to(torch.float64)
        case "cast", "keyword":
            return x.to(dtype=torch.float32, device="cpu")
        case "clone", _:
            return getattr(x, form)()
        case "reshape", "flatten" if len(s["shape"]) == 1:
            return torch.flatten(x, start_dim=1)
        case "reshape", "view":
            return x.contiguous().view(len(x), *s["shape"])
        case "reshape", _:
            return torch.reshape(input=x, shape=(len(x), *s["shape"]))
        case "permute", "permute":
            return x.permute(0, *s["axes"])
        case "permute", "keyword":
            return torch.permute(input=x, dims=(0, *s["axes"]))
        case "permute", "transpose":
            return x.transpose(*s["swapped"])
        case "permute", "movedim":
            a, b = s["swapped"]
            return x.movedim((a, b), (b, a)) if a != b else x
        case "slice", _:
            return x[(slice(None), *s["index"])]
        case "select", "select":
            return x.select(s["axis"], s["index"])
        case "select", "index":
            return x[(slice(None),) * s["axis"] + (s["index"],)]
        case "select", "unbind":
            return x.unbind(s["axis"])[s["index"]]
        case "index_select", _:
            return x.index_select(s["axis"], torch.tensor(s["index"]))
        case "flip", _:
            return x.flip(s["axis"])
        case "roll", _:
            return torch.roll(x, s["shift"], s["axis"])
        case "repeat", _:
            return x.repeat([s["times"] if axis == s["axis"] else 1 for axis in range(x.dim())])
        case "repeat_interleave", _:
            return x.repeat_interleave(s["times"], dim=s["axis"])
        case "chunk", "chunk":
            return x.chunk(2, dim=s["axis"])[s["part"]]
        case "chunk", "split":
            return x.split(-(-x.shape[s["axis"]] // 2), s["axis"])[s["part"]]
        case "chunk", "tensor_split":
            return x.tensor_split([-(-x.shape[s["axis"]] // 2)], s["axis"])[s["part"]]
        case (("sum" | "mean"), "method"):
            return getattr(x, node.op)(s["axes"], keepdim=s["keepdim"])
        case (("sum" | "mean"), "function"):
            return getattr(torch, node.op)(input=x, dim=s["axes"], keepdim=s["keepdim"])
        case "pixel_shuffle", _:
            return F.pixel_shuffle(x, s["r"])
        case "unfold", _:
            return F.unfold(x, s["k"])
        case "upsample", _:
            if all(size == 2 * n for size, n in zip(s["size"], x.shape[2:], strict=True)):
                return F.interpolate(x, scale_factor=2)
            return F.interpolate(x, size=s["size"], mode="nearest")
        case "pad", _:
            flat = [w for pair in reversed(s["widths"]) for w in pair]
            return F.pad(x, flat, s["mode"]) if form == "function" else F.pad(input=x, pad=flat, mode=s["mode"])
        case "avg_pool", _:
            kernel, stride, padding = zip(*s["axes"], strict=True)
            pool = getattr(F, f"avg_pool{spatial}d")
            if form == "function":
                return pool(x, kernel, stride, padding, s["ceil"], s["include"])
            return pool(
                input=x,
                kernel_size=kernel,
                stride=stride,
                padding=padding,
                ceil_mode=s["ceil"],
                count_include_pad=s["include"],
            )
        case "sum_pool", _:
            kernel, stride, _ = zip(*s["axes"], strict=True)
            sizes = (kernel[0], stride[0]) if spatial == 1 else (kernel, stride)
            return getattr(F, f"lp_pool{spatial}d")(x, 1.0, *sizes, s["ceil"])
        case "adaptive_avg_pool", _:
            return getattr(F, f"adaptive_avg_pool{spatial}d")(x, s["size"])
        case "add", "operator":
            return x + others[0]
        case "add", "minus":
            return x - others[0]
        case "add", "function":
            return torch.add(input=x, other=others[0])
        case "add", "in_place":
            x = x.clone()
            x += others[0]
            return x
        case "cat", _:
            return torch.cat([x, *others], dim=s["axis"])
        case "stack", _:
            return torch.stack(tensors=[x, *others], dim=s["axis"])
        case "write", _:
            out = torch.zeros(len(x), x.shape[1] + others[0].shape[1], *x.shape[2:])
            if form == "in_place":
                out[:, : x.shape[1]].copy_(x)
                out.narrow(1, x.shape[1], others[0].shape[1]).add_(others[0])
            else:
                out[:, : x.shape[1]] = x
                out[:, x.shape[1] :] = others[0]
            return out
    raise AssertionError(f"no PyTorch code for {node.op}, {form}")


class Network(nn.Module):
    """The nodes as a PyTorch model; the spiking layer of node i is called `parts.i`."""

    def __init__(self, nodes: list[Node], pruned: float = 0.0) -> None:
        super().__init__()
        self.nodes = nodes
        self.parts = nn.ModuleDict()
        self.register_buffer("two", torch.tensor(2.0))
        for i, node in enumerate(nodes[1:], start=1):
            module = module_for(node, nodes[node.inputs[0]].shape)
            if module is not None:
                self.parts[str(i)] = module
            if pruned and is_synaptic(node) and node.weights_of is None and node.settings["form"] == "module":
                prune.random_unstructured(module.owner, "weight", amount=pruned)

    def forward(self, x: Tensor) -> list[Tensor]:
        values = [x]
        for i, node in enumerate(self.nodes[1:], start=1):
            part = str(i if node.weights_of is None else node.weights_of)
            module = dict(self.parts).get(part)
            values.append(ran(node, module, self.two, *(values[j] for j in node.inputs)))
        return values[-1:]

    def present(self) -> dict[int, np.ndarray]:
        """The weights of each synaptic node as ones, with zeros where pruned."""
        owners = {
            i: self.parts[str(i)].owner for i, n in enumerate(self.nodes) if is_synaptic(n) and n.weights_of is None
        }
        return {
            i: owner.weight_mask.long().numpy()
            if hasattr(owner, "weight_mask")
            else np.ones(owner.weight.shape, dtype=np.int64)
            for i, owner in owners.items()
        }


# -------------------------------------------------------------------------------------------------------------- drawing


class Drawing:
    """A network while it is drawn."""

    def __init__(self, pick: Pick, shape: Shape) -> None:
        self.pick = pick
        self.nodes = [Node("input", shape=shape)]
        self.carries: list[frozenset[str]] = [frozenset(["pixels"])]
        """What each value holds: pixels, spikes, currents; "scaled" where it holds no whole spikes."""

    def add(
        self,
        op: str,
        inputs: tuple[int, ...],
        settings: Settings,
        carries: frozenset[str],
        weights_of: int | None = None,
    ) -> int:
        node = Node(op, inputs, settings, weights_of=weights_of)
        zeros = [np.zeros(self.nodes[i].shape, dtype=np.int64) for i in inputs]
        node.shape = self.synapse_shape(node, zeros[0]) if is_synaptic(node) else passed(node, zeros).shape
        if not 0 < math.prod(node.shape) <= LARGEST:
            return inputs[0]
        self.nodes.append(node)
        self.carries.append(carries)
        return len(self.nodes) - 1

    def synapse_shape(self, node: Node, x: np.ndarray) -> Shape:
        s, x = node.settings, entering(node, x)
        if node.op not in ("conv", "conv_transpose"):
            return (*x.shape[:-2], s["out"], x.shape[-1]) if s.get("left") else (*x.shape[:-1], s["out"])
        function = getattr(F, f"{node.op}{len(s['kernel'])}d")
        names = ["stride", "padding", "dilation"] + ["output_padding"] * (node.op == "conv_transpose")
        options = {name: s[name] for name in names}
        if node.op == "conv" and s["padding_mode"] != "zeros":
            options["padding"] = 0
        weight = torch.empty(
            (x.shape[1], 1, *s["kernel"]) if node.op == "conv_transpose" else (1, x.shape[1], *s["kernel"]),
            device="meta",
        )
        sizes = function(torch.empty(x.shape, device="meta"), weight, **options).shape[2:]
        return (1, s["out"], *sizes)

    def activations(self) -> list[int]:
        return [i for i, carried in enumerate(self.carries) if "currents" not in carried]

    def joined(self, i: int, op: str | None = None, form: str | None = None) -> int:
        """Value i with another one added, concatenated or stacked to it."""
        op = op or self.pick(["add", "add", "cat", "stack", "write"])
        shape = self.nodes[i].shape
        axis = self.pick(range(1, len(shape)))
        if op in ("add", "stack"):
            fits = [j for j in self.activations() if self.nodes[j].shape == shape]
        else:
            axis = 1 if op == "write" else axis
            others = [(self.nodes[j].shape, j) for j in self.activations() if len(self.nodes[j].shape) == len(shape)]
            fits = [j for other, j in others if other[:axis] + other[axis + 1 :] == shape[:axis] + shape[axis + 1 :]]
        if op == "stack" and len(shape) > 4:
            return i
        other = self.pick(fits[::-1])
        settings = {"axis": axis, "form": form or self.pick(["operator", "minus", "function", "in_place"])}
        carries = self.carries[i] | self.carries[other]
        if op == "add" and settings["form"] == "minus":
            carries |= {"scaled"}
        return self.add(op, (i, other), settings, carries)

    def passed(self, i: int) -> int:
        carried = self.carries[i]
        if carried == {"pixels"} and self.pick([False, False, True]):
            return self.add("tanh", (i,), {"form": "function"}, carried)
        if "scaled" not in carried and len(carried) == 1 and self.pick([False] * 5 + [True]):
            return self.relayed(i)
        op = self.pick(list(DRAWN))
        settings = DRAWN[op](self.pick, self.nodes[i].shape)
        if settings is None:
            return i
        return self.add(op, (i,), settings, carried | {"scaled"} if op in SCALING else carried)

    def relayed(self, i: int) -> int:
        settings = draw_max_pool(self.pick, self.nodes[i].shape)
        if settings is None:
            return i
        return self.add("relay", (i,), settings | {"of_spikes": self.carries[i] == {"spikes"}}, self.carries[i])

    def synapse(self, i: int) -> int:
        shape = self.nodes[i].shape
        again = [
            j
            for j, n in enumerate(self.nodes)
            if is_synaptic(n) and n.weights_of is None and self.nodes[n.inputs[0]].shape == shape
        ]
        if again and self.pick([False, True]):
            owner = self.pick(again)
            first = self.nodes[owner]
            return self.add(first.op, (i,), first.settings, frozenset(["currents"]), weights_of=owner)
        ops = (
            ["linear", "matmul"]
            + ["mm", "mm"] * (len(shape) == 2)
            + ["conv", "conv", "conv_transpose", "conv_transpose"] * (len(shape) in SPATIAL)
        )
        op = self.pick(ops)
        return self.add(op, (i,), draw_synapse(self.pick, shape, op), frozenset(["currents"]))

    def stage(self, *, fires: bool) -> None:
        i = self.pick(self.activations()[::-1])
        for _ in range(self.pick([0, 1, 2, 3])):
            i = self.joined(i) if self.pick([False, False, True]) else self.passed(i)
        current = self.synapse(i)
        if fires and current != i:
            if len(self.nodes[current].shape) <= 5 and self.pick([False, True]):
                current = self.add("batch_norm", (current,), {"form": "module"}, frozenset(["currents"]))
            self.add("spike", (current,), {}, frozenset(["spikes"]))

    def head(self, focus: str) -> None:
        """Synapses at the end, with the operation that this network is about in front of them."""
        op, _, form = focus.partition(" ")
        for i in self.activations()[::-1]:
            shape = self.nodes[i].shape
            if op in SYNAPTIC_RANKS:
                if len(shape) in SYNAPTIC_RANKS[op]:
                    kind = op.rstrip("123d") if op.startswith("conv") else op
                    if self.add(kind, (i,), draw_synapse(self.pick, shape, kind), frozenset(["currents"])) != i:
                        return
                continue
            settings = DRAWN[op](self.pick, shape) if op in DRAWN else None
            after = self.add(op, (i,), settings, frozenset(["head"])) if settings else i
            after = self.joined(i, op, form) if op in JOINING else after
            if after != i:
                self.synapse(after)
                return


JOINING = ("add", "cat", "stack", "write")
SYNAPTIC_RANKS = {
    "linear": (2, 3, 4, 5),
    "matmul": (2, 3, 4, 5),
    "mm": (2,),
    **{f"{op}{d}d": (d + 2,) for op in ("conv", "conv_transpose") for d in (1, 2, 3)},
}
FOCI = [*SYNAPTIC_RANKS, *DRAWN, "add operator", "add in_place", "cat", "stack", "write operator", "write in_place"]
"""What a network can be about: an operation that surely stands in it, at its end."""


@st.composite
def networks(draw: st.DrawFn, focus: str) -> Network:
    def pick(choices: Sequence[Any]) -> Any:
        return draw(st.sampled_from(choices))

    op = focus.partition(" ")[0]
    spatial = pick([rank - 2 for rank in SYNAPTIC_RANKS[op]] if op in SYNAPTIC_RANKS else [2, 1, 3, 2])
    sizes = {0: (), 1: (3, 4, 6), 2: (2, 3, 5), 3: (2, 3)}[spatial]
    channels = pick([4, 3, 2, 1])
    drawing = Drawing(pick, (1, channels, *(pick(sizes) for _ in range(spatial))))
    for _ in range(pick([1, 2, 3])):
        drawing.stage(fires=True)
    if not any(node.op == "spike" for node in drawing.nodes):
        drawing.add("spike", (0,), {}, frozenset(["spikes"]))
    if pick([False, True]):
        drawing.stage(fires=False)
    drawing.head(focus)
    return Network(drawing.nodes, pruned=pick([0.0, 0.0, 0.5]))
