"""What the processes of one run tell each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from picojoule.runs.evaluate import summed

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def all_reduced(fabric: Fabric, *values: float) -> list[float]:
    """Σ over all processes: they must stop, or fail, after the same batch."""
    if fabric.world_size == 1:
        return list(values)
    total: list[float] = summed(fabric, torch.tensor(values, dtype=torch.float32)).tolist()
    return total
