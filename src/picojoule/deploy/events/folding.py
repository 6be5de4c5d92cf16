"""Batch norm folded into thresholds, pools into windows, weights into rows and bytes: the arithmetic of compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from picojoule.deploy.events.program import Floats
from picojoule.kernels.torch_private import BatchNorm

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ gain · x + shift, channel by channel."""

    gain: Doubles
    shift: Doubles

    @classmethod
    def identity(cls, channels: int) -> Affine:
        return cls(np.ones(channels), np.zeros(channels))

    @classmethod
    def of_batch_norm(cls, norm: BatchNorm) -> Affine:
        """What batch norm does in evaluation: (x − mean)/√(var + ε)·γ + β."""
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError("no running statistics")
        gain = 1 / np.sqrt(doubles(norm.running_var) + norm.eps)
        gain = gain if norm.weight is None else gain * doubles(norm.weight)
        shift = -doubles(norm.running_mean) * gain
        return cls(gain, shift if norm.bias is None else shift + doubles(norm.bias))

    @property
    def is_identity(self) -> bool:
        return bool((self.gain == 1).all() and (self.shift == 0).all())

    def then(self, after: Affine) -> Affine:
        return Affine(after.gain * self.gain, after.gain * self.shift + after.shift)


def firing(affine: Affine, threshold: float) -> tuple[Doubles, Doubles]:
    """Signs σ and thresholds t by channel such that gain · u + shift ≥ threshold exactly when σ · u ≥ t.

    A negative gain turns the comparison round. Where the gain is 0 the channel fires always (t = −∞) or never (t = +∞);
    a channel with a NaN never does.

    >>> sign, t = firing(Affine(np.array([2.0, -1.0, 0.0]), np.array([0.0, 3.0, 5.0])), 1.0)
    >>> sign.tolist(), t.tolist()
    ([1.0, -1.0, 1.0], [0.5, -2.0, -inf])
    """
    sign = np.where(affine.gain < 0, -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = (threshold - affine.shift) / np.abs(affine.gain)
    t = np.where(affine.gain == 0, np.where(affine.shift >= threshold, -np.inf, np.inf), t)
    return sign, np.where(np.isnan(affine.gain) | np.isnan(affine.shift), np.inf, t)


def as_rows(weight: Floats, lanes: int) -> Floats:
    """Weights [O, I, KH, KW] as [blocks, KH·KW·I, lanes], with zeros in the lanes that have no output channel."""
    outputs = weight.shape[0]
    blocks = -(-outputs // lanes)
    padded = np.zeros((blocks * lanes, *weight.shape[1:]), dtype=np.float32)
    padded[:outputs] = weight
    split = padded.reshape(blocks, lanes, *weight.shape[1:])
    return np.ascontiguousarray(split.transpose(0, 3, 4, 2, 1)).reshape(blocks, -1, lanes)


def as_bytes(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Rows [blocks, rows, lanes] as int8 and one scale for each output channel: weight ≈ scale · byte.

    >>> bytes, scales = as_bytes(np.array([[[1.0], [-0.5]]], dtype=np.float32))
    >>> bytes.ravel().tolist()
    [127, -64]
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(rows / scales).astype(np.int8), scales.reshape(-1)


@dataclass(frozen=True)
class Windows:
    """Along one axis, the inputs [first, last) under each output of a pool, and what an average divides by."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    divisor: tuple[int, ...]

    @classmethod
    def sliding(cls, size: int, outputs: int, kernel: int, stride: int, padding: int, include_pad: bool) -> Windows:
        starts = [i * stride - padding for i in range(outputs)]
        first = tuple(max(start, 0) for start in starts)
        last = tuple(min(start + kernel, size) for start in starts)
        whole = tuple(min(start + kernel, size + padding) - start for start in starts)
        return cls(first, last, whole if include_pad else tuple(b - a for a, b in zip(first, last, strict=True)))

    @classmethod
    def adaptive(cls, size: int, outputs: int) -> Windows:
        first = tuple(i * size // outputs for i in range(outputs))
        last = tuple(-(-(i + 1) * size // outputs) for i in range(outputs))
        return cls(first, last, tuple(b - a for a, b in zip(first, last, strict=True)))

    @property
    def table(self) -> list[int]:
        return [edge for window in zip(self.first, self.last, strict=True) for edge in window]


def doubles(tensor: Tensor) -> Doubles:
    values: Doubles = tensor.detach().to("cpu", torch.float64).numpy()
    return values


def floats(tensor: Tensor) -> Floats:
    values: Floats = tensor.detach().to("cpu", torch.float32).numpy()
    return values


def padded(values: Doubles, size: int, filling: float = 0.0) -> Doubles:
    return np.pad(values, (0, size - len(values)), constant_values=filling)


def pair(layer: nn.Module, size: Any, beside: int = 1) -> tuple[int, int]:
    """Along height and width; a layer of one axis has only the width."""
    if isinstance(layer, nn.Conv1d | nn.AvgPool1d | nn.MaxPool1d):
        return beside, size if isinstance(size, int) else size[0]
    return (size, size) if isinstance(size, int) else (size[0], size[1])
