"""Batches of normalised images, made on the device, the same for the same seed, epoch and position.

**Order.** With a seed, epoch e is a permutation drawn from (seed, e); without one, images come in order (evaluation).
Starting at batch k gives exactly what a whole epoch has from its batch k on, so a run can resume in the middle.

**Last batch.** Evaluation keeps every image. Training keeps a short last batch unless some process would get fewer than
two images of it, which batch norm cannot use; then it is dropped.

**Several processes.** `batch_size` is that of all processes together; process r of R takes images r, r + R, … of each
batch. In training every process must get equally many, since DDP averages over processes: R divides `batch_size`, and a
short last batch is cut to a multiple of R. In evaluation a process for which nothing is left of the last batch gets one
batch fewer.

**Augmentation** works on `POOL` batches at a time, drawn from (seed, epoch, pool), before they are shared out: the
batches of all processes together are those of a single one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from picojoule.data.images import Images, Normalization
from picojoule.data.splits import shuffled
from picojoule.errors import PicojouleError

POOL = 10
"""Batches augmented at once: kornia's cost is mostly per call, and calls are shared within a pool."""


class Augment(Protocol):
    """A random change of float images in [0, 1] that draws from `key` alone, such as `RandAugment`."""

    def __call__(self, batches: Sequence[Tensor], key: Sequence[int]) -> list[Tensor]:
        """Change several batches at once."""


@dataclass(frozen=True)
class Batches:
    """The batches of one split; iterate over it for evaluation, or over `epoch(e, start)` for training.

    Attributes:
        part: The images of the split.
        batch_size: Images of one batch, over all processes together.
        normalization: What is applied to the pixels; None leaves them in [0, 1].
        seed: The seed of the order (and of the augmentation); None is evaluation, in order and complete.
        augment: The augmentation of training images.
        device: Where the batches are made.
        rank: The number of this process.
        world_size: The number of processes.

    >>> from picojoule.data import load
    >>> digits = load("digits")
    >>> train = Batches(digits.train, 100, normalization=digits.normalization, seed=0)
    >>> images, labels = next(train.epoch(0))
    >>> images.shape, images.dtype, len(train)
    (torch.Size([100, 1, 32, 32]), torch.float32, 13)
    """

    part: Images
    batch_size: int
    normalization: Normalization | None = None
    seed: int | None = None
    augment: Augment | None = None
    device: torch.device | str = "cpu"
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not 0 <= self.rank < self.world_size:
            raise PicojouleError(
                f"batch_size = {self.batch_size}, rank = {self.rank} of {self.world_size} is not possible: "
                f"take a batch size of at least 1 and a rank below the number of processes"
            )
        if self.seed is None:
            if self.augment is not None:
                raise PicojouleError("augmentation is random and needs a seed: give one, or leave the augmentation out")
            return
        if self.seed < 0:
            raise PicojouleError(f"seed = {self.seed} is negative: take 0 or more")
        if self.batch_size % self.world_size:
            raise PicojouleError(
                f"a batch of {self.batch_size} cannot be shared equally by {self.world_size} processes: "
                f"take a multiple of {self.world_size}"
            )
        if not len(self):
            raise PicojouleError(
                f"{len(self.part)} training images make no batch of {self.batch_size} in which each of "
                f"{self.world_size} processes has at least two: take more images or a larger batch"
            )

    def __len__(self) -> int:
        """Count the batches that this process gets in an epoch."""
        whole, left = divmod(len(self.part), self.batch_size)
        return whole * (self._share(self.batch_size) > 0) + (self._share(left) > 0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the batches of one epoch.

        Args:
            epoch: The number of the epoch, which with the seed decides the order.
            start: The number of the first batch, to resume in the middle of an epoch.

        Yields:
            Images [B, C, H, W] as float32 and labels [B] as int64; frames over time are [T, B, C, H, W].
        """
        order = self._order(epoch)
        device = torch.device(self.device)
        pool = POOL if self.augment is not None else 1
        for first in range(start - start % pool, len(self), pool):
            # Whole batches, also the last if it is to be cut or dropped: the draws must not depend on the processes.
            chosen = order[first * self.batch_size : (first + pool) * self.batch_size].split(self.batch_size)
            images = [as_floats(self.part.images[index].to(device)) for index in chosen]
            if self.augment is not None and self.seed is not None:
                images = self.augment(images, (self.seed, epoch, first // pool))
            for number, (index, pixels) in enumerate(zip(chosen, images, strict=True), start=first):
                if start <= number < len(self):
                    mine = pixels[self._shard(len(pixels))].contiguous()
                    labels = self.part.labels[index[self._shard(len(index))]].to(device)
                    yield as_input(mine, self.normalization), labels

    def _order(self, epoch: int) -> Tensor:
        count = len(self.part)
        order = torch.arange(count) if self.seed is None else torch.from_numpy(shuffled(count, (self.seed, epoch)))
        return order.to(self.part.images.device)

    def _shard(self, count: int) -> slice:
        """Choose this process's images of a batch of `count`."""
        end = count if self.seed is None else count - count % self.world_size
        return slice(self.rank, end, self.world_size)

    def _share(self, count: int) -> int:
        """Count the images of a batch of `count` that this process works on: 0 if it goes without the batch."""
        share = len(range(count)[self._shard(count)])
        return share if self.seed is None or share >= 2 else 0


def as_floats(stored: Tensor) -> Tensor:
    """Turn samples as they are stored into float32: bytes are pixels of 255, all else is taken as it is.

    Args:
        stored: Samples [N, …].

    Returns:
        Floats in the same shape.

    >>> as_floats(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return stored.float().div_(255) if stored.dtype == torch.uint8 else stored.float()


def as_input(samples: Tensor, normalization: Normalization | None) -> Tensor:
    """Turn float samples into a network's input: normalised, and with time, if there is any, as the first axis.

    Args:
        samples: [B, D], [B, C, H, W] or [B, T, C, H, W].
        normalization: None leaves the values as they are.

    Returns:
        [B, D], [B, C, H, W] or [T, B, C, H, W].

    >>> as_input(torch.zeros(2, 5, 1, 8, 8), None).shape
    torch.Size([5, 2, 1, 8, 8])
    """
    values = samples if normalization is None else normalization(samples)
    return values.transpose(0, 1).contiguous() if values.dim() == 5 else values
