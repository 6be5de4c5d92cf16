"""Rules of the layers that have weights: convolutions and linear layers, as synapses that spikes or pixels feed."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from picojoule.deploy.events.affine import Affine, Doubles, doubles
from picojoule.deploy.events.builder import ProgramBuilder, reads, writes
from picojoule.deploy.events.currents import materialized
from picojoule.deploy.events.program import Floats, Map, Opcode
from picojoule.deploy.events.values import Analog, Buffer, Counts, Value, map_of, value_of
from picojoule.deploy.events.weights import as_rows, floats
from picojoule.deploy.graph.refusal import Unsupported
from picojoule.kernels.torch_private import padding_of
from picojoule.synapses.tags import pruned_tensors

MANY_WEIGHTS, FEW_PIXELS = 1 << 20, 4
"""Beyond so many weights, used for so few pixels, the order of reading memory matters more than registers."""
MOST_REPEATED = 256
"""Where one number may stand for more spikes than this, weights are multiplied with it and stay float32."""


def convolution(builder: ProgramBuilder, name: str, conv: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower a convolution along one or two axes.

    Raises:
        Unsupported: If it pads with anything but zeros, or takes anything but spikes or the network's input.
    """
    assert isinstance(conv, nn.Conv1d | nn.Conv2d)
    if conv.padding_mode != "zeros":
        raise Unsupported("pad with zeros")
    weight, mask = _weight(conv)
    pads = padding_of(conv)  # left, right, top, bottom: the last axis comes first
    return _synapses(
        builder,
        name,
        x,
        map_of(shape),
        _two_dimensional(weight),
        None if mask is None else _two_dimensional(mask),
        None if conv.bias is None else doubles(conv.bias),
        stride=_height_width(conv, conv.stride),
        pad=(0 if isinstance(conv, nn.Conv1d) else pads[2], pads[0]),
        dilation=_height_width(conv, conv.dilation),
        groups=conv.groups,
    )


def linear(builder: ProgramBuilder, name: str, layer: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower a linear layer, as a convolution whose window is the whole map.

    Raises:
        Unsupported: If what it takes is not flat, or neither spikes nor the network's input.
    """
    assert isinstance(layer, nn.Linear)
    if len(shape) != 2:
        raise Unsupported("flatten what it takes to [batch, features]")
    source = value_of(x).map
    if source.neurons != layer.in_features:
        raise Unsupported("flatten what it takes to [batch, features]")
    weight, mask = _weight(layer)
    # A window as large as the map: flattening needs no work of its own.
    window = (layer.out_features, source.channels, source.height, source.width)
    return _synapses(
        builder,
        name,
        x,
        map_of(shape),
        weight.reshape(window),
        None if mask is None else mask.reshape(window),
        None if layer.bias is None else doubles(layer.bias),
    )


def _synapses(
    builder: ProgramBuilder,
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
    """Add synapses to `target`; weight [O, I / groups, KH, KW], mask 0 where a synapse was pruned away."""
    x = value_of(x)
    if isinstance(x, Analog):
        if not x.from_input:
            raise Unsupported("let nothing but spikes or the network's input reach it")
        x = materialized(builder, x)  # planar or not: this is the one that can read both
    counted = not isinstance(x, Analog)
    if counted and name not in builder.synaptic:
        builder.synaptic.append(name)
    outputs, inputs, kernel_h, kernel_w = weight.shape
    part = Map(outputs // groups, target.height, target.width)
    bias = np.zeros(outputs) if bias is None else bias
    whole = builder.buffer(target, x.frames) if groups > 1 else None
    instruction = None
    for group in range(groups):
        these = slice(group * part.channels, (group + 1) * part.channels)
        rows = inputs * kernel_h * kernel_w
        lanes = part.lanes
        if rows * lanes >= 1 << 31:
            raise Unsupported("make it smaller")
        instruction = builder.add(
            Opcode.SYNAPSES,
            **reads(x, group * inputs, (group + 1) * inputs),
            **writes(part, builder.buffer(part, x.frames)),
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
            fan_table=-1 if mask is None else builder.table(_fans(mask[these])),
            streamed=int(lanes == 64 and part.pixels <= FEW_PIXELS and weight[these].size > MANY_WEIGHTS),
            counter=builder.synaptic.index(name) if counted else -1,
        )
        instruction.rows, instruction.init = as_rows(weight[these], lanes), bias[these]
        if builder.weights == "int8" and isinstance(x, Counts) and x.scale is not None and x.most <= MOST_REPEATED:
            instruction.fields["repeated"], instruction.scale = int(x.most), x.scale
        if whole is not None:
            numbers = instruction.fields["target"]
            assert isinstance(numbers, Buffer)
            fields = {"in_pitch": part.pitch, "last": part.channels, "source_step": numbers.step}
            builder.add(Opcode.PLACE, source=numbers, **fields, **writes(target, whole), out_first=these.start)
    if whole is not None:
        return Analog(target, whole, Affine.identity(outputs))
    assert instruction is not None
    numbers = instruction.fields["target"]
    assert isinstance(numbers, Buffer)
    return Analog(target, numbers, Affine.identity(outputs), producer=instruction)


def _weight(module: nn.Module) -> tuple[Floats, Floats | None]:
    """Read a layer's weights as the forward pass has left them, and what `torch.nn.utils.prune` spared of them."""
    weight, mask = module.weight, module.weight_mask if (module, "weight") in pruned_tensors(module) else None
    assert isinstance(weight, Tensor)
    return floats(weight), floats(mask) if isinstance(mask, Tensor) else None


def _two_dimensional(weight: Floats) -> Floats:
    """Make of a convolution along one axis one of images of height 1."""
    return weight[:, :, None] if weight.ndim == 3 else weight


def _fans(mask: Floats) -> list[int]:
    """Count the synapses that pruning has left in each row of weights."""
    counts: list[int] = (mask.transpose(2, 3, 1, 0) != 0).sum(axis=-1).reshape(-1).tolist()
    return counts


def _height_width(conv: nn.Module, size: Any) -> tuple[int, int]:
    """Give a setting along height and width; a layer of one axis has only the width."""
    if isinstance(conv, nn.Conv1d):
        return 1, size if isinstance(size, int) else size[0]
    return (size, size) if isinstance(size, int) else (size[0], size[1])
