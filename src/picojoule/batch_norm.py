"""Batch norm for a budget: averages of the network as it is now."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def settle_averages(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Make each batch norm's running averages those over these batches, as they are now and without dropout.

    Averages that follow the training are those of networks that have been, under dropout, and noisy where batches are
    small. Those that the model keeps still (a momentum of 0, or an overridden `train`) stay as they are. Ends in
    training mode.

    >>> norm = nn.BatchNorm1d(1)
    >>> settle_averages(norm, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
    >>> norm.running_mean.item(), norm.running_var.item(), norm.momentum, norm.num_batches_tracked.item()
    (4.0, 2.0, 0.1, 0)
    """
    model.train()
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    followed = [
        (norm, norm.momentum, count, count.clone())
        for norm in norms
        if norm.momentum != 0 and (count := norm.num_batches_tracked) is not None
    ]
    model.eval()
    try:
        for norm, *_ in followed:
            norm.reset_running_stats()
            norm.training, norm.momentum = True, None  # cumulative
        for batch in batches:
            model(batch)
    finally:
        for norm, momentum, count, before in followed:
            norm.momentum = momentum
            count.copy_(before)
        model.train()
