"""A moment of training: everything that it takes to go on from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training: tensors (weights, optimiser, random numbers) and a few numbers beside them."""

    epoch: int
    """The epoch under way, or the next one."""
    batch: int
    """Batches of it that are done."""
    tensors: dict[str, Tensor]
    notes: dict[str, Any]
