"""Loading a data set by its name: one that picojoule knows, or the user's own."""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray

from picojoule.data import cache, datasets
from picojoule.data.braille import Encoding
from picojoule.data.datasets import EmbeddedSet, FileSet, RecordedSet
from picojoule.data.decoders import Arrays
from picojoule.data.digits import digits_parts
from picojoule.data.given import Given
from picojoule.data.images import Data, Images, identity, statistics
from picojoule.data.own import is_own, load_own
from picojoule.data.recorded import Frames, load_recorded
from picojoule.data.splits import VALIDATION_SEED, draw_limited, draw_stratified
from picojoule.errors import PicojouleError


def load(
    name: str,
    *,
    limit: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    pad: int | None = None,
    root: str | os.PathLike[str] | None = None,
    size: int | None = None,
    given: Given | None = None,
    normalize: bool = True,
    frames: int | None = None,
    encoding: Encoding | None = None,
    threshold: float | None = None,
) -> Data:
    """Load a data set from the cache, its checksums verified, or the user's own. `print` shows a short summary of it.

    Args:
        name: A data set of `picojoule.data.DATASETS`; `digits` needs no files. Or your own: "folder:PATH" (pictures in
            a folder for each class), "FILE.npz" (arrays), "package.module:factory" (a function that returns the parts,
            which is run), or "own" with `given`.
        limit: Take only a class-balanced subset of that many training images (numbers per class differ by at most one;
            larger subsets contain smaller ones).
        limit_validation: The same for the validation images; the split is whole unless limited.
        limit_test: The same for the test images.
        pad: Rows and columns of black pixels (value 0, before normalisation) on each side; None is the data set's own,
            which brings 28×28 to 32×32 and leaves 32×32 alone.
        root: The cache folder, instead of the one of `cache_root`.
        size: Scale the pictures of "folder:PATH" to so many rows and columns; None leaves them as they are.
        given: With the name "own", the parts themselves, as a factory returns them: (train, validation, test), each
            None, (samples, labels) or a map-style data set of `torch.utils.data`.
        normalize: False makes the normalisation that of mean 0 and deviation 1, which changes nothing; channels that
            constant are then allowed. Spikes are never normalised.
        frames: Of recordings over time: how many frames each becomes; None is the data set's own number.
        encoding: Of recordings over time: "spikes" or "currents"; None is what the data set usually is.
        threshold: Of readings that become spikes: the change that makes one.

    Returns:
        The three splits as uint8 images, and the normalisation of the whole training split.

    Raises:
        PicojouleError: The data set is unknown, not in the cache or damaged, or an argument is not valid.

    >>> digits = load("digits", limit=100)
    >>> digits.train.images.shape, digits.train.labels.bincount().tolist()
    (torch.Size([100, 1, 32, 32]), [10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    >>> len(digits.validation), len(digits.test)
    (180, 360)
    """
    if is_own(name):
        limits = {"limit": limit, "limit_validation": limit_validation, "limit_test": limit_test}
        return load_own(name, limits, pad, root, size, given, normalize)
    if size is not None or given is not None:
        raise PicojouleError(f"{name!r} takes neither size nor given: they are for data of your own")
    dataset = datasets.find(name, ", or data of your own: folder:PATH, FILE.npz or package.module:factory")
    if isinstance(dataset, RecordedSet):
        if pad:
            raise PicojouleError(f"pad = {pad!r} is for images, not for recordings over time: take 0")
        limits_by_part = (limit, limit_validation, limit_test)
        return load_recorded(dataset, Frames(frames, encoding, threshold), limits_by_part, root, normalize)
    if frames is not None or encoding is not None or threshold is not None:
        raise PicojouleError(f"{name!r} takes neither frames nor encoding nor threshold: they are for recordings")
    border = dataset.pad if pad is None else pad
    if isinstance(border, bool) or not isinstance(border, int) or border < 0:
        raise PicojouleError(f"pad = {border!r} is not a number of pixels: take 0 or more")
    (images, labels), test, source = _official_parts(dataset, root)
    held_out, kept = draw_stratified(labels, dataset.splits[1], VALIDATION_SEED)
    normalization = statistics(images[kept]) if normalize else identity(images.shape[1])
    kept = kept[draw_limited(labels[kept], dataset.classes, limit, "limit")]
    held_out = held_out[draw_limited(labels[held_out], dataset.classes, limit_validation, "limit_validation")]
    shown = draw_limited(test[1], dataset.classes, limit_test, "limit_test")
    return Data(
        name=name,
        source=source,
        classes=dataset.classes,
        train=_tensors(images[kept], labels[kept], border),
        validation=_tensors(images[held_out], labels[held_out], border),
        test=_tensors(test[0][shown], test[1][shown], border),
        normalization=normalization,
        class_names=dataset.class_names,
        pad=border,
    )


def _official_parts(dataset: FileSet | EmbeddedSet, root: str | os.PathLike[str] | None) -> tuple[Arrays, Arrays, str]:
    """Read the official training part and test part, and say where they were read."""
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
