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
