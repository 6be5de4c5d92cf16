"""Schedules of a penalty's strength for any training loop: rising with the epochs, or from update to update.

A strength that is charged in full from the first batch hits a network that has learned nothing yet. The recipes' own
schedules are these: `linear` is `penalty.schedule = "linear"`, `ramp` is `penalty.rise_from`.
"""

from __future__ import annotations

from picojoule.errors import PicojouleError


def linear(strength: float, epoch: int, epochs: int) -> float:
    """Return the strength of an epoch that rises evenly to its full value in the last one: strength·(e + 1)/E.

    Args:
        strength: The full strength.
        epoch: The epoch e, counted from 0.
        epochs: All epochs E.

    Returns:
        The strength of this epoch.

    Raises:
        PicojouleError: The epoch is not one of them.

    >>> [linear(8.0, epoch, 4) for epoch in range(4)]
    [2.0, 4.0, 6.0, 8.0]
    """
    return ramp(strength, epoch, epochs)


def ramp(strength: float, update: int, updates: int, start: float = 0.0) -> float:
    """Return the strength of an update that rises evenly from `start` to its full value in the last one.

    Args:
        strength: The full strength.
        update: The update, counted from 0.
        updates: All updates.
        start: Where it begins.

    Returns:
        The strength of this update.

    Raises:
        PicojouleError: The update is not one of them.

    >>> [ramp(4.0, update, 4, start=2.0) for update in range(4)]
    [2.5, 3.0, 3.5, 4.0]
    """
    if not 0 <= update < updates:
        raise PicojouleError(f"{update} of {updates} is not a step of a schedule: count from 0 to {updates - 1}")
    return start + (strength - start) * ((update + 1) / updates)
