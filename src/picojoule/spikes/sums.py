"""Sums of spikes over a batch, without rounding."""

from __future__ import annotations

import torch
from torch import Tensor


def summed_over_batch(spikes: Tensor, *, binary: bool) -> Tensor:
    """Σ_b s_b without rounding: float32 for 0 and 1 (exact below 2^24 samples), else float64 where the device has it.

    A product with ones runs at the speed of memory where PyTorch's own sum over the first axis does not. It is kept to
    0 and 1, which no setting of the product's precision (TF32, bfloat16) can round, and to so few samples at a time
    that their sums are whole numbers of the spikes' own kind.
    """
    batch, spikes = len(spikes), spikes.detach()
    if not binary:
        return spikes.sum(0, dtype=precise(spikes.device))
    strides = spikes.stride()
    order = sorted(range(1, spikes.dim()), key=lambda axis: -strides[axis])  # axes as they lie in memory
    laid_out = spikes.permute(0, *order)
    whole = _WHOLE.get(spikes.dtype)
    if not (batch and whole and laid_out.is_contiguous()):
        return spikes.sum(0, dtype=torch.float32)
    with torch.autocast(spikes.device.type, enabled=False):  # it would round the sums to bfloat16
        ones = torch.ones(batch, dtype=spikes.dtype, device=spikes.device)
        parts = [ones[: len(part)] @ part for part in laid_out.view(batch, -1).split(whole)]
    sums = parts[0].float() if len(parts) == 1 else torch.stack(parts).sum(0, dtype=torch.float32)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return sums.view(laid_out.shape[1:]).permute(inverse)


_WHOLE = {torch.float32: 1 << 24, torch.bfloat16: 1 << 8}
"""Up to which every whole number has its place."""


def precise(device: torch.device) -> torch.dtype:
    """float64, but for the one kind of device that has none."""
    return torch.float32 if device.type == "mps" else torch.float64
