"""The number of threads that a run computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed


@contextmanager
def threads(count: int) -> Iterator[None]:
    """The order of floating-point sums depends on the number of threads, so a run fixes it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
