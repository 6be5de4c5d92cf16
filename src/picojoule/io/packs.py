"""Packs: many small text files in one file, read through paths that go on inside of it.

A pack is a zip archive whose name ends in `.runs.zip`, so that `unzip` opens it too. `runs.zip/a/recipe.toml` below is
the member `a/recipe.toml` of the pack: whoever reads files by paths (`io.files`) reads packed ones the same way. Equal
contents make equal bytes. A pack is only read or written whole, never changed.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from picojoule.errors import PicojouleError
from picojoule.io.regular import opened

SUFFIX = ".runs.zip"
"""The end of a pack's name."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can hold; the real one would make equal contents differ."""
_MODE = 0o644 << 16
_LARGEST_MEMBER = 256 << 20


class DamagedPack(OSError):
    """The error of a pack that cannot be read.

    Args:
        what: What is wrong with it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, f"the pack is damaged: {what}")


def is_pack(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a pack.

    Args:
        path: Any path.

    >>> is_pack("no-such-pack.runs.zip")
    False
    """
    return os.fspath(path).endswith(SUFFIX) and os.path.isfile(path)


def split(path: str | os.PathLike[str]) -> tuple[Path, str] | None:
    """Split a path that goes on inside of a pack.

    Args:
        path: Any path.

    Returns:
        The pack and the name of the member; None for all other paths.

    >>> split("a/b.toml") is None
    True
    """
    if SUFFIX not in os.fspath(path):  # nearly all paths
        return None
    whole = Path(path)
    pack = next((parent for parent in whole.parents if is_pack(parent)), None)
    return (pack, whole.relative_to(pack).as_posix()) if pack is not None else None


def members(pack: str | os.PathLike[str]) -> tuple[str, ...]:
    """List what a pack holds.

    Args:
        pack: The pack.

    Returns:
        The names of its members, sorted.

    Raises:
        OSError: If it cannot be read.
    """
    return tuple(sorted(_open(pack).namelist()))


def holds(pack: str | os.PathLike[str], name: str) -> bool:
    """Return whether a pack holds a member; one that cannot be read holds none.

    Args:
        pack: The pack.
        name: The name of the member.
    """
    try:
        return name in _open(pack).NameToInfo
    except OSError:
        return False


def read(pack: str | os.PathLike[str], name: str) -> bytes:
    """Read a member of a pack.

    Args:
        pack: The pack.
        name: The name of the member.

    Returns:
        Its content.

    Raises:
        OSError: If the pack cannot be read, or has no such member.
    """
    archive = _open(pack)
    if name not in archive.NameToInfo:
        raise FileNotFoundError(errno.ENOENT, f"the pack holds no {name}")
    if archive.NameToInfo[name].file_size > _LARGEST_MEMBER:
        raise OSError(errno.EFBIG, "it is far too large to be text")
    try:
        return archive.read(name)
    except _DAMAGE as fault:
        raise DamagedPack(str(fault)) from None


def locate(folder: str | os.PathLike[str], name: str) -> Path:
    """Find a file in a folder or in one of the packs in it.

    Args:
        folder: The folder, or a pack.
        name: The name of the file, with slashes between folders.

    Returns:
        The path in the folder; where nothing is there and a pack in the folder holds the file, the path in that pack.

    >>> locate("no-such-folder", "a/b.json").as_posix()
    'no-such-folder/a/b.json'
    """
    own = Path(folder) / name
    if os.path.exists(own):
        return own
    return next((pack / name for pack in _packs_in(own.parents[name.count("/")]) if holds(pack, name)), own)


def _packs_in(folder: Path) -> tuple[Path, ...]:
    """List the packs that lie in a folder."""
    try:
        return _listed(folder, os.stat(folder).st_mtime_ns)
    except (OSError, ValueError):
        return ()


@functools.lru_cache(maxsize=8)
def _listed(folder: Path, modified: int) -> tuple[Path, ...]:
    """List the packs of a folder, once for as long as nothing is added to it or taken away."""
    return tuple(sorted(path for path in folder.glob(f"*{SUFFIX}") if is_pack(path)))


def packed(contents: Mapping[str, bytes]) -> bytes:
    """Pack files.

    Args:
        contents: The files by name, with slashes between folders.

    Returns:
        The content of the pack; equal files give equal bytes.

    >>> packed({"a": b"1", "b": b"2"}) == packed({"b": b"2", "a": b"1"})
    True
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, _MODE
            archive.writestr(info, contents[name], compresslevel=9)
    return buffer.getvalue()


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name that is not that of a pack.

    Args:
        path: Where a pack is to be written.

    Raises:
        PicojouleError: If it ends otherwise.

    >>> check_name("results/all.zip")
    Traceback (most recent call last):
    picojoule.PicojouleError: results/all.zip is not the name of a pack: let it end in .runs.zip
    """
    if not os.fspath(path).endswith(SUFFIX) or os.path.basename(path) == SUFFIX:
        raise PicojouleError(f"{os.fspath(path)} is not the name of a pack: let it end in {SUFFIX}")


_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What reading a damaged archive raises; encrypted members are a RuntimeError."""


def _open(pack: str | os.PathLike[str]) -> zipfile.ZipFile:
    """Open a pack, once for as long as its file stays the same."""
    stat = os.stat(pack)
    return _opened(os.path.realpath(pack), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=8)
def _opened(pack: str, modified: int, size: int) -> zipfile.ZipFile:
    """Read a pack into memory and check the names of its members; the other arguments tell versions of it apart."""
    with opened(pack) as file:
        content = file.read()
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except _DAMAGE as fault:
        raise DamagedPack(str(fault)) from None
    for name in archive.namelist():
        if name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts:
            raise DamagedPack(f"{name!r} is not the name of a file in it")
    return archive
