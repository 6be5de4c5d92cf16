"""RandAugment (Cubuk et al., 2020) by kornia: `n` of fifteen operations on each image, at magnitude `m` of 30.

A batch is cut into ten groups, and each group gets an operation sequence of its own; signs and the like are drawn for
each image. kornia's cost is mostly per call (about 1 ms on ten small images), so the groups of several batches that
drew the same operation share one call: the same distribution, at two fifths of the time.

Some of kornia's operations refuse grey images, so these are expanded to three channels and one is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from picojoule.errors import PicojouleError

GROUPS = 10


class RandAugment:
    """Random augmentation of batches of float images [B, C, H, W] in [0, 1], by kornia.

    The draws depend on `key` alone: torch's global random state is neither used nor changed.

    Args:
        n: How many different operations each image goes through.
        m: Their magnitude, between 0 and 30, both excluded.
        groups: Groups of a batch that each get an operation sequence of their own.

    Raises:
        PicojouleError: A number is out of its range.

    >>> augment = RandAugment()
    >>> (changed,) = augment([torch.rand(20, 1, 32, 32)], key=(0, 0, 0))
    >>> changed.shape
    torch.Size([20, 1, 32, 32])
    """

    def __init__(self, n: int = 2, m: int = 9, groups: int = GROUPS) -> None:
        self._operations = _operations(m)
        if not 1 <= n <= len(self._operations):
            raise PicojouleError(
                f"randaugment_n = {n} is not possible: take 1 to {len(self._operations)} different operations"
            )
        if groups < 1:
            raise PicojouleError(f"groups = {groups} is not possible: take at least 1")
        self._n = n
        self._groups = groups

    @torch.no_grad()
    def __call__(self, batches: Sequence[Tensor], key: Sequence[int]) -> list[Tensor]:
        """Augment several batches at once, which share the calls of kornia.

        Args:
            batches: Float images [B, C, H, W] in [0, 1].
            key: One or several non-negative integers, such as seed, epoch and position.

        Returns:
            The batches in the same order and shapes.
        """
        sizes = [len(batch) for batch in batches]
        images = torch.cat(list(batches))
        channels = images.shape[1]
        images = images.expand(-1, 3, -1, -1).contiguous() if channels == 1 else images
        seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
        # kornia draws from the global CPU generator; seeding just that one leaves the generators of accelerators alone.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            sequences = self._sequences(sizes)
            for step in range(self._n):
                for number in sequences[:, step].unique().tolist():
                    where = (sequences[:, step] == number).nonzero().squeeze(1).to(images.device)
                    images.index_copy_(0, where, self._operations[number](images.index_select(0, where)))
        # Interpolation overshoots by a rounding error.
        return list(images[:, :channels].clamp(0, 1).split(sizes))

    def _sequences(self, sizes: Sequence[int]) -> Tensor:
        """Draw for each image the numbers of its operations in order: [images, n], equal within a group."""
        rows = []
        for size in sizes:
            drawn = torch.stack([torch.randperm(len(self._operations))[: self._n] for _ in range(self._groups)])
            rows.append(drawn[torch.arange(size) * self._groups // size])
        return torch.cat(rows)


def _operations(m: int) -> list[Callable[[Tensor], Tensor]]:
    """Build kornia's RandAugment once for each operation of its default policy, so that we say which one is applied."""
    from kornia.augmentation.auto import RandAugment as KorniaRandAugment
    from kornia.augmentation.auto.rand_augment.rand_augment import default_policy

    if not 0 < m < 30:
        raise PicojouleError(f"randaugment_m = {m} is not possible: take a magnitude between 0 and 30, both excluded")
    return [KorniaRandAugment(1, m, [operation], transformation_matrix_mode="skip") for operation in default_policy]
