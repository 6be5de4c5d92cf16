"""T time steps folded into the batch, [T·B, …], the first B rows being the first step.

Convolutions, norms, pools and reshapes then need to know nothing of time: only the neurons do (`lif`), and the two
ends of the network. In: the image is given in each step as a constant current. Out: the logits are averaged over the
steps where the network was trained so, and summed where it was converted, whose steps share one image's charge.
"""

from __future__ import annotations

import torch
from torch import Tensor

from picojoule.errors import PicojouleError


def check_steps(steps: object) -> None:
    """Refuse what is not a number of time steps."""
    if type(steps) is not int or steps < 1:
        raise PicojouleError(f"steps={steps!r} is no number of time steps: give a whole number from 1 up")


def present(images: Tensor, steps: int, *, shared: bool = False) -> Tensor:
    """[B, …] to [T·B, …]: the images in every step, or with `shared` a T-th of them.

    >>> present(torch.tensor([[1.0], [2.0]]), steps=2).flatten()
    tensor([1., 2., 1., 2.])
    """
    images = images / steps if shared and steps > 1 else images
    return torch.cat([images] * steps) if steps > 1 else images  # `repeat` would lose the memory layout


def readout(outputs: Tensor, steps: int, *, summed: bool = False) -> Tensor:
    """[T·B, …] to [B, …]: the mean over the steps, or with `summed` the sum.

    >>> readout(torch.tensor([1.0, 2.0, 3.0, 6.0]), steps=2)
    tensor([2., 4.])
    """
    if steps == 1:
        return outputs
    by_step = unfold(outputs, steps)
    return by_step.sum(0) if summed else by_step.mean(0)


def unfold(rows: Tensor, steps: int) -> Tensor:
    """[T·B, …] seen as [T, B, …]."""
    count = rows.shape[0]  # `len` would make a constant of a batch size that an export leaves open
    if count % steps:
        raise PicojouleError(
            f"{count} rows do not divide into {steps} time steps: give all steps of the batch in one tensor, [T·B, …]"
        )
    by_step: Tensor = rows.unflatten(0, (steps, count // steps))
    return by_step
