"""Tensors of 0 and 1 as bits, and sums over a batch of them, in compiled passes; the module needs Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from picojoule.kernels.event_driven.active_inputs import numbers_of, take
from picojoule.kernels.event_driven.rows import active_bits, read, write
from picojoule.kernels.jit import intrinsic, ir, source_digest, types
from picojoule.kernels.lanes import Lanes, Values
from picojoule.kernels.threads import Kernel

WORD = 64
"""Numbers whose bits are one word."""

MOST_SAMPLES = (1 << 15) - 1
"""Samples whose sums 16 bits hold."""

_WORDS = 64
"""Words that a thread takes at a time."""


def packed(x: Tensor) -> Tensor:
    """Take the bits of a tensor of 0 and 1.

    Args:
        x: float32 or bfloat16, one after the other in memory, as many as fill whole words.

    Returns:
        Words of 64 bits, uint64, in the order of the memory.

    >>> packed(torch.tensor([0.0, 1.0, 1.0] + [0.0] * 61)).tolist()
    [6]
    """
    bits = torch.empty(x.numel() // WORD, dtype=torch.uint64)
    take(_PACK[x.element_size()], numbers_of(x.data_ptr(), bits.data_ptr(), len(bits)), -(-len(bits) // _WORDS))
    return bits


def summed(bits: Tensor, samples: int) -> Tensor:
    """Sum bits over a batch.

    Args:
        bits: What `packed` gave for samples of the same whole number of words, one after the other.
        samples: How many, up to `MOST_SAMPLES`.

    Returns:
        A float32 for each place of a sample.

    >>> summed(packed(torch.eye(64)), 64).sum()
    tensor(64.)
    """
    words = len(bits) // samples
    sums = torch.empty(words * WORD)
    take(_sum, numbers_of(bits.data_ptr(), sums.data_ptr(), words, samples), -(-words // _WORDS))
    return sums


def unpacked(bits: Tensor, kind: torch.dtype) -> Tensor:
    """Make the numbers again.

    Args:
        bits: What `packed` gave.
        kind: Their dtype.

    Returns:
        One number after the other.

    >>> unpacked(packed(torch.eye(64)), torch.float32).view(64, 64).equal(torch.eye(64))
    True
    """
    bytes_of = bits.view(torch.uint8).numpy()
    return torch.from_numpy(np.unpackbits(bytes_of, bitorder="little")).to(kind)


@intrinsic
def _no_counts(typing: Any) -> Any:
    """Make 64 counts of nothing."""
    lanes = Lanes(WORD, "i16")

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return ir.Constant(lanes.vector, [0] * WORD)

    return lanes(), generate


@intrinsic
def _counted(typing: Any, lanes: Any, word: Any) -> Any:
    """Count the bits of a word, each in its own lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        places = builder.bitcast(args[1], ir.VectorType(ir.IntType(1), WORD))
        return builder.add(args[0], builder.zext(places, lanes.vector))

    return lanes(lanes, types.uint64), generate


@intrinsic
def _keep_counts(typing: Any, address: Any, lanes: Any) -> Any:
    """Write counts as float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        numbers = builder.uitofp(args[1], ir.VectorType(ir.FloatType(), WORD))
        builder.store(numbers, builder.inttoptr(args[0], numbers.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, lanes), generate


def _packing(size: int, sources: int) -> Kernel:
    """Make the kernel that packs; an item is some words."""

    def pack(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        x, bits, words = p[0], p[1], p[2]
        if not sources:
            return
        for w in range(first * _WORDS, min(stop * _WORDS, words)):
            write("u64", bits, w, active_bits(size, x + w * WORD * size))

    return pack


def _summing(sources: int) -> Kernel:
    """Make the kernel that sums; an item is some words of every sample."""

    def add_up(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        bits, sums, words, samples = p[0], p[1], p[2], p[3]
        if not sources:
            return
        for w in range(first * _WORDS, min(stop * _WORDS, words)):
            counts = _no_counts()
            for b in range(samples):
                counts = _counted(counts, read("u64", bits, b * words + w))
            _keep_counts(sums + w * WORD * 4, counts)

    return add_up


_DIGEST = source_digest("picojoule.kernels.lanes", "picojoule.kernels.event_driven.rows")
_PACK: dict[int, Kernel] = {size: _packing(size, _DIGEST) for size in (2, 4)}
_sum = _summing(_DIGEST)
