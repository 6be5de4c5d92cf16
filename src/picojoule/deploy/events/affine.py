"""Scales and shifts that are carried along until they meet a threshold, and how a threshold takes them in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.deploy.graph.batch_norm import scale_and_shift_of
from picojoule.kernels.torch_private import BatchNorm

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Affine:
    """A map x ↦ gain · x + shift, channel by channel."""

    gain: Doubles
    shift: Doubles

    @classmethod
    def identity(cls, channels: int) -> Affine:
        """Make the map that changes nothing.

        Args:
            channels: The number of channels.

        Returns:
            Gains of one and shifts of zero.
        """
        return cls(np.ones(channels), np.zeros(channels))

    @classmethod
    def of_batch_norm(cls, norm: BatchNorm) -> Affine:
        """Read what batch norm does in evaluation, in float64.

        Args:
            norm: The layer.

        Returns:
            Its gains and shifts.

        Raises:
            Unsupported: If it normalises by the statistics of each batch.
        """
        scale, shift = scale_and_shift_of(norm, torch.float64)
        return cls(doubles(scale), doubles(shift))

    @property
    def is_identity(self) -> bool:
        """Whether every gain is one and every shift zero."""
        return bool((self.gain == 1).all() and (self.shift == 0).all())

    def then(self, after: Affine) -> Affine:
        """Compose with a map that is applied afterwards.

        Args:
            after: The later map.

        Returns:
            The map that does both.
        """
        return Affine(after.gain * self.gain, after.gain * self.shift + after.shift)


def firing(affine: Affine, threshold: float) -> tuple[Doubles, Doubles]:
    """Fold a map into a threshold: signs σ and thresholds t with gain · u + shift ≥ threshold exactly when σ · u ≥ t.

    A negative gain turns the comparison round. Where the gain is 0 the channel fires always (t = −∞) or never (t = +∞);
    a channel with a NaN never does.

    Args:
        affine: What is done to the current u.
        threshold: What the result is compared with.

    Returns:
        The signs and the thresholds, by channel.

    Example:
        >>> sign, t = firing(Affine(np.array([2.0, -1.0, 0.0]), np.array([0.0, 3.0, 5.0])), 1.0)
        >>> sign.tolist(), t.tolist()
        ([1.0, -1.0, 1.0], [0.5, -2.0, -inf])
    """
    sign = np.where(affine.gain < 0, -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = (threshold - affine.shift) / np.abs(affine.gain)
    t = np.where(affine.gain == 0, np.where(affine.shift >= threshold, -np.inf, np.inf), t)
    return sign, np.where(np.isnan(affine.gain) | np.isnan(affine.shift), np.inf, t)


def doubles(tensor: Tensor) -> Doubles:
    """Convert a tensor to a NumPy array of float64.

    Args:
        tensor: Any tensor of numbers.

    Returns:
        The same numbers on the CPU.
    """
    values: Doubles = tensor.detach().to("cpu", torch.float64).numpy()
    return values


def padded(values: Doubles, size: int, filling: float = 0.0) -> Doubles:
    """Lengthen a vector, from the channels to the lanes of whole vectors.

    Args:
        values: One number for each channel.
        size: The length to reach.
        filling: What the new elements are.

    Returns:
        The vector with its filling behind it.

    Example:
        >>> padded(np.ones(2), 3).tolist()
        [1.0, 1.0, 0.0]
    """
    return np.pad(values, (0, size - len(values)), constant_values=filling)
