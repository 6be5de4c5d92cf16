"""Spiking neurons: pure functions, and thin modules around them.

Convention: ``s = H(u - u_th)``, that is 1 where ``u ≥ u_th`` (1 at equality) and 0 elsewhere, in the dtype and memory
layout of ``u``. In the backward pass a surrogate stands in for ∂s/∂u, which is zero almost everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from picojoule.errors import PicojouleError
from picojoule.surrogate import S3NN, ChecksThreshold, Fused, Surrogate

_S3NN = S3NN()


def spike(u: Tensor, threshold: float, surrogate: Surrogate) -> Tensor:
    """``H(u - threshold)``, with ``surrogate(u, threshold)`` as its derivative.

    For the backward pass only ``u`` is kept, and nothing where no gradient is needed. A NaN potential does not fire.

    >>> import torch
    >>> u = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    >>> s = spike(u, 1.0, S3NN(alpha=0.25, tau=0.5))
    >>> s.detach()
    tensor([0., 1., 1.])
    >>> s.sum().backward()
    >>> u.grad
    tensor([0.4200, 2.0000, 1.0000])
    """
    spikes: Tensor = _Heaviside.apply(u, threshold, surrogate)  # type: ignore[no-untyped-call]
    return spikes


class Spike(nn.Module):
    """The single-step spiking neuron ``s = H(u - threshold)``, without memory from one call to the next.

    ``surrogate`` is any callable ``(u, threshold) → ∂s/∂u``.

    >>> Spike()
    Spike(threshold=1.0, surrogate=S3NN(alpha=0.25, tau=0.6))
    """

    def __init__(self, threshold: float = 1.0, surrogate: Surrogate = _S3NN) -> None:
        super().__init__()
        _check(threshold, surrogate)
        self.threshold = float(threshold)
        self.surrogate = surrogate

    def forward(self, u: Tensor) -> Tensor:
        return spike(u, self.threshold, self.surrogate)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, surrogate={self.surrogate}"


class _Heaviside(Function):
    """The one place where a spike meets autograd, whatever the neuron and the surrogate."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, threshold: float, surrogate: Surrogate) -> Tensor:
        if is_eager(u):  # one pass and no boolean copy
            return torch.ge(u, threshold, out=torch.empty_like(u))
        return (u >= threshold).to(u.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, Surrogate], output: Tensor) -> None:
        u, ctx.threshold, ctx.surrogate = inputs
        ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        surrogate: Surrogate = ctx.surrogate
        if isinstance(surrogate, Fused) and _fits_in_blocks(u, grad):
            return _blockwise(grad, u, ctx.threshold, surrogate), None, None
        return grad * surrogate(u, ctx.threshold), None, None


_BLOCK = 1 << 17
"""Elements: a surrogate makes a dozen passes over the potential, which are cheap while the data stay in the cache."""


def is_eager(x: Tensor) -> bool:
    """Whether the numbers are here: neither being compiled nor inside a transform such as vmap."""
    return not torch.compiler.is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def _fits_in_blocks(u: Tensor, grad: Tensor) -> bool:
    """Whether both lie densely in a CPU's memory, in the same order."""
    return (
        is_eager(grad)
        and not torch.is_grad_enabled()
        and u.device.type == "cpu"
        and u.numel() > _BLOCK
        and u.stride() == grad.stride()
        and is_dense(u)
    )


def is_dense(x: Tensor) -> bool:
    """Whether the elements fill one stretch of memory, in one of the two usual orders."""
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


def _blockwise(grad: Tensor, u: Tensor, threshold: float, surrogate: Fused) -> Tensor:
    """grad · surrogate(u), block by block."""
    result = torch.empty_like(u)
    flat_u, flat_grad, flat_result = (x.as_strided((u.numel(),), (1,)) for x in (u, grad, result))
    for first in range(0, u.numel(), _BLOCK):
        part = slice(first, first + _BLOCK)
        surrogate.times(flat_grad[part], flat_u[part], threshold, out=flat_result[part])
    return result


def _check(threshold: float, surrogate: Surrogate) -> None:
    if not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise PicojouleError(f"a spiking neuron needs a finite threshold, not {threshold!r}")
    if isinstance(surrogate, type):
        raise PicojouleError(f"surrogate is the class {surrogate.__name__}: pass an instance, {surrogate.__name__}()")
    if not callable(surrogate):
        raise PicojouleError(f"surrogate must be a callable (u, threshold) -> derivative, not {surrogate!r}")
    if isinstance(surrogate, ChecksThreshold):
        surrogate.check_threshold(threshold)
