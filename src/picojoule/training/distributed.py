"""Numbers on which the processes of one run agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from picojoule.runs.evaluate import summed

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def all_reduced(fabric: Fabric, *values: float) -> list[float]:
    """Sum numbers over all processes, so that each of them goes on with the same ones.

    Processes must stop, or fail, after the same batch: otherwise one would wait for the others for ever.

    Args:
        fabric: The processes.
        *values: The numbers of this process, as many in each.

    Returns:
        The sums, in float32 where there are several processes; the numbers themselves where there is one.
    """
    if fabric.world_size == 1:
        return list(values)
    total: list[float] = summed(fabric, torch.tensor(values, dtype=torch.float32)).tolist()
    return total
