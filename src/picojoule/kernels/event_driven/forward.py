"""The forward pass of a layer of synapses: for every output pixel, the rows of weights of its active inputs are added.

The weights of a block of output channels lie in memory as rows, [kernel row, kernel column, input channel, lanes], and
as many rows of the kernel as the second-level cache holds are taken for all images before the next ones. The active
inputs of a map row are one list, ordered by column, so that those under a row of the kernel are one run of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from picojoule.kernels.event_driven.active_inputs import SOURCES, ActiveInputs, numbers_of, take
from picojoule.kernels.event_driven.geometry import LANES, Geometry
from picojoule.kernels.event_driven.layouts import pack_weights
from picojoule.kernels.event_driven.rows import (
    keep,
    keep_all,
    plus_multiple,
    plus_row,
    read,
    times_number,
    write,
)
from picojoule.kernels.jit import source_digest
from picojoule.kernels.lanes import lowest_bit, nothing
from picojoule.kernels.threads import Kernel


def forward(inputs: ActiveInputs, weight: Tensor, bias: Tensor | None, shape: Geometry, kind: torch.dtype) -> Tensor:
    """Compute the output of a layer from its active inputs.

    Args:
        inputs: The active inputs.
        weight: [outputs, inputs of a group, kernel height, kernel width], float32, in any memory layout.
        bias: One number for each output channel, if the layer has them.
        shape: The shape of the layer.
        kind: float32 or bfloat16, to which weights and output are rounded; sums are float32.

    Returns:
        [images, channels, height, width] in channels-last memory.
    """
    paired = int(kind == torch.bfloat16)
    number_bytes = 2 if paired else 4
    channels = shape.groups * shape.outputs
    out = torch.empty((shape.images, channels, *shape.out_map), dtype=kind, memory_format=torch.channels_last)
    parts = shape.parts(number_bytes)
    rows = torch.empty((len(parts[0]), shape.rows, shape.lanes), dtype=torch.uint16 if paired else torch.float32)
    entries, places = _listed(inputs, shape, shape.lanes * number_bytes)
    begin = torch.zeros(shape.groups, shape.blocks * shape.lanes)
    if bias is not None:
        begin[:, : shape.outputs] = bias.detach().to(kind).view(shape.groups, shape.outputs)
    whole = paired or shape.outputs % shape.lanes  # a block's sums cannot be left in the output halfway
    at_once = shape.kernel[0] if whole else shape.kernel_rows_at_once(number_bytes)
    per_item = _images_per_item(shape)
    kernel = _ADD[shape.lanes, paired, int(inputs.values is not None)]
    for blocks in parts:
        pack_weights(weight, rows, shape, blocks)
        table = numbers_of(
            rows.data_ptr(),
            entries.data_ptr(),
            0 if inputs.values is None else inputs.values.data_ptr(),
            places.data_ptr(),
            begin.data_ptr(),
            out.data_ptr(),
            shape.images,
            shape.groups,
            shape.blocks,
            shape.inputs,
            shape.outputs,
            *shape.map,
            *shape.out_map,
            *shape.kernel,
            *shape.stride,
            *shape.padding,
            *shape.dilation,
            at_once,
            per_item,
            blocks.start,
            blocks.stop,
        )
        take(kernel, table, -(-shape.images // per_item), inputs.scale)
    return out


def _images_per_item(shape: Geometry) -> int:
    """Return how many images are one item: every thread gets about four items; a thread alone takes one of all."""
    threads = torch.get_num_threads()
    return max(shape.images if threads == 1 else -(-shape.images // (4 * threads)), 1)


def _listed(inputs: ActiveInputs, shape: Geometry, row_bytes: int) -> tuple[Tensor, Tensor]:
    """List the active inputs of each image and group, pixel by pixel.

    Returns:
        For each active input (column · inputs + channel) · bytes of a row, and where the list of each pixel begins.
    """
    entries = torch.empty(inputs.total, dtype=torch.int32)
    places = torch.empty((shape.images, shape.groups, shape.pixels + 1), dtype=torch.int32)
    starts = inputs.starts
    table = numbers_of(
        inputs.bits.data_ptr(),
        starts.data_ptr(),
        entries.data_ptr(),
        places.data_ptr(),
        shape.pixels,
        shape.map[1],
        shape.groups,
        shape.inputs,
        row_bytes,
    )
    take(_list, table, shape.images)
    return entries, places


def _listing(sources: int) -> Kernel:
    """Make the kernel that lists active inputs; an item is an image."""

    def list_inputs(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        bits, starts, entries, places = p[0], p[1], p[2], p[3]
        pixels, width, groups, inputs, row_bytes = p[4], p[5], p[6], p[7], p[8]
        if not sources:
            return
        words = (inputs + 63) // 64
        for n in range(first, stop):
            for g in range(groups):
                i = read("i64", starts, n * groups + g)
                here = places + (n * groups + g) * (pixels + 1) * 4
                for pixel in range(pixels):
                    write("i32", here, pixel, np.int32(i))
                    mask = bits + ((n * pixels + pixel) * groups + g) * words * 8
                    for w in range(words):
                        base = (pixel % width) * inputs + 64 * w
                        word = read("u64", mask, w)
                        while word != 0:
                            write("i32", entries, i, np.int32((base + lowest_bit(word)) * row_bytes))
                            i += 1
                            word &= word - np.uint64(1)
                write("i32", here, pixels, np.int32(i))

    return list_inputs


def _adding(lanes: int, paired: int, valued: int, sources: int) -> Kernel:
    """Make the kernel that adds rows of weights; an item is some images."""
    row_bytes = lanes * (2 if paired else 4)
    number_bytes = 2 if paired else 4

    def add(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        rows, entries, values, places, begin, out = p[0], p[1], p[2], p[3], p[4], p[5]
        images, groups, blocks, inputs, outputs = p[6], p[7], p[8], p[9], p[10]
        height, width, out_height, out_width = p[11], p[12], p[13], p[14]
        kernel_h, kernel_w, stride_h, stride_w = p[15], p[16], p[17], p[18]
        pad_h, pad_w, dilation_h, dilation_w, at_once, per_item = p[19], p[20], p[21], p[22], p[23], p[24]
        from_block, to_block = p[25], p[26]
        scale = np.float32(constants[0])
        if not sources:
            return
        pieces = 1 if dilation_w == 1 else kernel_w  # without dilation, a row of the kernel meets one run
        columns = kernel_w if dilation_w == 1 else 1
        for item in range(first, stop):
            last_image = min((item + 1) * per_item, images)
            for block in range(from_block, to_block):
                g = block // blocks
                weights = rows + (block - from_block) * kernel_h * kernel_w * inputs * row_bytes
                start = begin + block * lanes * 4
                channel = g * outputs + (block % blocks) * lanes
                width_here = min(lanes, outputs - (block % blocks) * lanes)
                for from_ky in range(0, kernel_h, at_once):
                    to_ky = min(from_ky + at_once, kernel_h)
                    for n in range(item * per_item, last_image):
                        here = places + (n * groups + g) * (height * width + 1) * 4
                        for oy in range(out_height):
                            for ox in range(out_width):
                                pixel = (n * out_height + oy) * out_width + ox
                                target = out + (pixel * groups * outputs + channel) * number_bytes
                                acc = nothing(lanes)
                                if from_ky > 0:
                                    acc = plus_row(0, acc, target)
                                left = ox * stride_w - pad_w
                                for ky in range(from_ky, to_ky):
                                    y = oy * stride_h - pad_h + ky * dilation_h
                                    if y < 0 or y >= height:
                                        continue
                                    for kx in range(pieces):
                                        x = left + kx * dilation_w
                                        x0, x1 = max(x, 0), min(x + columns, width)
                                        if x0 >= x1:
                                            continue
                                        base = weights + (ky * kernel_w + kx - x) * inputs * row_bytes
                                        a, b = read("i32", here, y * width + x0), read("i32", here, y * width + x1)
                                        for j in range(a, b):
                                            row = base + read("i32", entries, j)
                                            if valued:
                                                acc = plus_multiple(paired, acc, read("f32", values, j), row)
                                            else:
                                                acc = plus_row(paired, acc, row)
                                if to_ky < kernel_h:
                                    keep_all(target, acc)
                                else:
                                    acc = plus_row(0, times_number(acc, scale), start)
                                    keep(paired, target, acc, width_here)

    return add


_DIGEST = source_digest(*SOURCES)
_list = _listing(_DIGEST)
_ADD: dict[tuple[int, int, int], Kernel] = {
    (lanes, paired, valued): _adding(lanes, paired, valued, _DIGEST)
    for lanes in LANES
    for paired in (0, 1)
    for valued in (0, 1)
}
