"""What the processes of one run tell each other: sums, states, and the measurement that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed
from torch import Tensor, nn

from picojoule.data import Data
from picojoule.energy.meter import EnergyMeter
from picojoule.recipe import Recipe
from picojoule.runs.evaluate import Evaluation, Tally, tally
from picojoule.runs.result import Split
from picojoule.synapses.table import Synapses

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


def summed(fabric: Fabric, values: Tensor) -> Tensor:
    """Sum a tensor over all processes."""
    total: Tensor = fabric.all_reduce(values.to(fabric.device), reduce_op="sum")  # type: ignore[assignment]
    return total.cpu()


def gathered(fabric: Fabric, state: Tensor) -> Tensor:
    """Gather a tensor from all processes: one row per process."""
    if fabric.world_size == 1:
        return state[None]
    rows = [torch.empty_like(state, device=fabric.device) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(rows, state.to(fabric.device))
    return torch.stack(rows).cpu()


def measure(
    fabric: Fabric, model: nn.Module, recipe: Recipe, data: Data, split: Split, synapses: Synapses | None
) -> Evaluation:
    """Measure a network on a whole split, each process on its share of the images.

    Args:
        fabric: The processes.
        model: The network, the same in all of them.
        recipe: Its recipe.
        data: The images.
        split: Which of them: "test" or "validation".
        synapses: Its synapses; None for a network without spikes.

    Returns:
        Accuracy, loss and energy over the whole split, the same in every process.
    """
    share = tally(model, recipe, data, split, synapses, fabric.global_rank, fabric.world_size)
    whole = _merged(fabric, share) if fabric.world_size > 1 else share
    return whole.evaluation(model, recipe, split)


def _merged(fabric: Fabric, share: Tally) -> Tally:
    """Merge the tallies of all processes; one that got no batch adds nothing."""
    counts = gathered(fabric, torch.tensor([share.samples, share.right]))
    losses = gathered(fabric, torch.tensor([share.loss], dtype=torch.float64))
    states = (
        {key: gathered(fabric, value) for key, value in share.meter.state_dict().items()}
        if share.meter is not None
        else {}
    )
    whole = Tally(_emptied(share.meter))
    for process in range(fabric.world_size):
        meter = _emptied(share.meter)
        if meter is not None:
            meter.load_state_dict({key: values[process] for key, values in states.items()})
        samples, right = counts[process].tolist()
        whole.merge(Tally(meter, samples, right, losses[process].item()))
    return whole


def _emptied(meter: EnergyMeter | None) -> EnergyMeter | None:
    return EnergyMeter(meter.synapses, meter.prices) if meter is not None else None
