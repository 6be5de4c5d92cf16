"""Surrogate gradients: what stands in for the derivative of the spike.

Convention: a surrogate is a callable ``surrogate(u, threshold)`` that returns, element by element, the value used as
∂s/∂u of ``s = H(u - threshold)``, in the dtype and shape of the membrane potential ``u``. Any callable of that form
will do; the ones here are small frozen values, so that they compare, hash and print.

``u_th`` is the threshold and ``sigma(u) = 1 / (1 + exp(-(u - u_th)/alpha))`` the scaled sigmoid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from torch import Tensor, where

from picojoule.errors import PicojouleError
from picojoule.kernels.fused import times_s3nn, times_sigmoid, times_triangle


class Surrogate(Protocol):
    """Any callable from potential and threshold to the derivative used in the backward pass."""

    def __call__(self, u: Tensor, threshold: float, /) -> Tensor:
        """Return the derivative used for ∂s/∂u.

        Args:
            u: The potential.
            threshold: Where the neuron fires.

        Returns:
            The derivative, in the dtype and shape of the potential.
        """
        ...


@runtime_checkable
class ChecksThreshold(Protocol):
    """A surrogate that is not defined for every threshold; a neuron asks it once, when it is built."""

    def check_threshold(self, threshold: float) -> None:
        """Refuse a threshold that the surrogate cannot work at.

        Args:
            threshold: Where the neuron fires.

        Raises:
            PicojouleError: If it cannot.
        """


@runtime_checkable
class Fused(Protocol):
    """An elementwise surrogate that can multiply a gradient by itself in one pass over a CPU's memory."""

    def times(self, grad: Tensor, u: Tensor, threshold: float, /) -> Tensor:
        """Return ``grad · surrogate(u, threshold)``, up to rounding.

        Args:
            grad: The gradient that arrives at the spikes.
            u: The potential. The two tensors `fused.fits_one_pass`, and `fused.is_available()`.
            threshold: Where the neuron fires.

        Returns:
            The gradient that leaves the neuron.
        """


@dataclass(frozen=True)
class S3NN:
    """The surrogate ``1/(tau u)`` from the threshold on, and the scaled sigmoid's derivative below it.

    Suetake et al., S³NN: time step reduction of spiking surrogate gradients for training energy efficient single-step
    spiking neural networks, Neural Networks 159 (2023).

    Args:
        alpha: The scale of the sigmoid, above 0.
        tau: The scale from the threshold on, above 0.

    Raises:
        PicojouleError: If one of them is not a finite number above 0.

    >>> import torch
    >>> S3NN(alpha=0.25, tau=0.5)(torch.tensor([1.0, 4.0]), 1.0)
    tensor([2.0000, 0.5000])
    """

    alpha: float = 0.25
    tau: float = 0.6

    def __post_init__(self) -> None:
        _require_positive(self, "alpha", self.alpha)
        _require_positive(self, "tau", self.tau)

    def check_threshold(self, threshold: float) -> None:
        """Refuse thresholds of 0 and below, where ``1/u`` explodes.

        Args:
            threshold: Where the neuron fires.

        Raises:
            PicojouleError: If the threshold is not above 0.
        """
        if threshold <= 0:
            raise PicojouleError(
                f"S3NN needs a threshold above 0, not {threshold}, because its gradient 1/(tau*u) explodes at u = 0: "
                "raise the threshold or use Triangle() or ScaledSigmoid()"
            )

    def __call__(self, u: Tensor, threshold: float, /) -> Tensor:
        """Return the derivative at each potential, with PyTorch's operators.

        Args:
            u: The potential.
            threshold: Where the neuron fires.

        Returns:
            ∂s/∂u, in the dtype and shape of the potential.
        """
        # The clamp changes no value that is kept; it keeps 1/u finite in the branch that `where` drops.
        above = (u.clamp(min=threshold) * self.tau).reciprocal()
        return where(u >= threshold, above, _sigmoid_slope(u, threshold, self.alpha))

    def times(self, grad: Tensor, u: Tensor, threshold: float, /) -> Tensor:
        """Multiply a gradient by the surrogate in one pass, see `Fused`.

        Args:
            grad: The gradient that arrives at the spikes.
            u: The potential, densely in the memory of a CPU.
            threshold: Where the neuron fires.

        Returns:
            The gradient that leaves the neuron.
        """
        return times_s3nn(grad, u, threshold, self.alpha, self.tau)


