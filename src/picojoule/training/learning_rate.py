"""The learning-rate schedule: a cosine from the recipe's learning rate down to nearly 0, epoch by epoch."""

from __future__ import annotations

import math


def cosine_share(epoch: int, epochs: int) -> float:
    """Return the learning rate of an epoch as a share of the first one's: ½·(1 + cos(πe/E)).

    Args:
        epoch: The epoch e, counted from 0.
        epochs: All epochs E of the run.

    Returns:
        The share, from 1 in the first epoch down to nearly 0 in the last.

    >>> [round(cosine_share(epoch, 4), 3) for epoch in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))
