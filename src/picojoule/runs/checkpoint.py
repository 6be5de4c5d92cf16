"""A checkpoint in memory: everything that it takes to go on from a moment of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training: tensors (weights, optimiser, random numbers) and a few numbers beside them."""

    epoch: int
    """The epoch under way, or the next one, counted from 0."""
    batch: int
    """Batches of it that are done."""
    tensors: dict[str, Tensor]
    """Weights, the optimiser's state and the states of random number generators, by name."""
    notes: dict[str, Any]
    """Plain values, as in JSON."""
