"""Data sets of recordings over time: their files in the cache, and their samples as frames of spikes or currents."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from picojoule.data import cache
from picojoule.data.braille import THRESHOLD, Encoding
from picojoule.data.checksum import Damaged, Unavailable
from picojoule.data.datasets import RecordedSet
from picojoule.data.images import Data, Images, Moments, identity
from picojoule.data.parts import PARTS, Part
from picojoule.data.progress import Progress, quiet
from picojoule.data.samples import Streamed, chunks, room
from picojoule.data.splits import VALIDATION_SEED, Indices, draw_limited, draw_stratified
from picojoule.errors import PicojouleError
from picojoule.io import files

TEST_SEED = 10_000


class Frames(NamedTuple):
    """How recordings become frames; what is None is as the data set has it."""

    steps: int | None = None
    encoding: Encoding | None = None
    threshold: float | None = None


def check_frames(dataset: RecordedSet, frames: Frames) -> None:
    """Refuse frames that a data set cannot be made into.

    Args:
        dataset: The data set.
        frames: What was asked for.

    Raises:
        PicojouleError: There are more frames than time steps, or a threshold where nothing is encoded by one.
    """
    if frames.encoding is not None and frames.encoding not in dataset.maps:
        raise PicojouleError(
            f"encoding = {frames.encoding!r} is not known: take {' or '.join(map(repr, dataset.maps))}"
        )
    if dataset.steps is not None and frames.steps is not None and frames.steps > dataset.steps:
        raise PicojouleError(
            f"frames = {frames.steps} is more than the {dataset.steps} time steps of {dataset.name!r}: take up to "
            f"{dataset.steps}"
        )
    encoding = frames.encoding or dataset.usual_encoding
    if frames.threshold is not None and (dataset.steps is None or encoding != "spikes"):
        raise PicojouleError(
            f"threshold = {frames.threshold:g} is for readings that become spikes, not for {dataset.name!r} as "
            f"{encoding}: leave it out"
        )


def load_recorded(
    dataset: RecordedSet,
    frames: Frames,
    limits: tuple[int | None, int | None, int | None],
    root: str | os.PathLike[str] | None = None,
    normalize: bool = True,
) -> Data:
    """Load recordings as frames, their files verified.

    Args:
        dataset: The data set.
        frames: How recordings become frames.
        limits: `limit`, `limit_validation` and `limit_test`.
        root: The cache folder.
        normalize: Whether currents are going to be normalised; spikes never are.

    Returns:
        The three splits; where they are larger than memory, they are read batch by batch.

    Raises:
        PicojouleError: The files are not there or damaged, or an argument is not valid.
    """
    check_frames(dataset, frames)
    home = cache.cache_root(root) / dataset.name
    count, encoding = frames.steps or dataset.frames, frames.encoding or dataset.usual_encoding
    try:
        train, test = dataset.read(home, count, encoding, frames.threshold or THRESHOLD)
    except FileNotFoundError as fault:
        raise PicojouleError(
            f"{dataset.name} is not in the cache {home.parent}: get it with `picojoule data fetch {dataset.name}`, or "
            f"{dataset.by_hand}, and put it into {home}"
        ) from fault
    except Damaged as fault:
        raise PicojouleError(f"{fault}: get the data set again with `picojoule data fetch {dataset.name}`") from fault
    except OSError as fault:
        raise PicojouleError(f"{home} cannot be read ({files.reason(fault)}): {files.reading_remedy(fault)}") from fault
    chosen = _limited(dataset, train, test, limits)
    moments = Moments()
    if normalize and encoding == "currents":
        for piece in chunks(train.samples, chosen["train"][2]):
            moments.add(piece)
    images = {name: _images(part, positions) for name, (part, positions, _) in chosen.items()}
    return Data(
        name=dataset.name,
        source=str(home),
        classes=dataset.classes,
        train=images["train"],
        validation=images["validation"],
        test=images["test"],
        normalization=moments.normalization() if moments.channels else identity(dataset.maps[encoding][0]),
        class_names=dataset.class_names,
    )


def _limited(
    dataset: RecordedSet, train: Part, test: Part | None, limits: tuple[int | None, int | None, int | None]
) -> dict[str, tuple[Part, Indices, Indices]]:
    """Split off what has no part of its own, always the same: of each part its positions, limited and all."""
    left = np.arange(len(train.labels))
    found: dict[str, tuple[Part, Indices]] = {}
    if test is not None:
        found["test"] = test, np.arange(len(test.labels))
    for name, seed in (("test", TEST_SEED), ("validation", VALIDATION_SEED)):
        if name not in found:
            drawn, rest = draw_stratified(train.labels[left], dataset.splits[PARTS.index(name)], seed)
            found[name], left = (train, left[drawn]), left[rest]
    found["train"] = train, left
    chosen = {}
    for name, limit, what in zip(PARTS, limits, ("limit", "limit_validation", "limit_test"), strict=True):
        part, positions = found[name]
        limited = positions[draw_limited(part.labels[positions], dataset.classes, limit, what)]
        chosen[name] = part, limited, positions
    return chosen


def _images(part: Part, positions: Indices) -> Images:
    labels = torch.from_numpy(np.ascontiguousarray(part.labels[positions]))
    bytes_needed = len(positions) * int(np.prod(part.samples.shape)) * part.samples.dtype.itemsize
    if 2 * bytes_needed > room():
        return Images(Streamed(part.samples, positions), labels)
    return Images(torch.from_numpy(np.concatenate(list(chunks(part.samples, positions)))), labels)


def is_here(dataset: RecordedSet, root: Path) -> bool:
    """Whether every file of a data set is in the cache: the quick look, without checksums."""
    return all((root / dataset.name / name).is_file() for name in dataset.files)


def fetch_recorded(
    dataset: RecordedSet, folder: Path | None, home: Path, progress: Progress = quiet
) -> tuple[str, tuple[str, ...]]:
    """Bring the files of a data set into the cache, checked.

    Args:
        dataset: The data set.
        folder: A folder that may hold them.
        home: The cache folder.
        progress: Called with what is being done.

    Returns:
        Where they came from, and why the sources before that were not used.

    Raises:
        PicojouleError: Nothing gave them; the message says why, and how to place them by hand.
    """
    skipped: list[str] = []
    if folder is not None:
        if all((folder / name).is_file() for name in dataset.files):
            try:
                _install(dataset, folder, home)
            except Damaged as fault:
                raise PicojouleError(
                    f"{dataset.name} could not be taken from {folder} ({fault}): get that file again, or leave the "
                    "folder out"
                ) from fault
            return f"the folder {folder}", ()
        skipped.append(f"{folder} does not hold {' and '.join(dataset.files)}")
    if is_here(dataset, home):
        try:
            dataset.read(home / dataset.name, dataset.frames, dataset.usual_encoding, THRESHOLD)
            return "the cache", tuple(skipped)
        except Damaged as fault:
            skipped.append(str(fault))
    for source in dataset.sources:
        try:
            with cache.workspace(dataset, home) as work:
                source.get(work, progress)
                progress(f"checking {dataset.name}", 0, None)
                _install(dataset, work, home)
            return source.title, tuple(skipped)
        except Unavailable as why:
            skipped.append(f"{source.title}: {why}")
    raise PicojouleError(
        f"{dataset.name} could not be fetched ({'; '.join(skipped) or 'no address gives it as it is read'}): "
        f"{dataset.by_hand}, and name the folder that holds {' and '.join(dataset.files)} with --from"
    )


def _install(dataset: RecordedSet, folder: Path, home: Path) -> None:
    """Check the files in a folder and copy them into the cache, each whole or not at all."""
    with cache.workspace(dataset, home) as work:
        staged = work / "checked"
        staged.mkdir()
        for name in dataset.files:
            shutil.copyfile(folder / name, staged / name)
        dataset.read(staged, dataset.frames, dataset.usual_encoding, THRESHOLD)
        (home / dataset.name).mkdir(exist_ok=True)
        for name in dataset.files:
            os.replace(staged / name, files.destination(home / dataset.name / name))
        files.flush_folder(home / dataset.name)
