"""From a graph to a program: one short rule for each kind of layer.

Batch norm and everything else that scales a current is carried along (`Affine`) until it meets a threshold, where it
becomes a sign and a threshold for each channel, or a sum. Dropout does nothing, flattening spikes is a way to read
the next weights. What has no rule is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from picojoule.errors import PicojouleError
from picojoule.events.folding import Affine, Doubles, Windows, as_bytes, as_rows, doubles, firing, floats
from picojoule.events.graph import shape_of
from picojoule.events.program import LARGEST_TILE, OPERATION, Floats, Kind, Map, Program, SpikeMap, aligned
from picojoule.events.values import Analog, Buffer, Counts, Spikes, Step, Value, describe
from picojoule.neuron import Spike

Weights = Literal["float32", "int8"]
MANY_WEIGHTS, FEW_PIXELS = 1 << 20, 4
"""Beyond so many weights, used for so few pixels, the order of reading memory matters more than registers."""


class Refused(Exception):
    """A layer without a rule; the message is the remedy."""


def lower(model: nn.Module, graph: fx.Graph, weights: Weights = "float32") -> Program:
    """The program of a captured graph."""
    return _Lowering(model, weights).run(graph)


class _Lowering:
    def __init__(self, model: nn.Module, weights: Weights) -> None:
        self.modules = dict(model.named_modules())
        self.weights = weights
        self.steps: list[Step] = []
        self.constants: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        self.tables: list[int] = []
        self.mask_words = 0
        self.emitted: list[tuple[str, Value, tuple[int, ...], bool]] = []
        self.synaptic: list[str] = []

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
                    made[node] = self.take(_map_of(shape))
                elif node.op == "output":
                    (answer,) = node.args
                    if not isinstance(answer, fx.Node) or made.get(answer) is None:
                        raise Refused("let the network return one tensor")
                    output_shape = (shape_of(answer) or ())[1:]
                    self.give(made[answer])
                elif shape is None or node.op == "get_attr":
                    made[node] = None  # a size or a constant; who needs its value will refuse it
                else:
                    made[node] = self.visit(node, made, shape)
            except Refused as refusal:
                raise PicojouleError(
                    f"the event engine cannot run {self.name(node)}: {refusal}, or use the dense engine"
                ) from None
        return self.finished(input_shape, output_shape)

    def name(self, node: fx.Node) -> str:
        """A node as its user knows it."""
        if node.op == "call_module":
            return f"the layer {node.target!r} ({type(self.modules[str(node.target)]).__name__})"
        if node.op in ("call_function", "call_method"):
            return f"the operation {getattr(node.target, '__name__', node.target)!r}"
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

    # ------------------------------------------------------------------------------------------------- rules by layer

    def module(self, name: str, inputs: list[Any], shape: tuple[int, ...]) -> Value:
        module, (x, *rest) = self.modules[name], inputs
        if rest:
            raise Refused("give it one argument")
        if isinstance(module, Spike):
            return self.fire(name, x, module.threshold, shape)
        for kinds, rule in _MODULES.items():
            if isinstance(module, kinds):
                return rule(self, name, module, x, shape)
        raise Refused("use convolutions, linear layers, pools, batch norm, dropout, flatten, sums and picojoule.Spike")

    def function(self, called: Any, inputs: list[Any], kwargs: dict[str, Any], shape: tuple[int, ...]) -> Value:
        x = inputs[0]
        if called in _AS_MODULES:
            module = _AS_MODULES[called](*inputs[1:], **kwargs)
            return next(
                rule(self, "", module, x, shape) for kinds, rule in _MODULES.items() if isinstance(module, kinds)
            )
        if called in _UNCHANGED:
            return _value(x)
        if called in _RESHAPES:
            return self.reshape(x, shape)
        if called in _MEANS:
            return self.mean(x, inputs, kwargs, shape)
        if called in _SUMS and len(inputs) == 2 and not kwargs:
            return self.add(*inputs)
        if called in _DIFFERENCES and len(inputs) == 2 and not kwargs:
            y = inputs[1]
            return self.add(x, -y if isinstance(y, int | float) else self.scaled(y, -1.0))
        if called in _PRODUCTS and len(inputs) == 2 and not kwargs:
            factor, x = sorted(inputs, key=lambda operand: not isinstance(operand, int | float))
            if isinstance(factor, int | float):
                return self.scaled(x, float(factor))
        if called in _QUOTIENTS and len(inputs) == 2 and not kwargs and isinstance(inputs[1], int | float):
            return self.scaled(x, 1 / float(inputs[1]))
        raise Refused("write it with layers that the engine knows (see picojoule.events)")

    def convolution(self, name: str, conv: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        assert isinstance(conv, nn.Conv1d | nn.Conv2d)
        if conv.padding_mode != "zeros":
            raise Refused("pad with zeros")
        weight, mask = _weight(conv)
        pads = conv._reversed_padding_repeated_twice  # left, right, top, bottom: the last axis comes first
        return self.synapses(
            name,
            x,
            _map_of(shape),
            _two_dimensional(weight),
            None if mask is None else _two_dimensional(mask),
            None if conv.bias is None else doubles(conv.bias),
            stride=_pair(conv, conv.stride),
            pad=(0 if isinstance(conv, nn.Conv1d) else pads[2], pads[0]),
            dilation=_pair(conv, conv.dilation),
            groups=conv.groups,
        )

    def linear(self, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        assert isinstance(layer, nn.Linear)
        if len(shape) != 2:
            raise Refused("flatten what it takes to [batch, features]")
        source = _value(x).map
        if source.neurons != layer.in_features:
            raise Refused("flatten what it takes to [batch, features]")
        weight, mask = _weight(layer)
        # A window as large as the map: flattening needs no work of its own.
        window = (layer.out_features, source.channels, source.height, source.width)
        return self.synapses(
            name,
            x,
            _map_of(shape),
            weight.reshape(window),
            None if mask is None else mask.reshape(window),
            None if layer.bias is None else doubles(layer.bias),
        )

    def synapses(
        self,
        name: str,
        x: Any,
        target: Map,
        weight: Floats,
        mask: Floats | None,
        bias: Doubles | None,
        *,
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int] = (0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> Analog:
        """Currents of `target`'s shape; weight [O, I / groups, KH, KW], mask 0 where a synapse was pruned away."""
        x = _value(x)
        if isinstance(x, Analog):
            if not x.pixels:
                raise Refused("let nothing but spikes or the network's input reach it")
            x = self.plain(x)  # planar or not: this is the one that can read both
        counted = not isinstance(x, Analog)
        if counted and name not in self.synaptic:
            self.synaptic.append(name)
        outputs, inputs, kernel_h, kernel_w = weight.shape
        part = Map(outputs // groups, target.height, target.width)
        bias = np.zeros(outputs) if bias is None else bias
        whole = self.buffer(target) if groups > 1 else None
        step = None
        for group in range(groups):
            these = slice(group * part.channels, (group + 1) * part.channels)
            rows = inputs * kernel_h * kernel_w
            lanes = part.lanes
            if rows * lanes >= 1 << 31:
                raise Refused("make it smaller")
            step = self.step(
                Kind.SYNAPSES,
                **_read(x, group * inputs, (group + 1) * inputs),
                **_written(part, self.buffer(part)),
                kernel_h=kernel_h,
                kernel_w=kernel_w,
                stride_h=stride[0],
                stride_w=stride[1],
                pad_h=pad[0],
                pad_w=pad[1],
                dilation_h=dilation[0],
                dilation_w=dilation[1],
                lanes=lanes,
                blocks=part.pitch // lanes,
                rows=rows,
                fan=part.channels,
                fan_table=-1 if mask is None else self.table(_fans(mask[these])),
                streamed=int(lanes == 64 and part.pixels <= FEW_PIXELS and weight[these].size > MANY_WEIGHTS),
                tile=min(part.pixels, max(1, LARGEST_TILE // rows)),
                counter=self.synaptic.index(name) if counted else -1,
            )
            step.rows, step.init = as_rows(weight[these], lanes), bias[these]
            if self.weights == "int8" and isinstance(x, Counts) and x.scale is not None:
                step.fields["repeated"], step.scale = x.most, x.scale
            if whole is not None:
                made = step.fields["target"]
                fields = {**_written(target, whole), "in_pitch": part.pitch, "last": part.channels}
                self.step(Kind.PLACE, source=made, **fields, out_first=these.start)
        if whole is not None:
            return Analog(target, whole, Affine.identity(outputs))
        assert step is not None
        numbers = step.fields["target"]
        assert isinstance(numbers, Buffer)
        return Analog(target, numbers, Affine.identity(outputs), made_by=step)

    def batch_norm(self, name: str, norm: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
        if not isinstance(x, Analog):
            raise Refused(f"it stands behind {describe(x)}; put it between synapses and a spiking layer")
        if norm.running_mean is None:
            raise Refused("let it track running statistics")
        return replace(x, affine=x.affine.then(Affine.of_batch_norm(norm)))

    def identity(self, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        return _value(x)

    def flatten(self, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        return self.reshape(x, shape)

    def reshape(self, given: Any, shape: tuple[int, ...]) -> Value:
        x = _value(given)
        if _map_of(shape) == x.map:
            return x
        if shape[1:] != (x.map.neurons,):
            raise Refused("flatten to [batch, features] or leave the shape as it is")
        if not isinstance(x, Analog):
            return x  # read through the next weights
        x = self.plain(x)
        flat = Map(x.map.neurons)
        if x.planar:
            return Analog(flat, x.numbers, Affine.identity(flat.channels), pixels=x.pixels)
        target = self.buffer(flat)
        fields = {**_written(flat, target), **_read(x)}
        self.step(Kind.FLATTEN, **fields)
        return Analog(flat, target, Affine.identity(flat.channels), pixels=x.pixels)

    # --------------------------------------------------------------------------------------------------------- firing

    def fire(self, name: str, x: Any, threshold: float, shape: tuple[int, ...]) -> Value:
        if not isinstance(x, Analog):
            raise Refused(f"it takes {describe(x)}; give it currents")
        x = self.interleaved(x)
        sign, t = firing(x.affine, threshold)
        spikes = Spikes(x.map, self.mask(x.map))
        step = x.made_by
        if step is not None and _can_fire(step, sign):
            step.scale_outputs(sign)
            step.fields |= {"target": spikes.mask, "fires": 1}
        else:
            gain = self.constant(_padded(sign, x.map.pitch))
            step = self.step(Kind.FIRE, source=x.numbers, scales=gain, **_written(x.map, spikes.mask))
        # No current reaches NaN: the lanes beside the channels stay silent.
        step.fields["threshold"] = self.constant(_padded(t, x.map.pitch, np.nan))
        return self.emits(name, spikes, shape, step, relay=False)

    def emits(self, name: str, value: Value, shape: tuple[int, ...], step: Step, *, relay: bool) -> Value:
        step.fields["emitter"] = len(self.emitted)
        self.emitted.append((name, value, shape[1:], relay))
        return value

    # ----------------------------------------------------------------------------------------------------- arithmetic

    def plain(self, x: Analog) -> Analog:
        """The same numbers with nothing left to be done to them."""
        if x.affine.is_identity:
            return x
        step = x.made_by
        if step is not None:
            step.scale_outputs(x.affine.gain, x.affine.shift)
            return replace(x, affine=Affine.identity(x.map.channels))
        return self.combined(x, None)

    def interleaved(self, x: Analog) -> Analog:
        """The same numbers pixel by pixel."""
        if not x.planar:
            return x
        target = self.buffer(x.map)
        self.step(Kind.INTERLEAVE, source=x.numbers, **_written(x.map, target))
        return replace(x, numbers=target, planar=False)

    def combined(self, x: Analog, y: Analog | None) -> Analog:
        x = self.interleaved(x)
        target = self.buffer(x.map)
        shift = x.affine.shift if y is None else x.affine.shift + y.affine.shift
        self.step(
            Kind.COMBINE,
            source=x.numbers,
            other=-1 if y is None else y.numbers,
            scales=self.constant(_padded(x.affine.gain, x.map.pitch)),
            weights=-1 if y is None else self.constant(_padded(y.affine.gain, x.map.pitch)),
            init=self.constant(_padded(shift, x.map.pitch)),
            **_written(x.map, target),
        )
        both = x.pixels and (y is None or y.pixels)
        return Analog(x.map, target, Affine.identity(x.map.channels), pixels=both)

    def scaled(self, x: Any, factor: float) -> Value:
        if not isinstance(x, Analog):
            raise Refused(f"it scales {describe(x)}; put the scale into the weights")
        return replace(x, affine=x.affine.then(Affine(np.array(factor), np.array(0.0))))

    def add(self, x: Any, y: Any) -> Value:
        if isinstance(x, int | float) or isinstance(y, int | float):
            number, x = (x, y) if isinstance(x, int | float) else (y, x)
            if not isinstance(x, Analog):
                raise Refused(f"it adds a number to {describe(x)}; make it a bias")
            return replace(x, affine=x.affine.then(Affine(np.array(1.0), np.array(float(number)))))
        x, y = _value(x), _value(y)
        if x.map != y.map:
            raise Refused("add values of the same shape")
        if not isinstance(x, Analog) and not isinstance(y, Analog):
            return self.summed(self.as_counts(x), self.as_counts(y))
        x, y = self.as_analog(x), self.as_analog(y)
        for fresh, other in ((x, y), (y, x)):
            if self.takes_in(fresh, other):
                fresh = self.plain(fresh)
                assert fresh.made_by is not None
                fresh.made_by.fields["other"] = other.numbers
                return fresh
        return self.combined(x, y)

    def takes_in(self, fresh: Analog, other: Analog) -> bool:
        """Whether synapses can begin with the other operand instead of zero: it has to be there before they run."""
        if fresh.made_by is None or "other" in fresh.made_by.fields or not other.affine.is_identity:
            return False
        here = self.steps.index(fresh.made_by)
        return not any(other.numbers is step.fields.get("target") for step in self.steps[here:])

    def as_counts(self, x: Spikes | Counts) -> Counts:
        if isinstance(x, Counts):
            return x
        target = self.buffer(x.map)
        self.step(Kind.SPREAD, source=x.mask, **_written(x.map, target))
        return Counts(x.map, target, target, scale=1.0, most=1)

    def as_analog(self, x: Value) -> Analog:
        """Spikes that are added to currents are currents."""
        if isinstance(x, Analog):
            return self.interleaved(x)
        return Analog(x.map, self.as_counts(x).values, Affine.identity(x.map.channels))

    def summed(self, x: Counts, y: Counts) -> Counts:
        def add(a: Buffer, b: Buffer) -> Buffer:
            identity = Affine.identity(x.map.channels)
            return self.combined(Analog(x.map, a, identity), Analog(x.map, b, identity)).numbers

        values = add(x.values, y.values)
        plain = x.values is x.counts and y.values is y.counts
        counts = values if plain else add(x.counts, y.counts)
        return Counts(x.map, values, counts, x.scale if x.scale == y.scale else None, x.most + y.most)

    # ---------------------------------------------------------------------------------------------------------- pools

    def average_pool(self, name: str, pool: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        assert isinstance(pool, nn.AvgPool1d | nn.AvgPool2d)
        source, target = _value(x).map, _map_of(shape)
        rows, columns = _windows(pool, source, target, pool.count_include_pad)
        return self.averaged(_value(x), target, rows, columns, getattr(pool, "divisor_override", None))

    def adaptive_pool(self, name: str, pool: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        source, target = _value(x).map, _map_of(shape)
        rows = Windows.adaptive(source.height, target.height)
        columns = Windows.adaptive(source.width, target.width)
        return self.averaged(_value(x), target, rows, columns)

    def mean(self, x: Any, inputs: list[Any], kwargs: dict[str, Any], shape: tuple[int, ...]) -> Value:
        source = _value(x).map
        dim = kwargs.get("dim", inputs[1] if len(inputs) > 1 else None)
        axes = [dim] if isinstance(dim, int) else list(dim or ())
        rank = 4 if source.height > 1 or len(axes) == 2 else 3
        if sorted(axis % rank for axis in axes) != list(range(2, rank)):
            raise Refused("take the mean over the whole map, .mean(dim=(2, 3))")
        rows, columns = Windows.adaptive(source.height, 1), Windows.adaptive(source.width, 1)
        return self.averaged(_value(x), Map(source.channels), rows, columns)

    def averaged(self, x: Value, target: Map, rows: Windows, columns: Windows, divisor: int | None = None) -> Value:
        divisors = np.outer(rows.divisor, columns.divisor) if divisor is None else np.full(target.pixels, divisor)
        shares = 1 / divisors.reshape(-1).astype(np.float64)
        windows = self.table([*rows.table, *columns.table])
        if isinstance(x, Analog):
            x = self.interleaved(self.plain(x))
            pooled = self.pooled(x, x.numbers, target, windows, shares)
            return Analog(target, pooled, Affine.identity(target.channels), pixels=x.pixels)
        widest = [max(b - a for a, b in zip(w.first, w.last, strict=True)) for w in (rows, columns)]
        most = widest[0] * widest[1]
        share = float(shares[0]) if (shares == shares[0]).all() else None
        if isinstance(x, Spikes):
            values, counts = self.buffer(target), self.buffer(target)
            self.step(
                Kind.SUM_SPIKES,
                **_read(x),
                **_written(target, values),
                counts=counts,
                windows=windows,
                scales=self.constant(shares),
                lanes=1,
            )
            return Counts(target, values, counts, share, most)
        values = self.pooled(x, x.values, target, windows, shares)
        counts = self.pooled(x, x.counts, target, windows, np.ones(target.pixels))
        scale = None if x.scale is None or share is None else x.scale * share
        return Counts(target, values, counts, scale, most * x.most)

    def max_pool(self, name: str, pool: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
        assert isinstance(pool, nn.MaxPool1d | nn.MaxPool2d)
        if _pair(pool, pool.dilation) != (1, 1) or pool.return_indices:
            raise Refused("leave out its dilation and its indices")
        x = _value(x)
        target = _map_of(shape)
        rows, columns = _windows(pool, x.map, target, True)
        windows = self.table([*rows.table, *columns.table])
        if isinstance(x, Spikes):
            relayed = Spikes(target, self.mask(target))
            step = self.step(Kind.RELAY_SPIKES, **_read(x), **_written(target, relayed.mask), windows=windows)
            return self.emits(name, relayed, shape, step, relay=True)
        if isinstance(x, Analog):
            x = self.interleaved(self.plain(x))
            pooled = self.pooled(x, x.numbers, target, windows, None)
            return Analog(target, pooled, Affine.identity(target.channels), pixels=x.pixels)
        if x.values is not x.counts:
            raise Refused("it takes parts of spikes; put the average pool behind it")
        numbers = self.pooled(x, x.values, target, windows, None)
        numbers.kept = True
        counts = Counts(target, numbers, numbers, 1.0, x.most)
        return self.emits(name, counts, shape, self.steps[-1], relay=True)

    def pooled(self, x: Value, numbers: Buffer, target: Map, windows: int, shares: Doubles | None) -> Buffer:
        """An average pool, or a max pool where there are no shares."""
        made = self.buffer(target)
        fields = {**_read(x), "source": numbers, **_written(target, made)}
        scales = -1 if shares is None else self.constant(shares)
        self.step(Kind.POOL_MAP, **fields, windows=windows, scales=scales, largest=int(shares is None))
        return made

    # --------------------------------------------------------------------------------------------------------- memory

    def take(self, source: Map) -> Analog:
        numbers = Buffer(Map(source.neurons).pitch)
        self.step(Kind.INPUT, **_written(source, numbers))
        return Analog(source, numbers, Affine.identity(source.channels), pixels=True, planar=True)

    def give(self, x: Value | None) -> None:
        answer = self.as_analog(_value(x))
        gain, shift = (
            self.constant(_padded(part, answer.map.pitch)) for part in (answer.affine.gain, answer.affine.shift)
        )
        self.step(Kind.OUTPUT, source=answer.numbers, scales=gain, init=shift, **_written(answer.map, -1))

    def step(self, kind: Kind, **fields: int | Buffer) -> Step:
        self.steps.append(Step({"kind": int(kind), **fields}))
        return self.steps[-1]

    def buffer(self, of: Map) -> Buffer:
        return Buffer(of.pixels * of.pitch)

    def mask(self, of: Map) -> int:
        self.mask_words += of.pixels * of.words
        return self.mask_words - of.pixels * of.words

    def constant(self, values: Doubles | Floats) -> int:
        """The place of some numbers among the constants, at the beginning of a cache line."""
        at = sum(map(len, self.constants))
        with np.errstate(over="ignore"):
            single = values.reshape(-1).astype(np.float32, copy=False)
        self.constants.append(np.pad(single, (0, -len(single) % 16)))
        return at

    def table(self, values: Sequence[int]) -> int:
        self.tables.extend(values)
        return len(self.tables) - len(values)

    def finished(self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> Program:
        narrow: list[np.ndarray[Any, np.dtype[np.int8]]] = []
        for step in self.steps:
            if step.rows is None:
                continue
            blocks, _, lanes = step.rows.shape
            step.fields["init"] = self.constant(_padded(step.init, blocks * lanes))
            if self.weights == "int8" and (step.fields["spiking"] or step.fields.get("repeated")):
                step.fields["streamed"] = 0
                bytes, scales = as_bytes(step.rows)
                step.fields["bytes"] = sum(map(len, narrow))
                step.fields["scales"] = self.constant(scales.astype(np.float64) * step.scale)
                narrow.append(bytes.reshape(-1))
            else:
                streamed = step.fields["streamed"] and not step.fields["dense"]
                step.fields["weights"] = self.constant(step.rows.transpose(1, 0, 2) if streamed else step.rows)
        numbers = _allot(self.steps)
        operations = np.zeros(len(self.steps), dtype=OPERATION)
        for name in ("counts", "other", "bytes", "fan_table", "counter", "emitter"):
            operations[name] = -1
        for operation, step in zip(operations, self.steps, strict=True):
            for name, value in step.fields.items():
                operation[name] = value.at if isinstance(value, Buffer) else value
        constants = aligned(sum(map(len, self.constants)))
        np.concatenate(self.constants, out=constants)
        return Program(
            operations=operations,
            constants=constants,
            bytes=np.concatenate(narrow) if narrow else np.zeros(0, dtype=np.int8),
            tables=np.array(self.tables, dtype=np.int32),
            input_shape=input_shape,
            output_shape=output_shape,
            spiking=tuple(
                SpikeMap(name, x.map, shape, relay, isinstance(x, Spikes), x.mask if isinstance(x, Spikes) else _at(x))
                for name, x, shape, relay in self.emitted
            ),
            synaptic=tuple(self.synaptic),
            mask_words=self.mask_words,
            map_numbers=numbers,
        )


def _allot(steps: list[Step]) -> int:
    """Give every buffer a place; memory is used again as soon as nobody reads what it held."""
    last = {id(buffer): (number, buffer) for number, step in enumerate(steps) for buffer in step.buffers}
    free: list[tuple[int, int]] = []  # place, size
    end = 0
    for number, step in enumerate(steps):
        for buffer in step.buffers:
            if buffer.at < 0:
                fitting = [hole for hole in free if hole[1] >= buffer.size]
                if fitting:
                    hole = min(fitting, key=lambda hole: hole[1])
                    free.remove(hole)
                    free.append((hole[0] + buffer.size, hole[1] - buffer.size))
                    buffer.at = hole[0]
                else:
                    buffer.at, end = end, end + buffer.size
        for until, buffer in last.values():
            if until == number and not buffer.kept:
                free.append((buffer.at, buffer.size))
    return end


# --- Small translations ----------------------------------------------------------------------------------------------


def _value(x: Any) -> Value:
    if not isinstance(x, Spikes | Counts | Analog):
        raise Refused("let it work on what the layers before it emit")
    return x


def _at(x: Value) -> int:
    assert isinstance(x, Counts)
    return x.counts.at


def _map_of(shape: tuple[int, ...]) -> Map:
    """[B, F], [B, C, L] or [B, C, H, W]."""
    if len(shape) == 2:
        return Map(shape[1])
    if len(shape) == 3:
        return Map(shape[1], 1, shape[2])
    if len(shape) == 4:
        return Map(*shape[1:])
    raise Refused(f"its shape {shape} has no place here: use [batch, features], [batch, channels, length] or images")


def _read(x: Value, first: int = 0, last: int | None = None) -> dict[str, int | Buffer]:
    """Where an operation finds its input: all channels, or one group of them."""
    place: dict[str, int | Buffer] = {"spiking": 0, "dense": 0}
    if isinstance(x, Spikes):
        place |= {"source": x.mask, "spiking": 1}
    elif isinstance(x, Counts):
        place |= {"source": x.values, "counts": x.counts}
    else:
        steps = (x.map.pixels, 1) if x.planar else (1, x.map.pitch)
        place |= {"source": x.numbers, "dense": 1, "channel_step": steps[0], "pixel_step": steps[1]}
    size = {"in_height": x.map.height, "in_width": x.map.width, "in_pitch": x.map.pitch, "in_words": x.map.words}
    return {**place, **size, "first": first, "last": x.map.channels if last is None else last}


def _written(target: Map, at: int | Buffer) -> dict[str, int | Buffer]:
    size = {"out_height": target.height, "out_width": target.width, "out_channels": target.channels}
    return {"target": at, **size, "out_pitch": target.pitch, "out_words": target.words}


def _can_fire(step: Step, sign: Doubles) -> bool:
    """Whether synapses can compare their own sums: what was added from elsewhere cannot be turned round with them."""
    return "other" not in step.fields or bool((sign > 0).all())


def _padded(values: Doubles, size: int, filling: float = 0.0) -> Doubles:
    return np.pad(values, (0, size - len(values)), constant_values=filling)


def _weight(module: nn.Module) -> tuple[Floats, Floats | None]:
    """A layer's weights, and what `torch.nn.utils.prune` has left of them."""
    mask: Tensor | None = getattr(module, "weight_mask", None)
    weight: Tensor = getattr(module, "weight" if mask is None else "weight_orig")
    return (floats(weight), None) if mask is None else (floats(weight) * floats(mask), floats(mask))


def _two_dimensional(weight: Floats) -> Floats:
    """A convolution along one axis as one of images of height 1."""
    return weight[:, :, None] if weight.ndim == 3 else weight


def _fans(mask: Floats) -> list[int]:
    """How many synapses each row of weights has left."""
    counts: list[int] = (mask.transpose(2, 3, 1, 0) != 0).sum(axis=-1).reshape(-1).tolist()
    return counts


def _pair(layer: nn.Module, size: Any, beside: int = 1) -> tuple[int, int]:
    """Along height and width; a layer of one axis has only the width."""
    if isinstance(layer, nn.Conv1d | nn.AvgPool1d | nn.MaxPool1d):
        return beside, size if isinstance(size, int) else size[0]
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _windows(pool: Any, source: Map, target: Map, include_pad: bool) -> tuple[Windows, Windows]:
    """Those of a pool along height and width."""
    kernel, stride = _pair(pool, pool.kernel_size), _pair(pool, pool.stride)
    padding = _pair(pool, pool.padding, 0)
    rows = Windows.sliding(source.height, target.height, kernel[0], stride[0], padding[0], include_pad)
    return rows, Windows.sliding(source.width, target.width, kernel[1], stride[1], padding[1], include_pad)


_Rule = Callable[[_Lowering, str, nn.Module, Any, tuple[int, ...]], Value]

_MODULES: dict[tuple[type[nn.Module], ...], _Rule] = {
    (nn.Conv1d, nn.Conv2d): _Lowering.convolution,
    (nn.Linear,): _Lowering.linear,
    (nn.BatchNorm1d, nn.BatchNorm2d): _Lowering.batch_norm,
    (nn.AvgPool1d, nn.AvgPool2d): _Lowering.average_pool,
    (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d): _Lowering.adaptive_pool,
    (nn.MaxPool1d, nn.MaxPool2d): _Lowering.max_pool,
    (nn.Flatten,): _Lowering.flatten,
    (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.Identity): _Lowering.identity,
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
