"""The way back of a guarded run whose strength was too much: the last good weights, and a lower strength."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

_PATIENCE = 2
"""Epochs in a row in which a layer is silent, or what was learned is lost."""
_GOOD = 0.5
LOWER = 0.25
"""What a fixed strength is multiplied by on the way back."""
LOWER_IN_BUDGET = 0.5
"""What that of a budget is multiplied by, which its law corrects further."""


class Recovery:
    """The last good network of a guarded run, and the share of a fixed strength that is charged.

    Attributes:
        factor: What a fixed strength is multiplied by: 1, and a quarter of it after each way back.
        weights: Those of the last good network; empty before the first one.

    >>> recovery = Recovery()
    >>> [recovery.after_epoch(silent, 1.0, {}) for silent in ([], ["spike2"], ["spike2"])]
    [False, False, True]
    >>> recovery.factor
    0.25
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.weights: dict[str, Tensor] = {}
        self._bad, self._was_good = 0, False

    def after_epoch(self, silent: Sequence[str], share: float, weights: Mapping[str, Tensor]) -> bool:
        """Take note of the network after an epoch.

        Args:
            silent: Its layers without a spike on the validation images.
            share: The share of the charge that the guard lets it bear: 0 has lost what it had learned, half is good.
            weights: Its weights, which are copied if it is good.

        Returns:
            Whether to go back: to `weights`, with the lower strength of `factor`.
        """
        if not silent and share > 0:
            self._bad = 0
            if share >= _GOOD:
                self.weights = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}
                self._was_good = True
            return False
        self._bad += 1
        if self._bad < _PATIENCE or not self._was_good:
            return False
        self._bad, self.factor = 0, self.factor * LOWER
        return True

    @property
    def to_be_taken(self) -> bool:
        """Whether the last good network is better than the one after the latest epoch, which lost something."""
        return self._was_good and self._bad > 0

    def state_dict(self) -> dict[str, Any]:
        """Return all but the weights, in plain types, as a checkpoint stores it."""
        return {"factor": self.factor, "bad": self._bad, "was_good": self._was_good}

    def load_state_dict(self, state: Mapping[str, Any], weights: dict[str, Tensor]) -> None:
        """Go on from a stored state.

        Args:
            state: What `state_dict` gave.
            weights: Those of the last good network then.
        """
        self.factor, self._bad, self._was_good = state["factor"], state["bad"], state["was_good"]
        self.weights = weights