@dataclass(frozen=True)
class Triangle:
    """The surrogate ``max(1 - |u - u_th|, 0)`` (Esser et al., 2016).

    >>> import torch
    >>> Triangle()(torch.tensor([0.5, 1.0, 3.0]), 1.0)
    tensor([0.5000, 1.0000, 0.0000])
    """

    def __call__(self, u: Tensor, threshold: float, /) -> Tensor:
        """Return the derivative at each potential, with PyTorch's operators.

        Args:
            u: The potential.
            threshold: Where the neuron fires.

        Returns:
            ∂s/∂u, in the dtype and shape of the potential.
        """
        return (1 - (u - threshold).abs()).clamp(min=0)

    def times(self, grad: Tensor, u: Tensor, threshold: float, /) -> Tensor:
        """Multiply a gradient by the surrogate in one pass, see `Fused`.

        Args:
            grad: The gradient that arrives at the spikes.
            u: The potential, densely in the memory of a CPU.
            threshold: Where the neuron fires.

        Returns:
            The gradient that leaves the neuron.
        """
        return times_triangle(grad, u, threshold)


@dataclass(frozen=True)
class ScaledSigmoid:
    """The surrogate ``dsigma/du = sigma (1 - sigma) / alpha`` on both sides of the threshold (Pellegrini et al., 2021).

    Args:
        alpha: The scale of the sigmoid, above 0.

    Raises:
        PicojouleError: If it is not a finite number above 0.

    >>> import torch
    >>> ScaledSigmoid(alpha=0.25)(torch.tensor([1.0]), 1.0)
    tensor([1.])
    """

    alpha: float = 0.25

    def __post_init__(self) -> None:
        _require_positive(self, "alpha", self.alpha)

    def __call__(self, u: Tensor, threshold: float, /) -> Tensor:
        """Return the derivative at each potential, with PyTorch's operators.

        Args:
            u: The potential.
            threshold: Where the neuron fires.

        Returns:
            ∂s/∂u, in the dtype and shape of the potential.
        """
        return _sigmoid_slope(u, threshold, self.alpha)

    def times(self, grad: Tensor, u: Tensor, threshold: float, /) -> Tensor:
        """Multiply a gradient by the surrogate in one pass, see `Fused`.

        Args:
            grad: The gradient that arrives at the spikes.
            u: The potential, densely in the memory of a CPU.
            threshold: Where the neuron fires.

        Returns:
            The gradient that leaves the neuron.
        """
        return times_sigmoid(grad, u, threshold, self.alpha)


SURROGATES: Mapping[str, type[S3NN] | type[Triangle] | type[ScaledSigmoid]] = MappingProxyType(
    {"s3nn": S3NN, "triangle": Triangle, "sigmoid": ScaledSigmoid}
)
"""The surrogates by the names that a recipe uses."""


def _sigmoid_slope(u: Tensor, threshold: float, alpha: float) -> Tensor:
    # The slope is even in u - u_th. On the falling side sigma is small, so 1 - sigma loses no digits, also in bfloat16.
    sigma = ((u - threshold).abs() / -alpha).sigmoid()
    return sigma * (1 - sigma) / alpha


def _require_positive(surrogate: object, parameter: str, value: float) -> None:
    if not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise PicojouleError(f"{type(surrogate).__name__} needs a finite {parameter} above 0, not {value!r}")
