"""Batch norm for a budget: a look at the network that leaves no trace, and running averages that become longer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def by_batch_statistics(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, but each batch norm goes by the batch before it and its running averages stay as they are.

    A batch norm that the model itself keeps in evaluation mode (an overridden `train`) stays there. Ends in training
    mode.

    >>> import torch
    >>> norm, x = nn.BatchNorm1d(2), torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    >>> with by_batch_statistics(norm):
    ...     norm(x).mean(0).tolist()
    [0.0, 0.0]
    >>> norm.running_mean.tolist(), norm.num_batches_tracked.item(), norm.training, norm.track_running_stats
    ([0.0, 0.0], 0, True, True)
    """
    model.train()
    tracking = [(norm, norm.track_running_stats) for norm in _norms(model) if norm.training]
    model.eval()
    try:
        for norm, _ in tracking:
            norm.training, norm.track_running_stats = True, False
        yield
    finally:
        for norm, tracks in tracking:
            norm.track_running_stats = tracks
        model.train()


@contextlib.contextmanager
def slower_averages(model: nn.Module, factor: float, batch: int) -> Iterator[None]:
    """Each batch norm's momentum times a factor, but no less than 1/(batch + 1): an average that begins with batch 0.

    So what lies before batch 0 is forgotten, however slow the average. A norm whose averages are cumulative (a momentum
    of None) or stand still (0) stays as it is.

    >>> norm = nn.BatchNorm1d(2, momentum=0.1)
    >>> for batch in (0, 1, 99):
    ...     with slower_averages(norm, 0.5, batch):
    ...         norm.momentum
    1.0
    0.5
    0.05
    >>> norm.momentum
    0.1
    """
    momenta = [(norm, norm.momentum) for norm in _norms(model) if norm.momentum]
    try:
        for norm, momentum in momenta:
            norm.momentum = max(momentum * factor, 1 / (batch + 1))
        yield
    finally:
        for norm, momentum in momenta:
            norm.momentum = momentum


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]
