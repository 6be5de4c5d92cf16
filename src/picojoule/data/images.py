"""A loaded data set: images in three splits, and the statistics that normalise them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.data.samples import Streamed
from picojoule.errors import PicojouleError


@dataclass(frozen=True, eq=False)
class Images:
    """Images as uint8 [N, C, H, W] and their classes as int64 [N].

    Data of the user's own may be float32, vectors [N, D] or frames over time [N, T, C, H, W], and are `Streamed` where
    they are larger than memory.
    """

    images: Tensor | Streamed
    """uint8 [N, C, H, W], or as said above."""
    labels: Tensor
    """The class of each, int64 [N]."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        how = ", streamed" if isinstance(self.images, Streamed) else ""
        return f"Images({len(self):,} of {'×'.join(map(str, self.images.shape[1:]))}{how})"

    def to(self, device: torch.device | str) -> Images:
        """Copy the images to a device, so that batches are gathered there.

        Args:
            device: The device.

        Returns:
            The copy; the same images where they are there already.
        """
        return Images(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Normalization:
    """Per-channel mean and standard deviation of pixels in [0, 1]: x ↦ (x − mean)/std."""

    mean: tuple[float, ...]
    """By channel."""
    std: tuple[float, ...]
    """By channel, above 0."""

    def __call__(self, pixels: Tensor) -> Tensor:
        """Normalise float images [B, C, H, W] or frames […, C, H, W]; vectors [B, D] have one channel.

        Args:
            pixels: The images, in [0, 1].

        Returns:
            (x − mean)/std, in the same shape and dtype.
        """
        each = (-1, 1, 1) if pixels.dim() > 2 else (1,)
        mean, std = (pixels.new_tensor(values).view(each) for values in (self.mean, self.std))
        return (pixels - mean) / std


def identity(channels: int) -> Normalization:
    """Return the normalisation that changes nothing.

    Args:
        channels: How many channels it is for.

    Returns:
        Mean 0 and deviation 1 for each.

    >>> identity(1)
    Normalization(mean=(0.0,), std=(1.0,))
    """
    return Normalization((0.0,) * channels, (1.0,) * channels)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set in memory: uint8 images in three splits, and their normalisation. `print` shows a short summary.

    The normalisation is that of the whole training split, unpadded and before any `limit`, so runs on different subsets
    see the same pixels.
    """

    name: str
    """The name by which it was loaded."""
    source: str
    """The folder or the library it was read from."""
    classes: int
    """The number of classes."""
    train: Images
    """The training split, after any `limit`."""
    validation: Images
    """The validation split, which is no part of the training split."""
    test: Images
    """The test split."""
    normalization: Normalization
    """That of the whole training split."""
    class_names: tuple[str, ...] = ()
    """By class number, where they have names."""
    content: str | None = None
    """For data of the user's own: a digest of all samples and labels, before any `limit` or `pad`."""
    pad: int = 0
    """Rows and columns of zeros on each side, which are part of the images."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image, padding included; [D] of a vector, [T, C, H, W] of frames."""
        return tuple(self.train.images.shape[1:])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The same without padding."""
        shape, both = self.shape, 2 * self.pad
        return (*shape[:-2], shape[-2] - both, shape[-1] - both) if self.pad else shape

    @property
    def streamed(self) -> bool:
        """Whether the samples are read batch by batch, because they are larger than memory."""
        return any(isinstance(part.images, Streamed) for part in (self.train, self.validation, self.test))

    @property
    def of_bytes(self) -> bool:
        """Whether the samples are stored as uint8, pixels of 255; all else is float32 and taken as it is."""
        return self.train.images.dtype == torch.uint8

    def to(self, device: torch.device | str) -> Data:
        """Copy the data to a device.

        Args:
            device: The device.

        Returns:
            The copy; streamed samples stay where they are.
        """
        train, validation, test = (part.to(device) for part in (self.train, self.validation, self.test))
        return replace(self, train=train, validation=validation, test=test)

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(getattr(self, part)):,} {part}" for part in ("train", "validation", "test"))
        more = [f"{self.classes} classes", f"from {self.source}"]
        more += ["read batch by batch, being larger than memory"] * self.streamed
        more += [f"content {self.content}"] * (self.content is not None)
        return f"Data({self.name!r}: {parts}, {'×'.join(map(str, self.shape))}, {', '.join(more)})"


class Moments:
    """Mean and standard deviation of each channel, added up chunk by chunk.

    uint8 is counted in a histogram of whole numbers, so nothing is rounded before the last step:
    mean = Σ v·n(v) / (255·N), variance = (N·Σ v²·n(v) − (Σ v·n(v))²) / (255·N)². Other types are summed in float64.

    >>> moments = Moments()
    >>> moments.add(np.array([[[[0, 255]]]], dtype=np.uint8))
    >>> moments.normalization()
    Normalization(mean=(0.5,), std=(0.5,))
    """

    def __init__(self) -> None:
        self._histograms: NDArray[np.int64] | None = None
        self._sums: NDArray[np.float64] | None = None

    def add(self, samples: NDArray[Any]) -> None:
        """Add samples [N, D], or […, C, H, W]."""
        planes = samples[:, None] if samples.ndim == 2 else np.moveaxis(samples, -3, 1)
        for first in range(0, len(planes), 1000):  # `bincount` makes eight bytes of each pixel
            piece = planes[first : first + 1000]
            by_channel = [piece[:, channel].ravel() for channel in range(piece.shape[1])]
            if samples.dtype == np.uint8:
                counts = np.stack([np.bincount(values, minlength=256) for values in by_channel])
                self._histograms = counts if self._histograms is None else self._histograms + counts
            else:
                wide = [values.astype(np.float64) for values in by_channel]
                sums = np.array([[len(values), values.sum(), np.square(values).sum()] for values in wide])
                self._sums = sums if self._sums is None else self._sums + sums

    @property
    def channels(self) -> int:
        """How many channels the samples have that were added."""
        added = self._sums if self._histograms is None else self._histograms
        return 0 if added is None else len(added)

    def normalization(self) -> Normalization:
        """Compute mean and (population) standard deviation of what was added.

        Returns:
            The normalisation.

        Raises:
            PicojouleError: A channel is constant.
        """
        pairs: list[tuple[float | Fraction, float | Fraction]] = []
        if self._histograms is not None:
            pairs += [_of_histogram(channel.tolist()) for channel in self._histograms]
        if self._sums is not None:
            pairs += [_of_sums(*channel) for channel in self._sums]
        for channel, (_, variance) in enumerate(pairs or [(0.0, 0.0)]):
            if variance <= 0:
                raise PicojouleError(
                    f"channel {channel} of the training images is constant, so it cannot be normalised: check the "
                    "images, or take data.normalize = false"
                )
        return Normalization(tuple(float(mean) for mean, _ in pairs), tuple(math.sqrt(v) for _, v in pairs))


def _of_histogram(histogram: list[int]) -> tuple[Fraction, Fraction]:
    count = sum(histogram)
    first = sum(value * number for value, number in enumerate(histogram))
    second = sum(value * value * number for value, number in enumerate(histogram))
    if not count:
        return Fraction(0), Fraction(0)
    return Fraction(first, 255 * count), Fraction(count * second - first * first, (255 * count) ** 2)


def _of_sums(count: float, first: float, second: float) -> tuple[float, float]:
    mean = first / max(count, 1)
    return mean, second / max(count, 1) - mean * mean


def statistics(images: NDArray[np.uint8]) -> Normalization:
    """Compute mean and (population) standard deviation of each channel of uint8 [N, C, H, W], as fractions of 255.

    Args:
        images: The training images.

    Returns:
        The normalisation.

    Raises:
        PicojouleError: A channel is constant.
    """
    moments = Moments()
    moments.add(images)
    return moments.normalization()
