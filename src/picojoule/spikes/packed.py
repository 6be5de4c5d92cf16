"""Spikes kept as bits: an eighth of a byte each, where the tensor that a layer emitted has two or four bytes."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from picojoule.io.background import Task
from picojoule.kernels.switches import Switch
from picojoule.kernels.torch_private import has_forward_mode, is_transformed


def _imported_bits() -> ModuleType | None:
    """Import the compiled passes, which bring the compiler; None where that is not installed."""
    try:
        from picojoule.kernels import bits
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        return None
    return bits


_bits = Task(_imported_bits)
"""In a thread of its own: Ctrl-C in the midst of an import would leave half of Numba behind."""


@dataclass(frozen=True)
class PackedSpikes:
    """What a layer emitted in one call, 0 or 1, as bits.

    Attributes:
        bits: The bits, in the order in which the spikes lay in memory.
        branch: A tensor of their shape without memory of its own, whose gradient arrives at the spikes.
        stride: How the spikes lay in memory.
    """

    bits: Tensor
    branch: Tensor
    stride: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.branch)

    def tensor(self) -> Tensor:
        """Make the spikes again, on the branch of the graph that leads to them."""
        spikes: Tensor = _Unpacking.apply(self.branch, self)  # type: ignore[no-untyped-call]
        return spikes

    def values(self) -> Tensor:
        """Make the spikes again, without a graph."""
        kernels = _bits.result()
        assert kernels is not None  # or nothing would have been packed
        values: Tensor = kernels.unpacked(self.bits, self.branch.dtype)
        return values.as_strided(self.branch.shape, self.stride)

    def summed(self) -> Tensor:
        """Sum them over the batch: float32, in the layout of one sample."""
        kernels = _bits.result()
        assert kernels is not None
        sums: Tensor = kernels.summed(self.bits, len(self))
        return sums.as_strided(self.branch.shape[1:], self.stride[1:])


def pack(spikes: Tensor) -> PackedSpikes | None:
    """Keep spikes as bits.

    Args:
        spikes: [B, …], nothing but 0 and 1.

    Returns:
        The packed spikes. None where that is not possible: other devices and dtypes, samples that do not fill whole
        words or do not lie one after the other, transforms such as vmap, and where Numba is not installed.

    >>> kept = pack(torch.eye(64))
    >>> kept.summed().sum(), kept.values().equal(torch.eye(64))
    (tensor(64.), True)
    """
    if not Switch.SPARSE.is_on or torch.compiler.is_compiling() or is_transformed(spikes) or has_forward_mode(spikes):
        return None
    if spikes.device.type != "cpu" or spikes.dtype not in (torch.float32, torch.bfloat16) or not _fills_words(spikes):
        return None
    kernels = _bits.result()
    if kernels is None or len(spikes) > kernels.MOST_SAMPLES:
        return None
    flat = spikes.detach().as_strided((spikes.numel(),), (1,))
    return PackedSpikes(kernels.packed(flat), _Branch.apply(spikes), spikes.stride())  # type: ignore[no-untyped-call]


_WORD = 64


def _fills_words(spikes: Tensor) -> bool:
    """Return whether samples lie one after the other in memory and each fills whole words."""
    if spikes.dim() < 2 or not spikes.numel():
        return False
    size = spikes.numel() // len(spikes)
    dense = spikes.is_contiguous() or (spikes.dim() == 4 and spikes.is_contiguous(memory_format=torch.channels_last))
    return dense and size % _WORD == 0 and spikes.stride(0) == size


class _Branch(Function):
    """A tensor of the same shape that is one number in memory; its gradient is that of the spikes."""

    @staticmethod
    def forward(ctx: Any, spikes: Tensor) -> Tensor:
        return spikes.new_zeros(1).expand(spikes.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Unpacking(Function):
    @staticmethod
    def forward(ctx: Any, branch: Tensor, kept: PackedSpikes) -> Tensor:
        return kept.values()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
