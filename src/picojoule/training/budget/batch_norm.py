"""Batch-norm statistics for a budget: a look at the network that leaves no trace, and running averages as of now."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor, nn

from picojoule.kernels.torch_private import BatchNorm


@contextlib.contextmanager
def by_batch_statistics(model: nn.Module, frozen: Collection[nn.Module] = ()) -> Iterator[None]:
    """Put a network into evaluation mode in which batch norms use the batch's statistics and keep their averages.

    A batch norm that the model itself keeps in evaluation mode (an overridden `train`) stays there. The network is in
    training mode afterwards.

    Args:
        model: The network.
        frozen: Batch norms that stay in evaluation mode all the same.

    Yields:
        Nothing; the mode lasts as long as the block.

    >>> norm, x = nn.BatchNorm1d(2), torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    >>> with by_batch_statistics(norm):
    ...     norm(x).mean(0).tolist()
    [0.0, 0.0]
    >>> norm.running_mean.tolist(), norm.num_batches_tracked.item(), norm.training, norm.track_running_stats
    ([0.0, 0.0], 0, True, True)
    """
    with _evaluation_except_batch_norms(model, frozen) as norms:
        tracking = [(norm, norm.track_running_stats) for norm in norms]
        try:
            for norm, _ in tracking:
                norm.track_running_stats = False
            yield
        finally:
            for norm, tracks in tracking:
                norm.track_running_stats = tracks


@torch.no_grad()
def recompute_running_averages(model: nn.Module, batches: Iterable[Tensor], frozen: Collection[nn.Module] = ()) -> None:
    """Replace the running averages of batch norms by those over given batches, for the weights as they are now.

    Averages that follow the training are those of earlier weights, under dropout, and noisy where batches are small.
    Those that the model does not update (a momentum of 0, or an overridden `train`) stay as they are. The network is
    in training mode afterwards.

    Args:
        model: The network.
        batches: Images, batch by batch; each batch has the same weight.
        frozen: Batch norms that stay as they are.

    >>> norm = nn.BatchNorm1d(1)
    >>> recompute_running_averages(norm, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
    >>> norm.running_mean.item(), norm.running_var.item(), norm.momentum, norm.num_batches_tracked.item()
    (4.0, 2.0, 0.1, 0)
    """
    with _evaluation_except_batch_norms(model, frozen) as norms:
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
def _evaluation_except_batch_norms(model: nn.Module, frozen: Collection[nn.Module]) -> Iterator[list[BatchNorm]]:
    """Put all but those batch norms that train into evaluation mode, and yield these."""
    model.train()
    kept = set(frozen)
    norms = [m for m in model.modules() if isinstance(m, BatchNorm) and m.training and m not in kept]
    model.eval()
    try:
        for norm in norms:
            norm.training = True
        yield norms
    finally:
        model.train()
