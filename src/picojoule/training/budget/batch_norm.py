"""Batch norm for a budget: a look at the network that leaves no trace, and averages of the network as it is now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from picojoule.kernels.torch_private import BatchNorm


@contextlib.contextmanager
def by_batch_statistics(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, but each batch norm goes by the batch before it and its running averages stay as they are.

    A batch norm that the model itself keeps in evaluation mode (an overridden `train`) stays there. Ends in training
    mode.

    >>> norm, x = nn.BatchNorm1d(2), torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    >>> with by_batch_statistics(norm):
    ...     norm(x).mean(0).tolist()
    [0.0, 0.0]
    >>> norm.running_mean.tolist(), norm.num_batches_tracked.item(), norm.training, norm.track_running_stats
    ([0.0, 0.0], 0, True, True)
    """
    with _evaluating_but_for_norms(model) as norms:
        tracking = [(norm, norm.track_running_stats) for norm in norms]
        try:
            for norm, _ in tracking:
                norm.track_running_stats = False
            yield
        finally:
            for norm, tracks in tracking:
                norm.track_running_stats = tracks


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
    with _evaluating_but_for_norms(model) as norms:
        followed = [
            (norm, norm.momentum, count, count.clone())
            for norm in norms
            if norm.momentum != 0 and (count := norm.num_batches_tracked) is not None
        ]
        try:
            for norm, *_ in followed:
                norm.reset_running_stats()
                norm.momentum = None  # cumulative
            for batch in batches:
                model(batch)
        finally:
            for norm, momentum, count, before in followed:
                norm.momentum = momentum
                count.copy_(before)


@contextlib.contextmanager
def _evaluating_but_for_norms(model: nn.Module) -> Iterator[list[BatchNorm]]:
    model.train()
    norms = [module for module in model.modules() if isinstance(module, BatchNorm) and module.training]
    model.eval()
    try:
        for norm in norms:
            norm.training = True
        yield norms
    finally:
        model.train()
