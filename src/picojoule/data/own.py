"""Data of the user's own in the same form as the sets that picojoule knows: split, limited, padded, normalised.

A part that is missing is split off the training part with a fixed seed, each class in proportion: a fifth for the test
and a tenth of the rest for validation. The digest of the content is that of all samples and labels, whatever their
source, and is part of a run's identity. What is larger than memory is read batch by batch, which `Data` says.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from picojoule.data.cache import cache_root
from picojoule.data.given import Given, read_factory, read_given
from picojoule.data.images import Data, Images, Moments, identity
from picojoule.data.npz import read_npz
from picojoule.data.parts import PARTS, Part, Parts
from picojoule.data.samples import Samples, Streamed, chunks, padded, room
from picojoule.data.splits import VALIDATION_SEED, Indices, draw_limited, draw_stratified
from picojoule.errors import PicojouleError
from picojoule.io.factories import is_factory

GIVEN = "own"
"""The name of data that are given in Python."""
FOLDER = "folder:"
FILE = ".npz"
TEST_SEED = 10_000


def is_own(name: object) -> bool:
    """Return whether a name is that of the user's own data.

    Args:
        name: The name of a data set.

    >>> [is_own(name) for name in ("own", "folder:photos", "a/b.npz", "my.module:data", "digits")]
    [True, True, True, True, False]
    """
    return isinstance(name, str) and (
        name == GIVEN or (name.startswith(FOLDER) and len(name) > len(FOLDER)) or name.endswith(FILE) or runs_code(name)
    )


def runs_code(name: str) -> bool:
    """Return whether loading data of that name runs code of the user's own.

    Args:
        name: The name of a data set.

    >>> runs_code("my.module:data"), runs_code("folder:photos")
    (True, False)
    """
    return not name.startswith(FOLDER) and not name.endswith(FILE) and is_factory(name)


def load_own(
    name: str,
    limits: Mapping[str, int | None],
    pad: int | None = None,
    root: str | os.PathLike[str] | None = None,
    size: int | None = None,
    given: Given | None = None,
    normalize: bool = True,
) -> Data:
    """Load data of the user's own.

    Args:
        name: "folder:PATH", "FILE.npz", "package.module:factory", which is run, or "own". A path that starts nowhere is
            looked for in the current folder, then in the cache folder.
        limits: `limit`, `limit_validation` and `limit_test`.
        pad: Rows and columns of zeros on each side; None is none.
        root: The cache folder.
        size: Rows and columns to which pictures of a folder are scaled.
        given: The parts, for the name "own".
        normalize: Whether the values are going to be normalised; False leaves them as they are, constant or not.

    Returns:
        The data, with the digest of their content.

    Raises:
        PicojouleError: They cannot be read, or are no data set; the message names the file.
    """
    border = 0 if pad is None else pad
    if isinstance(border, bool) or not isinstance(border, int) or border < 0:
        raise PicojouleError(f"pad = {border!r} is not a number of pixels: take 0 or more")
    parts = _read(name, root, size, given)
    shape = parts.train.samples.shape
    if border and len(shape) < 3:
        raise PicojouleError(f"pad = {border} is not possible, for the samples of {name!r} are vectors: take 0")
    chosen = _split(parts)
    classes = _classes(chosen, parts)
    loaded = _Loaded(name, chosen)
    limited = {
        part: draw_limited(loaded.labels[part], classes, limits[key], key)
        for part, key in zip(PARTS, limits, strict=True)
    }
    images = {part: loaded.images(part, limited[part], border) for part in PARTS}
    return Data(
        name=name,
        source=parts.source,
        classes=classes,
        train=images["train"],
        validation=images["validation"],
        test=images["test"],
        normalization=loaded.moments.normalization() if normalize else identity(loaded.moments.channels),
        class_names=parts.class_names,
        content=loaded.content,
        pad=border,
    )


def _read(name: str, root: str | os.PathLike[str] | None, size: int | None, given: Given | None) -> Parts:
    if size is not None and (not name.startswith(FOLDER) or type(size) is not int or size < 1):
        raise PicojouleError(
            f"size = {size!r} is the side of pictures in a folder: give a whole number, with folder:PATH"
        )
    if (given is not None) is not (name == GIVEN):
        raise PicojouleError(
            f"data.name = {GIVEN!r} stands for data that are given in Python, and for those alone: give them with "
            f"data=…, and with that name"
        )
    if given is not None:
        return read_given(given, "the data that were given")
    if name.startswith(FOLDER):
        from picojoule.data.picture_folder import read_folder  # brings Pillow, which few need

        return read_folder(_found(name.removeprefix(FOLDER), root), size)
    return read_npz(_found(name, root)) if name.endswith(FILE) else read_factory(name)


def _found(text: str, root: str | os.PathLike[str] | None) -> Path:
    """Look for a path in the current folder, then in the cache folder."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as fault:  # there is no such user
        raise PicojouleError(f"{text} cannot be found ({fault}): write the path in full") from None
    elsewhere = cache_root(root) / path
    return elsewhere if not path.exists() and elsewhere.exists() else path


