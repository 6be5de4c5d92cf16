"""A whole data set in memory: uint8 images in three splits, and the statistics that normalise them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.data import cache, datasets
from picojoule.data.datasets import DataSet, FileSet
from picojoule.data.decoders import Arrays
from picojoule.data.digits import digits_parts
from picojoule.data.splits import VALIDATION_SEED, Indices, draw_balanced, draw_stratified
from picojoule.errors import PicojouleError


@dataclass(frozen=True, eq=False)
class Images:
    """Images as uint8 [N, C, H, W] and their classes as int64 [N]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> Images:
        """The same images on a device, so that batches are gathered there."""
        return Images(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Normalization:
    """Per-channel mean and standard deviation of pixels in [0, 1]: x ↦ (x − mean)/std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Normalise float images [B, C, H, W]."""
        mean, std = (pixels.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std


@dataclass(frozen=True, eq=False)
class Data:
    """One data set, loaded.

    The normalisation is that of the whole training split, unpadded and before any `limit`, so runs on different subsets
    see the same pixels.
    """

    name: str
    source: str
    """The folder or the library it was read from."""
    classes: int
    train: Images
    validation: Images
    test: Images
    normalization: Normalization

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image, padding included."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> Data:
        """The same data on a device."""
        train, validation, test = (part.to(device) for part in (self.train, self.validation, self.test))
        return Data(self.name, self.source, self.classes, train, validation, test, self.normalization)


def load(
    name: str,
    *,
    limit: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    pad: int | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Data:
    """Load a data set from the cache, its checksums verified.

    Args:
        name: a data set of `picojoule.data.DATASETS`; `digits` needs no files.
        limit: take only a class-balanced subset of that many training images (numbers per class differ by at most one;
            larger subsets contain smaller ones).
        limit_validation, limit_test: the same for the images that are evaluated on; each split is whole unless limited.
        pad: rows and columns of black pixels (value 0, before normalisation) on each side; None is the data set's own,
            which brings 28×28 to 32×32 and leaves 32×32 alone.
        root: the cache folder, instead of the one of `cache_root`.

    >>> digits = load("digits", limit=100)
    >>> digits.train.images.shape, digits.train.labels.bincount().tolist()
    (torch.Size([100, 1, 32, 32]), [10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    >>> len(digits.validation), len(digits.test)
    (180, 360)
    """
    dataset = datasets.find(name)
    border = dataset.pad if pad is None else pad
    if isinstance(border, bool) or not isinstance(border, int) or border < 0:
        raise PicojouleError(f"pad = {border!r} is not a number of pixels; take 0 or more.")
    (images, labels), test, source = _official_parts(dataset, root)
    held_out, kept = draw_stratified(labels, dataset.splits[1], VALIDATION_SEED)
    normalization = statistics(images[kept])
    kept = kept[_subset(labels[kept], dataset, limit, "limit")]
    held_out = held_out[_subset(labels[held_out], dataset, limit_validation, "limit_validation")]
    shown = _subset(test[1], dataset, limit_test, "limit_test")
    return Data(
        name=name,
        source=source,
        classes=dataset.classes,
        train=_tensors(images[kept], labels[kept], border),
        validation=_tensors(images[held_out], labels[held_out], border),
        test=_tensors(test[0][shown], test[1][shown], border),
        normalization=normalization,
    )


def _subset(labels: NDArray[np.int64], dataset: DataSet, count: int | None, what: str) -> Indices:
    """Positions of a class-balanced subset of that many images, or of all."""
    if count is None:
        return np.arange(len(labels))
    if isinstance(count, bool) or not isinstance(count, int):
        raise PicojouleError(f"{what} = {count!r} is not a number of images; take a whole number or leave it out.")
    return draw_balanced(labels, count, dataset.classes, what=what)


def _official_parts(dataset: DataSet, root: str | os.PathLike[str] | None) -> tuple[Arrays, Arrays, str]:
    """The official training part, the test part, and where they were read."""
    if not isinstance(dataset, FileSet):
        train, test = digits_parts(dataset.splits[2])
        return train, test, dataset.library
    home = cache.cache_root(root)
    train, test = (
        dataset.decode([cache.read(dataset, file, home) for file in files]) for files in (dataset.train, dataset.test)
    )
    return train, test, str(home / dataset.name)


def _tensors(images: NDArray[np.uint8], labels: NDArray[np.int64], border: int) -> Images:
    padded = np.pad(images, ((0, 0), (0, 0), (border, border), (border, border)))
    return Images(torch.from_numpy(padded), torch.from_numpy(np.ascontiguousarray(labels)))


def statistics(images: NDArray[np.uint8]) -> Normalization:
    """Mean and (population) standard deviation of each channel of uint8 [N, C, H, W], as fractions of 255.

    Computed from the histogram in whole numbers, so nothing is rounded before the last step:
    mean = Σ v·n(v) / (255·N), variance = (N·Σ v²·n(v) − (Σ v·n(v))²) / (255·N)².
    """
    means, deviations = [], []
    for channel in range(images.shape[1]):
        histogram = _histogram(images[:, channel])
        count = sum(histogram)
        first = sum(value * number for value, number in enumerate(histogram))
        second = sum(value * value * number for value, number in enumerate(histogram))
        variance = Fraction(count * second - first * first, (255 * count) ** 2) if count else Fraction(0)
        if variance == 0:
            raise PicojouleError(f"Channel {channel} of the training images is constant; it cannot be normalised.")
        means.append(float(Fraction(first, 255 * count)))
        deviations.append(math.sqrt(variance))
    return Normalization(tuple(means), tuple(deviations))


def _histogram(pixels: NDArray[np.uint8]) -> list[int]:
    """How often each of the 256 values occurs; in pieces, because `bincount` makes eight bytes of each pixel."""
    counts = np.zeros(256, dtype=np.int64)
    for first in range(0, len(pixels), 1000):
        counts += np.bincount(pixels[first : first + 1000].ravel(), minlength=256)
    return [int(count) for count in counts]
