"""Limits on accuracy and energy, by which a trained network is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from picojoule.energy.units import parse_joules
from picojoule.errors import PicojouleError


@dataclass(frozen=True)
class Limits:
    """The limits that a network must satisfy; None is no limit.

    Attributes:
        max_loss: Accuracy that may be lost against the baseline, as a fraction.
        max_joules: Energy per image.
        max_share: Energy as a share of the baseline's.
        min_accuracy: As a fraction.

    >>> Limits(max_loss=0.01).on_accuracy, Limits(max_share=0.3).on_accuracy
    (True, False)
    """

    max_loss: float | None = None
    max_joules: float | None = None
    max_share: float | None = None
    min_accuracy: float | None = None

    @classmethod
    def read(cls, max_loss: float | None, max_energy: str | None, min_accuracy: float | None) -> Limits:
        """Read the limits as they are given on the command line.

        Args:
            max_loss: Points of accuracy that may be lost against the baseline.
            max_energy: An energy with its unit, such as "2uJ", or a share of the baseline's, such as "30%".
            min_accuracy: In percent.

        Returns:
            The limits.

        Raises:
            PicojouleError: If there is none, or one is not a valid number.

        >>> Limits.read(None, "2uJ", 88)
        Limits(max_loss=None, max_joules=2e-06, max_share=None, min_accuracy=0.88)
        """
        if max_loss is None and max_energy is None and min_accuracy is None:
            raise PicojouleError("nothing to choose by: give --max-loss, --max-energy or --min-accuracy")
        if max_loss is not None and not 0 <= max_loss <= 100:
            raise PicojouleError(f"--max-loss {max_loss:g} is not a valid number of points: take one from 0 to 100")
        if min_accuracy is not None and not 1 < min_accuracy <= 100:
            raise PicojouleError(
                f"--min-accuracy {min_accuracy:g} is not a valid percentage: take one above 1 and up to 100"
            )
        joules = share = None
        if max_energy is not None and max_energy.strip().endswith("%"):
            share = _percentage(max_energy)
        elif max_energy is not None:
            joules = parse_joules(max_energy)
        return cls(
            None if max_loss is None else max_loss / 100,
            joules,
            share,
            None if min_accuracy is None else min_accuracy / 100,
        )

    @property
    def on_accuracy(self) -> bool:
        """Whether accuracy is limited, so that the cheapest network is wanted."""
        return self.max_loss is not None or self.min_accuracy is not None


def _percentage(text: str) -> float:
    """Read "30%" as 0.3."""
    try:
        share = float(text.strip()[:-1]) / 100
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share > 0):
        raise PicojouleError(
            f"--max-energy {text!r} is not a valid percentage: write a number above 0 and %, as in '30%'"
        )
    return share