_Chosen = dict[str, tuple[Part, Indices]]
"""For each part, the samples that it is taken from and their positions."""


def _split(parts: Parts) -> _Chosen:
    """Split off what is missing, always the same."""
    left = np.arange(len(parts.train.labels))
    chosen: _Chosen = {}
    for name, part, share, seed in (
        ("test", parts.test, 5, TEST_SEED),
        ("validation", parts.validation, 10, VALIDATION_SEED),
    ):
        if part is not None:
            chosen[name] = part, np.arange(len(part.labels))
            continue
        drawn, rest = draw_stratified(parts.train.labels[left], len(left) // share, seed)
        chosen[name], left = (parts.train, left[drawn]), left[rest]
    chosen["train"] = parts.train, left
    for name, (_, positions) in chosen.items():
        if not len(positions):
            raise PicojouleError(f"{parts.source} has no samples for its {name} part: give it more samples")
    shapes = {name: (part.samples.shape, part.samples.dtype) for name, (part, _) in chosen.items()}
    for name, found in shapes.items():
        if found != shapes["train"]:
            raise PicojouleError(
                f"the {name} samples of {parts.source} are {found[1]} of the shape {found[0]}, and those for training "
                f"{shapes['train'][1]} of {shapes['train'][0]}: give both the same"
            )
    return chosen


def _classes(chosen: _Chosen, parts: Parts) -> int:
    """Count the classes, of which each must be trained."""
    present = np.unique(parts.train.labels[chosen["train"][1]])
    highest = max(int(part.labels[positions].max()) for part, positions in chosen.values())
    classes = len(parts.class_names) or highest + 1
    lowest = next((number for number, label in enumerate(present.tolist()) if label != number), len(present))
    missing = lowest < max(classes, highest + 1)
    if missing or highest >= classes or classes < 2:
        few = "there is only one class" if classes == 1 else f"there are {classes} classes"
        said = f"there is no training sample of class {lowest}" if missing else few
        raise PicojouleError(
            f"{parts.source} cannot be trained on: {said} (labels go up to {highest}): number the classes from 0, with "
            "samples of each, at least two of them"
        )
    return classes


class _Loaded:
    """All samples, read once: hashed, their moments summed, and kept in memory if they fit."""

    def __init__(self, name: str, chosen: _Chosen) -> None:
        self._chosen = chosen
        self._arrays: dict[str, NDArray[Any]] = {}
        self.labels = {part: source.labels[positions] for part, (source, positions) in chosen.items()}
        self.moments = Moments()
        self._keep = sum(_bytes(source.samples, len(positions)) for source, positions in chosen.values()) <= room()
        digest = hashlib.blake2b(digest_size=8)
        for part in PARTS:
            self._read(name, part, digest)
        self.content = digest.hexdigest()

    def _read(self, name: str, part: str, digest: Any) -> None:
        source, positions = self._chosen[part]
        samples = source.samples
        digest.update(f"{part} {len(positions)} {samples.dtype} {list(samples.shape)}\n".encode())
        digest.update(np.ascontiguousarray(self.labels[part]).data)
        pieces, done = [], 0
        for piece in chunks(samples, positions):
            if not np.isfinite(piece).all():
                finite = np.isfinite(piece).reshape(len(piece), -1).all(1)
                bad = int(positions[done + int(finite.argmin())])
                given = "train" if source is self._chosen["train"][0] else part  # what was split off is counted there
                raise PicojouleError(
                    f"sample {bad} of the {given} part of {name!r} has values that are infinite or NaN in float32: "
                    "mend them, or leave it out"
                )
            done += len(piece)
            digest.update(np.ascontiguousarray(piece).data)
            if part == "train":
                self.moments.add(piece)
            if self._keep:
                pieces.append(piece)
        if self._keep:
            self._arrays[part] = np.concatenate(pieces)

    def images(self, part: str, limited: Indices, border: int) -> Images:
        labels = torch.from_numpy(np.ascontiguousarray(self.labels[part][limited]))
        if self._keep:
            return Images(torch.from_numpy(padded(self._arrays[part][limited], border)), labels)
        source, positions = self._chosen[part]
        return Images(Streamed(source.samples, positions[limited], border), labels)


def _bytes(samples: Samples, count: int) -> int:
    return count * int(np.prod(samples.shape)) * samples.dtype.itemsize
