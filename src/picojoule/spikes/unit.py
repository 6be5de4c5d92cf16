"""The unit of spikes: what one of them is worth in the values that a neuron emits, and whether some are negative."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from picojoule.errors import PicojouleError

_ROUNDINGS = 4
"""Roundings of the last digit by which a multiple of the unit may be off, as n · (1/3) is."""


@dataclass(frozen=True)
class Unit:
    """The unit of what a neuron emits: n · value are |n| spikes.

    Args:
        value: What one spike is worth.
        signed: Whether n may be negative.

    Raises:
        PicojouleError: The value is not a finite number above 0, or `signed` is not a bool.

    >>> Unit(0.25).counts(torch.tensor([0.0, 0.25, 0.75])), Unit(signed=True).counts(torch.tensor([-1.0, 1.0]))
    (tensor([0., 1., 3.]), tensor([1., 1.]))
    """

    value: float = 1
    signed: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise PicojouleError(f"unit={self.value!r} is not the value of a spike: give a finite number above 0")
        if not (math.isfinite(self.value) and self.value > 0):
            raise PicojouleError(f"unit={self.value!r} is not the value of a spike: give a finite number above 0")
        if not isinstance(self.signed, bool):
            raise PicojouleError(f"signed={self.signed!r} is neither True nor False: give one of them")

    @property
    def plain(self) -> bool:
        """Whether values are numbers of spikes as they are."""
        return self.value == 1 and not self.signed

    def counts(self, values: Tensor) -> Tensor:
        """Count the spikes in values, with the derivative ±1/unit.

        Args:
            values: What the neuron emitted.

        Returns:
            The values themselves if they are numbers of spikes, else |values| / unit. What is not a multiple of the
            unit stays a fraction; what is negative and must not be stays negative.
        """
        if self.plain:
            return values
        n = (values.abs() if self.signed else values) / self.value
        nearest = n.detach().round()
        whole = (n.detach() - nearest).abs() <= _ROUNDINGS * torch.finfo(n.dtype).eps * nearest.abs()
        return torch.where(whole, n + (nearest - n.detach()), n)
