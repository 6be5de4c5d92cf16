"""The number of threads that PyTorch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch compute with so many threads while the block runs.

    The order of floating-point sums depends on the number of threads, so a run fixes it.

    Args:
        count: The number of threads, from 1 up.

    Yields:
        Nothing.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
