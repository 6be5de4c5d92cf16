"""One pass over the memory for what PyTorch's operators do in a dozen: surrogate gradients and dropout on a CPU.

All of them take tensors that `fit`: dense, laid out alike, float32 or bfloat16. Arithmetic is float32 and rounded once
at the end. PyTorch's own threads execute them (`team`), and the bits do not depend on how many there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from picojoule.kernels.jit import inlined
from picojoule.kernels.threads import Kernel, run

_FLOAT = np.float32
_WORD = np.uint32
_BITS = 0xFFFFFFFF


def fit(*tensors: Tensor) -> bool:
    """Whether the tensors fill a CPU's memory densely, in the same order and as the same kind of number.

    >>> x = torch.zeros(2, 3, 4, 4)
    >>> fit(x, x), fit(x, x.contiguous(memory_format=torch.channels_last)), fit(x.double())
    (True, False, False)
    """
    first = tensors[0]
    return (
        first.device.type == "cpu"
        and first.dtype in (torch.float32, torch.bfloat16)
        and is_dense(first)
        and all(x.dtype == first.dtype and x.device == first.device for x in tensors)
        and all(x.shape == first.shape and x.stride() == first.stride() for x in tensors)
    )


def is_dense(x: Tensor) -> bool:
    """Whether the elements fill one stretch of memory, in one of the two usual orders."""
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


def times_s3nn(grad: Tensor, u: Tensor, threshold: float, alpha: float, tau: float) -> Tensor:
    """grad · (1/(τu) from the threshold on, the sigmoid's slope below it)."""
    return _over(_times_s3nn, (grad, u), _seen(threshold, u), 1 / alpha, tau)


def times_sigmoid(grad: Tensor, u: Tensor, threshold: float, alpha: float) -> Tensor:
    """grad · the sigmoid's slope."""
    return _over(_times_sigmoid, (grad, u), _seen(threshold, u), 1 / alpha)


def times_triangle(grad: Tensor, u: Tensor, threshold: float) -> Tensor:
    """grad · max(1 − |u − threshold|, 0)."""
    return _over(_times_triangle, (grad, u), _seen(threshold, u))


LEVELS = 1 << 32
"""A draw of `drop` is one of so many."""


def drop(x: Tensor, seed: int, dropped: int, scale: float) -> Tensor:
    """0 where the draw of that seed and position in memory is below `dropped`, elsewhere x · scale."""
    return _over(_drop, (x,), seed & _BITS, seed >> 32, dropped, scale)


def _seen(threshold: float, u: Tensor) -> float:
    """The threshold in the precision in which the forward pass compared with it."""
    return torch.tensor(threshold, dtype=u.dtype).item()


def _over(kernel: Kernel, inputs: tuple[Tensor, ...], *constants: float) -> Tensor:
    result = torch.empty_like(inputs[0])
    arrays = [_flat(tensor) for tensor in (*inputs, result)]
    element = types.uint16 if result.dtype == torch.bfloat16 else types.float32
    run(kernel, element, [array.ctypes.data for array in arrays], constants, result.numel())
    return result


def _flat(x: Tensor) -> NDArray[Any]:
    """The elements in the order of the memory; those of bfloat16, which NumPy does not know, as bits."""
    line = x.detach().as_strided((x.numel(),), (1,))
    if x.dtype == torch.bfloat16:
        bits: NDArray[Any] = line.view(torch.uint16).numpy()
        return bits
    values: NDArray[Any] = line.numpy()
    return values


# --- Kernels ---------------------------------------------------------------------------------------------------------


def _times_s3nn(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    grad, u, out = arrays[0], arrays[1], arrays[2]
    threshold, steepness, tau = _FLOAT(constants[0]), _FLOAT(constants[1]), _FLOAT(constants[2])
    for i in range(first, stop):
        v = _widen(u[i])
        above = _FLOAT(1) / (tau * max(v, threshold))
        out[i] = _narrow(_widen(grad[i]) * (above if v >= threshold else _slope(v - threshold, steepness)), out)


def _times_sigmoid(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    grad, u, out = arrays[0], arrays[1], arrays[2]
    threshold, steepness = _FLOAT(constants[0]), _FLOAT(constants[1])
    for i in range(first, stop):
        out[i] = _narrow(_widen(grad[i]) * _slope(_widen(u[i]) - threshold, steepness), out)


def _times_triangle(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    grad, u, out = arrays[0], arrays[1], arrays[2]
    threshold = _FLOAT(constants[0])
    for i in range(first, stop):
        height = _FLOAT(1) - abs(_widen(u[i]) - threshold)
        out[i] = _narrow(_widen(grad[i]) * (_FLOAT(0) if height < _FLOAT(0) else height), out)


def _drop(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    x, out = arrays[0], arrays[1]
    key, other, dropped = _WORD(constants[0]), _WORD(constants[1]), _WORD(constants[2])
    scale = _FLOAT(constants[3])
    for i in range(first, stop):
        kept = _draw(_WORD(i), key, other) >= dropped
        out[i] = _narrow(_widen(x[i]) * (scale if kept else _FLOAT(0)), out)


@inlined
def _draw(position: Any, key: Any, other: Any) -> Any:
    """32 bits of a position under a key of 64: a counter through three rounds of folding and multiplying."""
    # Numba widens the result of every operation on words.
    h = _WORD(_WORD(position * _WORD(0x9E3779B1)) + key)
    h = _WORD(_WORD((h ^ (h >> _WORD(16))) * _WORD(0x85EBCA6B)) + other)
    h = _WORD((h ^ (h >> _WORD(16))) * _WORD(0x21F0AAAD))
    h = _WORD((h ^ (h >> _WORD(15))) * _WORD(0x735A2D97))
    return _WORD(h ^ (h >> _WORD(15)))


@inlined
def _slope(distance: Any, steepness: Any) -> Any:
    """σ(1 − σ)/α = e/(1 + e)²/α with e = exp(−|distance|/α)."""
    t = abs(distance) * steepness
    e = _exp_of_minus(t)
    slope = e / ((_FLOAT(1) + e) * (_FLOAT(1) + e)) * steepness
    return t if t != t else slope  # a potential that is no number has no slope either


@inlined
def _exp_of_minus(t: Any) -> Any:
    """For t ≥ 0: 2⁻ᵏ·exp(r) with |r| ≤ ln 2 / 2, exp by its minimax polynomial; a loop of it becomes vectors."""
    t = min(t, _FLOAT(87))
    k = np.floor(t * _FLOAT(1.4426950408889634) + _FLOAT(0.5))
    r = k * _FLOAT(0.693359375) - t - k * _FLOAT(2.12194440e-4)  # ln 2 in two parts, the first exact in few bits
    p = _FLOAT(1.9875691500e-4)
    p = p * r + _FLOAT(1.3981999507e-3)
    p = p * r + _FLOAT(8.3334519073e-3)
    p = p * r + _FLOAT(4.1665795894e-2)
    p = p * r + _FLOAT(1.6666665459e-1)
    p = p * r + _FLOAT(5.0000001201e-1)
    bits = (np.int32(127) - np.int32(k)) << np.int32(23)
    return (p * r * r + r + _FLOAT(1)) * np.int32(bits).view(_FLOAT)


def _widen(value: Any) -> Any:
    """A number of either kind as float32."""
    raise NotImplementedError  # compiled code has one of the two below


@overload(_widen, inline="always", strict=False)
def _overload_widen(value: Any) -> Any:
    if value == types.uint16:
        return lambda value: _WORD(_WORD(value) << _WORD(16)).view(_FLOAT)
    return lambda value: value


def _narrow(value: Any, out: Any) -> Any:
    """A float32 as what the array holds, to the nearest and to even from halfway."""
    raise NotImplementedError


@overload(_narrow, inline="always", strict=False)
def _overload_narrow(value: Any, out: Any) -> Any:
    if out.dtype == types.uint16:

        def rounded(value: Any, out: Any) -> Any:
            bits = _FLOAT(value).view(_WORD)
            even = _WORD(bits + _WORD(_WORD(0x7FFF) + _WORD(_WORD(bits >> _WORD(16)) & _WORD(1))))
            quiet = _WORD(bits | _WORD(1 << 22))  # what is no number stays none
            return np.uint16(_WORD((even if value == value else quiet) >> _WORD(16)))

        return rounded
    return lambda value, out: value
