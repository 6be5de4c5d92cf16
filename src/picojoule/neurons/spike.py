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
from picojoule.kernels import fused
from picojoule.kernels.torch_private import is_transformed
from picojoule.neurons import recomputation
from picojoule.neurons.surrogate import S3NN, ChecksThreshold, Fused, Surrogate

_S3NN = S3NN()


def spike(u: Tensor, threshold: float, surrogate: Surrogate) -> Tensor:
    """``H(u - threshold)``, with ``surrogate(u, threshold)`` as its derivative.

    For the backward pass only ``u`` is kept, behind a batch norm not even that (`recomputation`), and nothing where no
    gradient is needed. A NaN potential does not fire.

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
        ctx.eps = None
        if is_eager(u) and (found := recomputation.source(u)) is not None:
            kept, ctx.eps = found
            ctx.save_for_backward(*kept)
        else:
            ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        saved = ctx.saved_tensors
        u = saved[0] if ctx.eps is None else recomputation.Source(*saved).potential(ctx.eps)
        surrogate: Surrogate = ctx.surrogate
        if isinstance(surrogate, Fused) and _is_its_own(surrogate) and _at_once(grad, u):
            return surrogate.times(grad, u, ctx.threshold), None, None
        return grad * surrogate(u, ctx.threshold), None, None


def is_eager(x: Tensor) -> bool:
    """Whether the numbers are here: neither being compiled nor inside a transform such as vmap."""
    return not torch.compiler.is_compiling() and not is_transformed(x)


_FEW = 1 << 12
"""Elements: below, there is nothing to gain, and who never trains never waits for the compiler."""


def _is_its_own(surrogate: Fused) -> bool:
    """Whether the fused form is that of this formula, not of one that a class derived from ours has replaced."""
    kinds = type(surrogate).__mro__
    times, call = (next((k for k in kinds if name in vars(k)), None) for name in ("times", "__call__"))
    return times is call is not None


def _at_once(grad: Tensor, u: Tensor) -> bool:
    """Whether the product can be made in one pass: nobody asks for its derivative, and both lie in a CPU's memory."""
    if u.device.type != "cpu" or u.numel() < _FEW or not is_eager(grad) or torch.is_grad_enabled():
        return False
    return fused.fits_one_pass(grad, u) and fused.is_available()


def _check(threshold: float, surrogate: Surrogate) -> None:
    if not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise PicojouleError(f"a spiking neuron needs a finite threshold, not {threshold!r}")
    if isinstance(surrogate, type):
        raise PicojouleError(f"surrogate is the class {surrogate.__name__}: pass an instance, {surrogate.__name__}()")
    if not callable(surrogate):
        raise PicojouleError(f"surrogate must be a callable (u, threshold) -> derivative, not {surrogate!r}")
    if isinstance(surrogate, ChecksThreshold):
        surrogate.check_threshold(threshold)
