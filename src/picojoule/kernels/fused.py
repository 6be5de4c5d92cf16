"""Surrogate gradients and dropout in one pass over a CPU's memory, where PyTorch's operators take a dozen.

What it gains: time, since such products are bound by memory and PyTorch draws dropout masks on one core, and memory,
since there are no intermediate results: the peak of a training step of VGG11 with 100 images falls from 261 to 201 MiB,
by `benchmarks/switches.py`, which also times the step. `results/speed.md` has it beside those of other frameworks.

The passes need Numba. Where it is not installed, or PICOJOULE_FUSED=0 is set, PyTorch's operators do the same:

* dropout drops the same elements, with the same bits;
* products with a surrogate differ in their last digits, since the exponential function is another one (in float32 by a
  few parts in 10⁷ near the threshold), and in bfloat16 PyTorch rounds after each operator, a pass only once.

All passes take tensors that fit (`fits_one_pass`). Arithmetic is float32 and rounded once at the end. PyTorch's own
threads execute them (`threads`), and the bits do not depend on how many there are.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from picojoule.io.background import Task
from picojoule.io.extras import lacks_numba
from picojoule.kernels.draws import LEVELS, draw
from picojoule.kernels.switches import Switch

_BLOCK = 1 << 20
"""Elements whose draws PyTorch's operators hold at a time, as int64."""


def is_available() -> bool:
    """Return whether compiled passes can be used: Numba is installed, and nobody has switched them off.

    Returns:
        Whether `times_s3nn` and its kin work.

    Raises:
        PicojouleError: If PICOJOULE_FUSED is set to anything but 0 or 1.
    """
    return Switch.FUSED.is_on and _loops.result() is not None


def _imported_loops() -> ModuleType | None:
    """Import the compiled loops, which bring the compiler; None where that is not installed."""
    try:
        from picojoule.kernels import fused_loops
    except ModuleNotFoundError as missing:
        if not lacks_numba(missing):
            raise
        return None
    return fused_loops


_loops = Task(_imported_loops)
"""In a thread of its own: Ctrl-C in the midst of an import would leave half of Numba behind."""


def fits_one_pass(*tensors: Tensor) -> bool:
    """Return whether tensors fill a CPU's memory densely, in the same order and as the same kind of number.

    Args:
        *tensors: At least one.

    Returns:
        Whether all are float32 or all bfloat16, on a CPU, without gaps, of one shape and one memory layout.

    >>> x = torch.zeros(2, 3, 4, 4)
    >>> fits_one_pass(x, x)
    True
    >>> fits_one_pass(x, x.contiguous(memory_format=torch.channels_last)), fits_one_pass(x.double())
    (False, False)
    """
    first = tensors[0]
    return (
        first.device.type == "cpu"
        and first.dtype in (torch.float32, torch.bfloat16)
        and _is_dense(first)
        and all(x.dtype == first.dtype and x.device == first.device for x in tensors)
        and all(x.shape == first.shape and x.stride() == first.stride() for x in tensors)
    )


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


def times_s3nn(grad: Tensor, u: Tensor, threshold: float, alpha: float, tau: float) -> Tensor:
    """Multiply a gradient by the surrogate `S3NN`: 1/(τu) from the threshold on, the sigmoid's slope below it.

    Args:
        grad: The gradient that arrives at the spikes.
        u: The membrane potential; the two fit one pass, and `is_available()` is true.
        threshold: Where the neuron fires.
        alpha: The scale of the sigmoid.
        tau: The scale from the threshold on.

    Returns:
        The gradient that leaves the neuron, laid out like the potential.
    """
    return _over("times_s3nn", (grad, u), _as_compared(threshold, u), 1 / alpha, tau)


def times_sigmoid(grad: Tensor, u: Tensor, threshold: float, alpha: float) -> Tensor:
    """Multiply a gradient by the surrogate `ScaledSigmoid`, the sigmoid's slope σ(1 − σ)/α.

    Args:
        grad: The gradient that arrives at the spikes.
        u: The membrane potential; the two fit one pass, and `is_available()` is true.
        threshold: Where the neuron fires.
        alpha: The scale of the sigmoid.

    Returns:
        The gradient that leaves the neuron, laid out like the potential.
    """
    return _over("times_sigmoid", (grad, u), _as_compared(threshold, u), 1 / alpha)


def times_triangle(grad: Tensor, u: Tensor, threshold: float) -> Tensor:
    """Multiply a gradient by the surrogate `Triangle`, max(1 − |u − threshold|, 0).

    Args:
        grad: The gradient that arrives at the spikes.
        u: The membrane potential; the two fit one pass, and `is_available()` is true.
        threshold: Where the neuron fires.

    Returns:
        The gradient that leaves the neuron, laid out like the potential.
    """
    return _over("times_triangle", (grad, u), _as_compared(threshold, u))


def drop(x: Tensor, seed: int, dropped: int, scale: float) -> Tensor:
    """Zero the elements whose draws are below a limit, and scale the others.

    The draw of an element is a hash of the seed and its position in memory (`draws`). It is the same, to the bit, with
    and without the compiled pass.

    Args:
        x: A tensor that fits one pass.
        seed: Up to 64 bits.
        dropped: The limit, below `LEVELS`: an element is zeroed with probability dropped / LEVELS.
        scale: The factor for the others.

    Returns:
        A tensor laid out like x.

    >>> drop(torch.ones(8), seed=5, dropped=LEVELS // 2, scale=2.0)
    tensor([2., 2., 2., 0., 2., 0., 0., 2.])
    """
    if is_available():
        return _over("drop", (x,), seed & (LEVELS - 1), seed >> 32, dropped, scale)
    result = torch.empty_like(x)
    source, target = (tensor.detach().as_strided((x.numel(),), (1,)) for tensor in (x, result))
    for first in range(0, x.numel(), _BLOCK):
        stop = min(first + _BLOCK, x.numel())
        factors = (draw(first, stop, seed) >= dropped).float() * scale
        target[first:stop] = source[first:stop].float() * factors
    return result


def _as_compared(threshold: float, u: Tensor) -> float:
    """Return the threshold in the precision in which the forward pass compared with it."""
    return torch.tensor(threshold, dtype=u.dtype).item()


def _over(loop: str, inputs: tuple[Tensor, ...], *constants: float) -> Tensor:
    loops = _loops.result()
    assert loops is not None, "compiled passes need Numba: ask is_available() first"
    result: Tensor = loops.over(getattr(loops, loop), inputs, *constants)
    return result
