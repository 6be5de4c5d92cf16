"""The choices of a run's layers between dense and events: made where the recipe allows it, kept and recorded.

Which layers skip silent inputs decides about the order of sums, and so about the last digits of the weights. A
checkpoint holds every choice, with the share that it was made by, so that a resumed run ends with the same
bits as one that was never interrupted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.event_driven.layers import choices, dense, sparse
from picojoule.recipe import Recipe

CHOICES = "kernels"
"""The name of the choices in a checkpoint: [processes, layers, numbers of a `Choice`]."""


def use_kernels(model: nn.Module, recipe: Recipe, device: torch.device) -> None:
    """Let the layers of a network skip silent inputs, unless the recipe says dense, on a CPU.

    Args:
        model: The network.
        recipe: What is trained.
        device: What it is trained on.
    """
    if recipe.training.kernels != "dense" and device.type == "cpu":
        sparse(model, measured=recipe.training.kernels == "measured")


def choices_to_tensor(model: nn.Module) -> Tensor | None:
    """Return the choices of a network's layers as a checkpoint holds them.

    Args:
        model: The network.

    Returns:
        [layers, numbers of a `Choice`] as float64; None where no layer has a choice.
    """
    numbers = [choice.to_numbers() for choice in choices(model).values()]
    return torch.tensor(numbers, dtype=torch.float64) if numbers else None


def restore_choices(model: nn.Module, kept: Tensor | None) -> None:
    """Let the layers of a network go on with the choices of a checkpoint.

    Args:
        model: The network.
        kept: What `choices_to_tensor` gave; None for a run in which no layer had a choice, and which goes on dense.

    Raises:
        PicojouleError: If they are the choices of another network.
    """
    if kept is None:
        dense(model)
        return
    layers = choices(model)
    if kept.dim() != 2 or len(kept) != len(layers):
        raise PicojouleError(
            f"the checkpoint has choices for {len(kept)} layers, but the network has {len(layers)} that choose: go on "
            "with the version of picojoule and the recipe that the run was begun with, or begin it again elsewhere"
        )
    for choice, numbers in zip(layers.values(), kept.tolist(), strict=True):
        choice.set_numbers(numbers)


def kernels_result(model: nn.Module) -> dict[str, Any]:
    """Record the choices of a network's layers for `result.json`.

    Args:
        model: The network at the end of its training.

    Returns:
        The fields of `KernelsResult`.
    """
    made = choices(model)
    layers = [
        {
            "name": name,
            "batches": choice.calls,
            "by_events": choice.event_calls,
            "break_even": choice.break_even,
        }
        for name, choice in made.items()
    ]
    mode = "dense" if not made else "measured" if any(choice.measured for choice in made.values()) else "auto"
    return {"mode": mode, "layers": layers}
