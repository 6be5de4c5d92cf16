"""Changes in place of what the backward pass needs, where autograd cannot see them: it looks only at what it keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from picojoule.kernels.torch_private import version


class Versions:
    """The version of a tensor's memory when it was kept, for autograd checks it only where nothing is packed.

    Args:
        tensor: What is kept, as it is or in another form.
    """

    def __init__(self, tensor: Tensor) -> None:
        # Emptied, it still shares the counter of in-place changes, and holds no memory.
        self._counter = tensor.detach()
        self._counter.data = torch.empty(0, dtype=tensor.dtype)
        self._size, self._before = list(tensor.shape), version(tensor)

    def check(self) -> None:
        """Raise what autograd raises if the memory was changed since.

        Raises:
            RuntimeError: If it was.
        """
        now = version(self._counter)
        if now != self._before:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a "
                f"tensor of shape {self._size} is at version {now}; expected version {self._before} instead"
            )
