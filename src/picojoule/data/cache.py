"""The cache folder: the official files, uncompressed and checked, one folder for each data set.

It is the folder in the environment variable PICOJOULE_DATA, or else `picojoule` in the platform's cache folder
(`$XDG_CACHE_HOME`, `~/.cache`). A file appears there only whole and checked: everything is written to a temporary
folder beside it and renamed, so several processes may fetch and read at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from picojoule.data.checksum import Damaged, OfficialFile
from picojoule.data.datasets import FileSet, RecordedSet
from picojoule.errors import PicojouleError
from picojoule.io import files
from picojoule.io.cache_folder import cache_folder

_TEMPORARY = ".fetch-"
_STALE_SECONDS = 24 * 3600


def cache_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder.

    Args:
        root: A folder that overrides the environment.

    Returns:
        `root`, or the folder in PICOJOULE_DATA, or `picojoule` in the platform's cache folder.

    >>> cache_root("/data").name
    'data'
    """
    named = root or os.environ.get("PICOJOULE_DATA")
    if named:
        return Path(named).expanduser()
    return cache_folder()


def holds(dataset: FileSet, root: Path) -> bool:
    """Whether every file of a data set is in the cache with the right size: the quick look, without checksums."""
    try:
        return all((root / dataset.name / file.name).stat().st_size == file.size for file in dataset.files)
    except OSError:
        return False


def read(dataset: FileSet, file: OfficialFile, root: Path) -> bytes:
    """Read a cached file and check its content: half a second for the largest set, against a run on bad data.

    Args:
        dataset: The data set.
        file: One of its official files.
        root: The cache folder.

    Returns:
        The file's content.

    Raises:
        PicojouleError: The file is missing, cannot be read, or has other content than the official one.
    """
    path = root / dataset.name / file.name
    fetch = f"picojoule data fetch {dataset.name}"
    try:
        content = files.read_bytes(path)
        file.check(content, str(path))
    except FileNotFoundError as fault:
        raise PicojouleError(f"{dataset.name} is not in the cache {root}: get it with `{fetch}`") from fault
    except OSError as fault:
        raise PicojouleError(f"{path} cannot be read ({files.reason(fault)}): {files.reading_remedy(fault)}") from fault
    except Damaged as fault:
        raise PicojouleError(f"{fault}: get the data set again with `{fetch}`") from fault
    return content


def is_intact(dataset: FileSet, root: Path) -> bool:
    """Whether every file of a data set is in the cache with the right content."""
    if not holds(dataset, root):
        return False
    try:
        for file in dataset.files:
            read(dataset, file, root)
    except PicojouleError:
        return False
    return True


@contextlib.contextmanager
def workspace(dataset: FileSet | RecordedSet, root: Path) -> Iterator[Path]:
    """Make a temporary folder inside the cache (so that renaming is atomic) that vanishes however the block ends.

    Args:
        dataset: The data set that is being fetched.
        root: The cache folder.

    Yields:
        The temporary folder.

    Raises:
        PicojouleError: The disk is full, or the folder cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_stale(root)
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=root) as folder:
            yield Path(folder)
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PicojouleError(
                f"there is no space left in {root} for {dataset.name}: free about {3 * dataset.size // 1_000_000} MB, "
                f"or set PICOJOULE_DATA to a folder on another disk"
            ) from fault
        raise PicojouleError(
            f"the cache folder {root} cannot be used ({files.reason(fault)}): "
            f"{files.remedy(fault).removesuffix(',')}, or set PICOJOULE_DATA to a folder you can write to"
        ) from fault


def _remove_stale(root: Path) -> None:
    """Remove what a killed process left behind long ago; a fetch that still runs is younger than that."""
    for leftover in root.glob(_TEMPORARY + "*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(leftover, ignore_errors=True)


def install(dataset: FileSet, contents: Iterable[tuple[OfficialFile, bytes]], work: Path, root: Path) -> None:
    """Write checked contents to the workspace, flush them to disk, and rename them into place once all are there.

    Args:
        dataset: The data set.
        contents: Its official files with their contents.
        work: The workspace.
        root: The cache folder.
    """
    staged = work / "checked"
    staged.mkdir()
    for file, content in contents:
        files.write_flushed(staged / file.name, content)
    home = root / dataset.name
    home.mkdir(exist_ok=True)
    try:
        for file in dataset.files:
            os.replace(staged / file.name, files.destination(home / file.name))
    except OSError:
        with contextlib.suppress(OSError):
            home.rmdir()
        raise
    files.flush_folder(home)
