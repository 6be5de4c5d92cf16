"""Sums of spikes over a batch, without rounding."""

from __future__ import annotations

import torch
from torch import Tensor


def summed_over_batch(spikes: Tensor, *, binary: bool) -> Tensor:
    """Sum spikes over the batch, Σ_b s_b, without rounding.

    A product with ones runs at the speed of memory where PyTorch's own sum over the first axis does not. It is kept to
    0 and 1, which no setting of the product's precision (TF32, bfloat16) can round, and to so few samples at a time
    that their sums are whole numbers of the spikes' own kind.

    Args:
        spikes: [B, …].
        binary: Whether they are nothing but 0 and 1.

    Returns:
        The sums […]: float32 if binary (exact below 2²⁴ samples), else float64 where the device has it.

    >>> summed_over_batch(torch.tensor([[0.0, 1.0], [1.0, 1.0]]), binary=True)
    tensor([1., 2.])
    """
    batch, spikes = len(spikes), spikes.detach()
    if not binary:
        return spikes.sum(0, dtype=precise(spikes.device))
    strides = spikes.stride()
    order = sorted(range(1, spikes.dim()), key=lambda axis: -strides[axis])  # axes as they lie in memory
    laid_out = spikes.permute(0, *order)
    limit = _EXACT_UP_TO.get(spikes.dtype)
    if not (batch and limit and laid_out.is_contiguous()):
        return spikes.sum(0, dtype=torch.float32)
    with torch.autocast(spikes.device.type, enabled=False):  # it would round the sums to bfloat16
        ones = torch.ones(batch, dtype=spikes.dtype, device=spikes.device)
        parts = [ones[: len(part)] @ part for part in laid_out.view(batch, -1).split(limit)]
    sums = parts[0].float() if len(parts) == 1 else torch.stack(parts).sum(0, dtype=torch.float32)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return sums.view(laid_out.shape[1:]).permute(inverse)


_EXACT_UP_TO = {torch.float32: 1 << 24, torch.bfloat16: 1 << 8}
"""Up to here a kind of number holds every whole number: 2 to the number of its significant bits."""


def precise(device: torch.device) -> torch.dtype:
    """Return the most precise dtype of a device.

    Args:
        device: Any.

    Returns:
        float64, or float32 for Apple's MPS, which has nothing better.
    """
    return torch.float32 if device.type == "mps" else torch.float64
