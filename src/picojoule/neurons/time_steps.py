"""T time steps folded into the batch, [T·B, …], the first B rows being the first step.

Convolutions, norms, pools and reshapes then need to know nothing of time: only the neurons do (`lif`), and the two
ends of the network. In: the image is given in each step as a constant current. Out: the logits are averaged over the
steps where the network was trained so, and summed where it was converted, whose steps share one image's current.
"""

from __future__ import annotations

import torch
from torch import Tensor

from picojoule.errors import PicojouleError


def check_steps(steps: object) -> None:
    """Refuse what is not a number of time steps.

    Args:
        steps: What was given.

    Raises:
        PicojouleError: If it is not a whole number from 1 up.
    """
    if type(steps) is not int or steps < 1:
        raise PicojouleError(f"steps={steps!r} is not a valid number of time steps: give a whole number from 1 up")


def present(images: Tensor, steps: int, *, shared: bool = False) -> Tensor:
    """Repeat images for every time step, [B, …] to [T·B, …].

    Args:
        images: The images, a constant current in each step.
        steps: The number of time steps, T.
        shared: Whether each step gets a T-th of the images, so that all steps together get them once.

    Returns:
        The input of the network.

    >>> present(torch.tensor([[1.0], [2.0]]), steps=2).flatten()
    tensor([1., 2., 1., 2.])
    """
    images = images / steps if shared and steps > 1 else images
    return torch.cat([images] * steps) if steps > 1 else images  # `repeat` would lose the memory layout


def readout(outputs: Tensor, steps: int, *, summed: bool = False) -> Tensor:
    """Average what the network gives over the time steps, [T·B, …] to [B, …].

    Args:
        outputs: What the network gives in all steps.
        steps: The number of time steps, T.
        summed: Whether to take the sum instead of the mean.

    Returns:
        One output for each sample.

    Raises:
        PicojouleError: If the rows do not divide into the steps.

    >>> readout(torch.tensor([1.0, 2.0, 3.0, 6.0]), steps=2)
    tensor([2., 4.])
    """
    if steps == 1:
        return outputs
    by_step = unfold(outputs, steps)
    return by_step.sum(0) if summed else by_step.mean(0)


def logits_of(outputs: object, samples: int, classes: int = 1) -> Tensor:
    """Take the logits [B, classes] from what a network returned; [T, B, classes] is averaged over its time steps.

    Args:
        outputs: What the network returned.
        samples: The batch size B.
        classes: How many the data have, at least.

    Returns:
        One row per sample.

    Raises:
        PicojouleError: If it is something else.

    >>> logits_of(torch.tensor([[[1.0, 3.0]], [[2.0, 5.0]]]), samples=1)
    tensor([[1.5000, 4.0000]])
    """
    if not isinstance(outputs, Tensor):
        raise PicojouleError(
            f"the network returned {type(outputs).__name__}: let it return the logits alone, [B, classes], or "
            "[T, B, classes] to be averaged over time"
        )
    logits = outputs.mean(0) if outputs.dim() == 3 else outputs
    if logits.dim() != 2 or len(logits) != samples:
        raise PicojouleError(
            f"the network returned {tuple(outputs.shape)} for {samples} samples: let it return the logits, "
            "[B, classes] or [T, B, classes]"
        )
    if logits.shape[1] < classes:
        raise PicojouleError(
            f"the network has {logits.shape[1]} outputs and the data have {classes} classes: let its last layer have "
            "one for each, as the argument `classes` of its factory says"
        )
    return logits


def as_batch(samples: Tensor) -> Tensor:
    """Lay a batch of images out in memory as convolutions like it; vectors and frames stay as they are.

    Args:
        samples: [B, C, H, W], or anything else.

    Returns:
        The same values.

    >>> as_batch(torch.zeros(2, 3, 4, 4)).stride()
    (48, 1, 12, 3)
    """
    return samples.contiguous(memory_format=torch.channels_last) if samples.dim() == 4 else samples


def unfold(rows: Tensor, steps: int) -> Tensor:
    """Give the time steps an axis of their own, [T·B, …] to [T, B, …], without a copy.

    Args:
        rows: All steps in one tensor.
        steps: The number of time steps, T.

    Returns:
        A view of the rows.

    Raises:
        PicojouleError: If the rows do not divide into the steps.

    >>> unfold(torch.zeros(6, 5), steps=3).shape
    torch.Size([3, 2, 5])
    """
    count = rows.shape[0]  # `len` would make a constant of a batch size that an export leaves open
    if count % steps:
        raise PicojouleError(
            f"{count} rows do not divide into {steps} time steps: give all steps of the batch in one tensor, [T·B, …]"
        )
    by_step: Tensor = rows.unflatten(0, (steps, count // steps))
    return by_step
