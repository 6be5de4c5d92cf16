"""A layer's choice between dense and events, by its activity and what both cost.

A layer compares its measured activity with the share up to which events are faster, and changes its mind only where the
difference is clear. The share comes from constants (`costs`), so that a run has the same bits every time, or is
measured (`calibration`). Given the share the choices depend on the data alone: who keeps the numbers of a `Choice` and
sets them again gets the same choices, and the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picojoule.kernels.event_driven import calibration, costs
from picojoule.kernels.event_driven.geometry import Geometry

LOOK_EVERY = 16
"""Calls of a dense layer from one look at its inputs to the next."""

_CLEARLY = 0.85
"""A dense layer turns to events below this share of the break-even activity, and back above its inverse."""

NO_SPIKES = 0.95
"""Share of active inputs from which on a layer is taken to be fed by something else than spikes."""

_MUCH_LARGER = 4
"""Times the multiplications of the first batch, from which on the share is found anew."""


@dataclass
class Choice:
    """What one layer has measured and decided.

    Attributes:
        break_even: Share of active inputs up to which events are faster; None before it is known.
        by_events: Whether the next call is made by events.
        activity: Share of active inputs when it was last looked at; None before.
        calls: Calls in training so far.
        event_calls: Those of them that were made by events.
        measured_products: Multiplications of the batch for which `break_even` was found; None where it was given.
        measured: Whether `break_even` is measured on this machine, where it is not computed from constants.

    >>> choice = Choice(break_even=0.25)
    >>> shape = Geometry(1, 1, 8, 8, (1, 1), (1, 1))
    >>> choice.decide(0.1, torch.zeros(1, 8, 1, 1), shape)
    >>> choice.by_events
    True
    """

    break_even: float | None = None
    by_events: bool = False
    activity: float | None = None
    calls: int = 0
    event_calls: int = 0
    measured_products: int | None = None
    measured: bool = False

    def take_call(self, x: Tensor, shape: Geometry) -> bool:
        """Decide about a call.

        Args:
            x: The layer's inputs, which are looked at now and then.
            shape: The shape of the layer.

        Returns:
            Whether the call is to be made by events.
        """
        if not self.by_events and self.calls % LOOK_EVERY == 0:
            self.decide(int(torch.count_nonzero(x.detach())) / max(x.numel(), 1), x, shape)
        self.calls += 1
        self.event_calls += self.by_events
        return self.by_events

    def decide(self, activity: float, x: Tensor, shape: Geometry) -> None:
        """Note how active the inputs are, and choose for the next call.

        Args:
            activity: The share of active inputs.
            x: The layer's inputs.
            shape: The shape of the layer.
        """
        self.activity = activity
        if self.break_even is None or self._is_outgrown(shape):
            if activity > NO_SPIKES:  # nobody waits for a measurement that decides nothing
                self.by_events = False
                return
            valued, source = _have_different_values(x.detach()), calibration if self.measured else costs
            self.break_even = source.break_even(shape, x.dtype, valued=valued)
            self.measured_products = shape.products()
        if self.break_even == 0:
            self.by_events = False
        elif self.by_events:
            self.by_events = activity * _CLEARLY <= self.break_even
        else:
            self.by_events = activity <= self.break_even * _CLEARLY

    def _is_outgrown(self, shape: Geometry) -> bool:
        """Return whether what was found says nothing about so large a batch: a first one may have been tiny."""
        return self.measured_products is not None and shape.products() >= _MUCH_LARGER * self.measured_products

    def to_numbers(self) -> list[float]:
        """Return what was found and decided as numbers, -1 for None, as a checkpoint keeps them."""
        counted = (self.calls, self.event_calls, self.measured_products)
        values = (self.break_even, self.by_events, self.activity, *counted)
        return [-1.0 if value is None else float(value) for value in values]

    def set_numbers(self, numbers: Sequence[float]) -> None:
        """Take the attributes from what `to_numbers` gave.

        Args:
            numbers: Six numbers; five of a checkpoint that does not know what was measured.
        """
        share, by_events, activity, calls, event_calls, *products = numbers
        self.break_even = None if share < 0 else share
        self.by_events = bool(by_events)
        self.activity = None if activity < 0 else activity
        self.calls, self.event_calls = int(calls), int(event_calls)
        self.measured_products = int(products[0]) if products and products[0] >= 0 else None


def _have_different_values(x: Tensor) -> bool:
    """Return whether the active inputs are not all the same number."""
    return bool(((x != 0) & (x != x.max())).any())
