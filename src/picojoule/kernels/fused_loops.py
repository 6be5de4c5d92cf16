"""The compiled loops behind `fused`, one for each pass: Numba compiles them, PyTorch's own threads execute them.

Arithmetic is float32 and rounded once at the end. Every element depends on its own place alone, so the bits do not
depend on how many threads there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.kernels.jit import inlined, overload, types
from picojoule.kernels.threads import Kernel, run_on_threads

_FLOAT = np.float32
_WORD = np.uint32


def over(kernel: Kernel, inputs: tuple[Tensor, ...], *constants: float) -> Tensor:
    """Take a loop of this module over the memory of some tensors.

    Args:
        kernel: One of this module's loops.
        inputs: Tensors that `fused.fits_one_pass`.
        *constants: The numbers that the loop takes beside them.

    Returns:
        What the loop writes, laid out like the inputs.
    """
    result = torch.empty_like(inputs[0])
    arrays = [_flat(tensor) for tensor in (*inputs, result)]
    element = types.uint16 if result.dtype == torch.bfloat16 else types.float32
    run_on_threads(kernel, element, [array.ctypes.data for array in arrays], constants, result.numel())
    return result


def _flat(x: Tensor) -> NDArray[Any]:
    """Return the elements in the order of the memory; those of bfloat16, which NumPy does not know, as bits."""
    line = x.detach().as_strided((x.numel(),), (1,))
    if x.dtype == torch.bfloat16:
        bits: NDArray[Any] = line.view(torch.uint16).numpy()
        return bits
    values: NDArray[Any] = line.numpy()
    return values


def times_s3nn(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    """Multiply gradients by the surrogate `S3NN`; the constants are threshold, 1/α and τ."""
    grad, u, out = arrays[0], arrays[1], arrays[2]
    threshold, steepness, tau = _FLOAT(constants[0]), _FLOAT(constants[1]), _FLOAT(constants[2])
    for i in range(first, stop):
        v = _widen(u[i])
        above = _FLOAT(1) / (tau * max(v, threshold))
        out[i] = _narrow(_widen(grad[i]) * (above if v >= threshold else _slope(v - threshold, steepness)), out)


def times_sigmoid(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    """Multiply gradients by the surrogate `ScaledSigmoid`; the constants are threshold and 1/α."""
    grad, u, out = arrays[0], arrays[1], arrays[2]
    threshold, steepness = _FLOAT(constants[0]), _FLOAT(constants[1])
    for i in range(first, stop):
        out[i] = _narrow(_widen(grad[i]) * _slope(_widen(u[i]) - threshold, steepness), out)


def times_triangle(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    """Multiply gradients by the surrogate `Triangle`; the constant is the threshold."""
    grad, u, out = arrays[0], arrays[1], arrays[2]
    threshold = _FLOAT(constants[0])
    for i in range(first, stop):
        height = _FLOAT(1) - abs(_widen(u[i]) - threshold)
        out[i] = _narrow(_widen(grad[i]) * (_FLOAT(0) if height < _FLOAT(0) else height), out)


def drop(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
    """Zero elements by their draws; the constants are both halves of the seed, the limit and the scale."""
    x, out = arrays[0], arrays[1]
    key, other, dropped = _WORD(constants[0]), _WORD(constants[1]), _WORD(constants[2])
    scale = _FLOAT(constants[3])
    for i in range(first, stop):
        kept = _draw(_WORD(i), key, other) >= dropped
        out[i] = _narrow(_widen(x[i]) * (scale if kept else _FLOAT(0)), out)


@inlined
def _draw(position: Any, key: Any, other: Any) -> Any:
    """Hash a position in memory with the two halves of a seed into 32 bits; see `draws`."""
    # The constants are repeated from there, for Numba's cache on disk notices changes of this file only.
    # Numba widens the result of every operation on words.
    h = _WORD(_WORD(position * _WORD(0x9E3779B1)) + key)
    h = _WORD(_WORD((h ^ (h >> _WORD(16))) * _WORD(0x85EBCA6B)) + other)
    h = _WORD((h ^ (h >> _WORD(16))) * _WORD(0x21F0AAAD))
    h = _WORD((h ^ (h >> _WORD(15))) * _WORD(0x735A2D97))
    return _WORD(h ^ (h >> _WORD(15)))


@inlined
def _slope(distance: Any, steepness: Any) -> Any:
    """Return the sigmoid's slope σ(1 − σ)/α = e/(1 + e)²/α with e = exp(−|distance|/α)."""
    t = abs(distance) * steepness
    e = _exp_of_minus(t)
    slope = e / ((_FLOAT(1) + e) * (_FLOAT(1) + e)) * steepness
    return t if t != t else slope  # the slope of NaN is NaN


@inlined
def _exp_of_minus(t: Any) -> Any:
    """Return exp(−t) for t ≥ 0 as 2⁻ᵏ·exp(r) with |r| ≤ ln 2 / 2, in steps of which LLVM makes vectors.

    The polynomial for exp(r) and ln 2 in two parts, the first exact in few bits, are those of `expf` in Moshier's
    Cephes Mathematical Library (single/expf.c), and 1.4426950408889634 is 1 / ln 2. Beyond 87, exp(−t) is below the
    normal numbers of float32.
    """
    t = min(t, _FLOAT(87))
    k = np.floor(t * _FLOAT(1.4426950408889634) + _FLOAT(0.5))
    r = k * _FLOAT(0.693359375) - t - k * _FLOAT(2.12194440e-4)
    p = _FLOAT(1.9875691500e-4)
    p = p * r + _FLOAT(1.3981999507e-3)
    p = p * r + _FLOAT(8.3334519073e-3)
    p = p * r + _FLOAT(4.1665795894e-2)
    p = p * r + _FLOAT(1.6666665459e-1)
    p = p * r + _FLOAT(5.0000001201e-1)
    bits = (np.int32(127) - np.int32(k)) << np.int32(23)
    return (p * r * r + r + _FLOAT(1)) * np.int32(bits).view(_FLOAT)


def _widen(value: Any) -> Any:
    """Return a number of either kind as float32."""
    raise NotImplementedError  # compiled code has one of the two below


@overload(_widen, inline="always", strict=False)
def _overload_widen(value: Any) -> Any:
    if value == types.uint16:
        return lambda value: _WORD(_WORD(value) << _WORD(16)).view(_FLOAT)
    return lambda value: value


def _narrow(value: Any, out: Any) -> Any:
    """Return a float32 as what the array holds, rounded to nearest, ties to even."""
    raise NotImplementedError


@overload(_narrow, inline="always", strict=False)
def _overload_narrow(value: Any, out: Any) -> Any:
    if out.dtype == types.uint16:

        def rounded(value: Any, out: Any) -> Any:
            bits = _FLOAT(value).view(_WORD)
            even = _WORD(bits + _WORD(_WORD(0x7FFF) + _WORD(_WORD(bits >> _WORD(16)) & _WORD(1))))
            quiet = _WORD(bits | _WORD(1 << 22))  # NaN stays NaN
            return np.uint16(_WORD((even if value == value else quiet) >> _WORD(16)))

        return rounded
    return lambda value, out: value
