"""The spike of a neuron as a function with a surrogate gradient, and the single-step neuron around it.

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
from picojoule.kernels.torch_private import forward_mode_depth, has_forward_mode, is_transformed
from picojoule.neurons import recomputation
from picojoule.neurons.surrogate import S3NN, ChecksThreshold, Fused, Surrogate

_S3NN = S3NN()


def spike(u: Tensor, threshold: float, surrogate: Surrogate) -> Tensor:
    """Fire where the potential reaches the threshold: ``H(u - threshold)``.

    In the backward pass ``surrogate(u, threshold)`` is its derivative. For that only ``u`` is kept, behind a batch norm
    not even that (`recomputation`), and nothing where no gradient is needed. A NaN potential does not fire.

    Args:
        u: The membrane potential, of any shape.
        threshold: Where the neuron fires.
        surrogate: Any callable ``(u, threshold) → ∂s/∂u``.

    Returns:
        The spikes, 0 or 1, in the dtype, shape and memory layout of ``u``.

    Raises:
        PicojouleError: If a forward-mode derivative of a forward-mode derivative is asked for.

    >>> import torch
    >>> u = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    >>> s = spike(u, 1.0, S3NN(alpha=0.25, tau=0.5))
    >>> s.detach()
    tensor([0., 1., 1.])
    >>> s.sum().backward()
    >>> u.grad
    tensor([0.4200, 2.0000, 1.0000])
    """
    kind = _ForwardHeaviside if takes_forward_mode(u) else _Heaviside
    spikes: Tensor = kind.apply(u, threshold, surrogate)  # type: ignore[no-untyped-call]
    return spikes


class Spike(nn.Module):
    """The single-step spiking neuron ``s = H(u - threshold)``, without memory from one call to the next.

    Args:
        threshold: Where the neuron fires.
        surrogate: Any callable ``(u, threshold) → ∂s/∂u``.

    Raises:
        PicojouleError: If the threshold is not finite, or the surrogate is not callable or cannot work with it.

    >>> Spike()
    Spike(threshold=1.0, surrogate=S3NN(alpha=0.25, tau=0.6))
    >>> Spike()(torch.tensor([0.5, 1.0, 2.0]))
    tensor([0., 1., 1.])
    """

    def __init__(self, threshold: float = 1.0, surrogate: Surrogate = _S3NN) -> None:
        super().__init__()
        _check(threshold, surrogate)
        self.threshold = float(threshold)
        self.surrogate = surrogate

    def forward(self, u: Tensor) -> Tensor:
        """Fire where the potential reaches the threshold.

        Args:
            u: The membrane potential.

        Returns:
            The spikes, 0 or 1.
        """
        return spike(u, self.threshold, self.surrogate)

    def extra_repr(self) -> str:
        """Return the settings, as ``print(model)`` shows them."""
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
        if is_eager(u) and (found := recomputation.recomputable(u)) is not None:
            kept, ctx.eps = found
            ctx.save_for_backward(*kept)
        else:
            ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        saved, surrogate = ctx.saved_tensors, ctx.surrogate
        if isinstance(surrogate, Fused) and _has_its_own_product(surrogate) and _fits_one_pass(grad, saved[0]):
            if ctx.eps is None:
                return surrogate.times(grad, saved[0], ctx.threshold), None, None
            return (
                _product(grad, recomputation.NormalizedPotential(*saved), ctx.eps, surrogate, ctx.threshold),
                None,
                None,
            )
        u = saved[0] if ctx.eps is None else recomputation.NormalizedPotential(*saved).potential(ctx.eps)
        return grad * surrogate(u, ctx.threshold), None, None


_PART = 1 << 17
"""Elements of a potential that is computed anew: they stay in a core's cache until they are used."""


def _product(
    grad: Tensor, source: recomputation.NormalizedPotential, eps: float, surrogate: Fused, threshold: float
) -> Tensor:
    """Multiply a gradient by a surrogate whose potential is computed anew, some samples at a time."""
    samples = max(_PART * len(grad) // grad.numel(), 1)
    product = torch.empty_like(grad)
    for first in range(0, len(grad), samples):
        part = slice(first, first + samples)
        product[part] = surrogate.times(grad[part], source.part(part).potential(eps), threshold)
    return product


class _ForwardHeaviside(_Heaviside):
    """The same with a forward-mode derivative, which keeps the potential and which `torch.compile` does not take."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, Surrogate], output: Tensor) -> None:
        u, ctx.threshold, ctx.surrogate = inputs
        ctx.eps = None
        ctx.save_for_backward(u)
        ctx.save_for_forward(u)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (u,) = ctx.saved_tensors
        slope: Tensor = ctx.surrogate(u, ctx.threshold)
        return tangent * slope


def is_eager(x: Tensor) -> bool:
    """Return whether operations on a tensor run at once: not compiled, and not inside a transform such as vmap.

    Args:
        x: Any tensor.

    Returns:
        Whether its numbers can be read.
    """
    return not torch.compiler.is_compiling() and not is_transformed(x)


def takes_forward_mode(x: Tensor) -> bool:
    """Return whether a function of a tensor needs a forward-mode derivative.

    Args:
        x: Any tensor.

    Returns:
        True under `torch.func.jvp`, `jacfwd`, `hessian` and the like.

    Raises:
        PicojouleError: If two of them stand one inside the other, through which PyTorch takes no custom derivative.
    """
    if torch.compiler.is_compiling() or not has_forward_mode(x):
        return False
    if forward_mode_depth() > 1:
        raise PicojouleError(
            "a forward-mode derivative of a forward-mode derivative (jacfwd of jacfwd) does not pass through spikes: "
            "take torch.func.hessian, or jacfwd of jacrev"
        )
    return True


_LEAST = 1 << 12
"""Elements of a fused pass: with fewer there is nothing to gain, and the compiler need not be waited for."""


def _has_its_own_product(surrogate: Fused) -> bool:
    """Return whether one class defines both the formula and its fused product: a derived one may replace one."""
    kinds = type(surrogate).__mro__
    times, call = (next((k for k in kinds if name in vars(k)), None) for name in ("times", "__call__"))
    return times is call is not None


def _fits_one_pass(grad: Tensor, u: Tensor) -> bool:
    """Return whether the product can be made in one pass, which has no derivative of its own."""
    if u.device.type != "cpu" or u.numel() < _LEAST or not is_eager(grad) or torch.is_grad_enabled():
        return False
    return fused.fits_one_pass(grad, u) and fused.is_available()


def _check(threshold: float, surrogate: Surrogate) -> None:
    if not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise PicojouleError(f"a spiking neuron needs a finite threshold, not {threshold!r}: give a number")
    if isinstance(surrogate, type):
        raise PicojouleError(f"surrogate is the class {surrogate.__name__}: pass an instance, {surrogate.__name__}()")
    if not callable(surrogate):
        raise PicojouleError(
            f"surrogate must be a callable (u, threshold) -> derivative, not {surrogate!r}: use S3NN() or a function"
        )
    if isinstance(surrogate, ChecksThreshold):
        surrogate.check_threshold(threshold)
