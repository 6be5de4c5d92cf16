"""The learning-rate schedule: a cosine from the recipe's learning rate down to 0, epoch by epoch or batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


def cosine_share(done: float, epochs: int) -> float:
    """Return the learning rate after so many epochs as a share of the first one: ½·(1 + cos(πe/E)).

    Args:
        done: The epochs e that are done; a fraction where the learning rate falls within an epoch too.
        epochs: All epochs E of the run.

    Returns:
        The share, from 1 at the beginning down to 0 at the end.

    >>> [round(cosine_share(epoch, 4), 3) for epoch in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1 + math.cos(math.pi * done / epochs))


@dataclass(frozen=True)
class Annealing:
    """How the learning rate of a run falls.

    Attributes:
        epochs: All epochs of the run.
        batches: Batches per epoch.
        by: Whether it is the same in all batches of an epoch, or falls from batch to batch.
    """

    epochs: int
    batches: int
    by: Literal["epochs", "batches"] = "epochs"

    def share(self, epoch: int, batch: int) -> float:
        """Return the learning rate of a batch as a share of the first one.

        Args:
            epoch: The epoch, counted from 0.
            batch: The batch in it, counted from 0.

        Returns:
            The share.

        >>> [round(Annealing(2, 2, "batches").share(epoch, batch), 3) for epoch in (0, 1) for batch in (0, 1)]
        [1.0, 0.854, 0.5, 0.146]
        """
        return cosine_share(epoch if self.by == "epochs" else epoch + batch / self.batches, self.epochs)

    def mean(self, epoch: int) -> float:
        """Return the mean of the shares of an epoch's batches.

        Args:
            epoch: The epoch, counted from 0.

        Returns:
            The mean.
        """
        return self.share(epoch, 0) if self.by == "epochs" else self.sum(epoch, self.batches) / self.batches

    def sum(self, epoch: int, batches: int) -> float:
        """Return the sum of the shares of an epoch's first batches.

        Args:
            epoch: The epoch, counted from 0.
            batches: How many of its batches.

        Returns:
            The sum: (n + sin(nδ/2)/sin(δ/2)·cos(θ + (n − 1)δ/2))/2 for n batches from the angle θ on, each δ further.

        >>> falling = Annealing(2, 3, "batches")
        >>> math.isclose(falling.sum(1, 3), sum(falling.share(1, batch) for batch in range(3)))
        True
        """
        if self.by == "epochs":
            return self.share(epoch, 0) * batches
        step = math.pi / (self.epochs * self.batches)
        middle = math.pi * epoch / self.epochs + (batches - 1) * step / 2
        return 0.5 * (batches + math.sin(batches * step / 2) / math.sin(step / 2) * math.cos(middle))
