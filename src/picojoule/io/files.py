"""Reading and writing the user's files: no reader waits for ever, and nothing that was written is lost.

Reading takes regular files only (`io.regular`), and goes through packs (`io.packs`) as if they were folders. What is
wrong with a file is an OSError or a ValueError (`reason` says it in a few words), because only the caller knows what to
do about it. Text is UTF-8, with or without a byte-order mark.

Writing is complete or absent: beside its place, flushed to the disk, and renamed. A symbolic link is followed, and
nothing but a regular file is ever replaced.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from picojoule.errors import PicojouleError
from picojoule.io import packs
from picojoule.io.regular import NotAFile, check_regular, opened

__all__ = [
    "LEFT_BEHIND",
    "NotAFile",
    "check_destination",
    "check_regular",
    "destination",
    "flush_folder",
    "is_file",
    "make_folder",
    "opened",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_text",
    "reading_remedy",
    "reason",
    "remedy",
    "remove",
    "write_atomically",
    "write_flushed",
]

LEFT_BEHIND = ".*.tmp"
"""The temporary files that a process leaves if it is killed while it writes."""

_LARGEST_TEXT = 256 << 20


# --- Reading ---------------------------------------------------------------------------------------------------------


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file at a path, on the disk or in a pack.

    Args:
        path: Any path.
    """
    place = packs.split(path)
    return os.path.isfile(path) if place is None else packs.holds(*place)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file, or a member of a pack.

    Args:
        path: What the user named.

    Returns:
        Its content.

    Raises:
        OSError: If it is not a regular file, or cannot be read.
    """
    place = packs.split(path)
    if place is not None:
        return packs.read(*place)
    with opened(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a regular file, or a member of a pack, as UTF-8 text, without its byte-order mark.

    Args:
        path: What the user named.

    Returns:
        Its text.

    Raises:
        OSError: If it is not a regular file, cannot be read, or is far too large to be text.
        ValueError: If it is not UTF-8.
    """
    if packs.split(path) is not None:
        return read_bytes(path).decode("utf-8-sig")
    with opened(path) as file:
        content = file.read(_LARGEST_TEXT + 1)
    if len(content) > _LARGEST_TEXT:
        raise OSError(errno.EFBIG, "it is far too large to be text")
    return content.decode("utf-8-sig")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Args:
        path: What the user named.

    Returns:
        Its content.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not JSON.
    """
    return parse_json(read_text(path))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text.

    Args:
        text: The text, or its bytes in UTF-8.

    Returns:
        Its content.

    Raises:
        ValueError: If it is not JSON, or is nested deeper than Python can follow.

    >>> parse_json(b'{"seed": 0}')
    {'seed': 0}
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def reason(fault: Exception) -> str:
    """Say what is wrong with a file, in a few words on one line, without its path.

    Args:
        fault: What reading or writing it raised.

    Returns:
        The words.

    >>> reason(FileNotFoundError(errno.ENOENT, "No such file or directory", "a.png"))
    'No such file or directory'
    """
    said = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    return " ".join(said.split()) or type(fault).__name__


# --- Writing ---------------------------------------------------------------------------------------------------------


def destination(path: str | os.PathLike[str]) -> Path:
    """Find the regular file, there or not yet, that is written under a path: the end of symbolic links, if it is one.

    Args:
        path: What the user named.

    Returns:
        Where to write.

    Raises:
        PicojouleError: If there is something else than a regular file.
        OSError: If that cannot be found out.
    """
    try:
        check_regular(path)
    except NotAFile as fault:
        raise PicojouleError(f"{os.fspath(path)} is {fault.kind}, not a file: choose another place") from None
    except IsADirectoryError:
        raise PicojouleError(f"{os.fspath(path)} is a folder: name a file in it, or move it away") from None
    except FileNotFoundError:
        pass
    return Path(os.path.realpath(path))


def check_destination(path: str | os.PathLike[str]) -> None:
    """Refuse a place to write to before the work is done, if there is something that may not be replaced.

    Args:
        path: What the user named.

    Raises:
        PicojouleError: If there is something else than a regular file, or nothing can be written there.
    """
    try:
        destination(path)
    except OSError as fault:
        raise PicojouleError(f"cannot write {os.fspath(path)} ({reason(fault)}): choose another place") from None


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write all of a file or none of it; it is on the disk when this returns.

    Args:
        path: What the user named.
        content: What to write.

    Raises:
        PicojouleError: If it cannot be written.
    """
    try:
        home = destination(path)
        # Not named for the file: the longest name that a file may have would become too long.
        temporary = home.with_name(f".picojoule-{secrets.token_hex(8)}.tmp")
        try:
            write_flushed(temporary, content)
            os.replace(temporary, home)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as fault:
        raise PicojouleError(
            f"cannot write {os.fspath(path)} ({reason(fault)}): {remedy(fault)} and run the same command again, "
            "nothing that was finished is lost"
        ) from fault
    flush_folder(home.parent)


def write_flushed(path: Path, content: bytes) -> None:
    """Write a new file; it is on the disk when this returns.

    Args:
        path: Where there is nothing yet.
        content: What to write.

    Raises:
        OSError: If it cannot be written.
    """
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Let a renaming outlast a power failure, where the system can; the file itself is whole in any case.

    Args:
        folder: The folder of the file that was renamed.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, if it is there.

    Args:
        path: The file.

    Raises:
        PicojouleError: If it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as fault:
        raise PicojouleError(f"cannot remove {path} ({reason(fault)}): move it away by hand") from fault


def make_folder(folder: Path) -> Path:
    """Make a folder and those above it, if they are not there yet.

    Args:
        folder: The folder.

    Returns:
        The same folder.

    Raises:
        PicojouleError: If it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as fault:
        otherwise = f", or {remedy(fault)}" if isinstance(fault, OSError) and fault.errno != errno.EEXIST else ""
        raise PicojouleError(
            f"the folder {folder} cannot be made ({reason(fault)}): choose another place{otherwise}"
        ) from None
    return folder


# --- What to do ------------------------------------------------------------------------------------------------------

_REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        errno.ENOSPC: "free some space",
        errno.EDQUOT: "free some space, or have your quota raised,",
        errno.EFBIG: "raise the limit on the size of files (`ulimit -f`), or take a disk that holds larger ones,",
        errno.EROFS: "take a disk that is not mounted read-only",
        errno.EACCES: "make the folder writable",
        errno.EPERM: "make the folder writable",
        errno.ENOENT: "make its folder first",
        errno.ENOTDIR: "take a path whose folders are not files",
        errno.EEXIST: "move away what stands there",
        errno.EISDIR: "name a file",
        errno.ENOTEMPTY: "move away what stands there",
        errno.ENAMETOOLONG: "take a shorter name",
        errno.EINVAL: "take another name",
        errno.EILSEQ: "take another name",
        errno.ELOOP: "mend the symbolic links, which lead in a circle,",
        errno.EMFILE: "raise the limit on open files (`ulimit -n`)",
        errno.ENFILE: "end some of this machine's processes, which have too many files open,",
        errno.ENOMEM: "free some memory",
        errno.EBUSY: "end what uses it",
        errno.ETXTBSY: "end what uses it",
    }
)
_READING: Mapping[int, str] = MappingProxyType(
    {
        errno.EACCES: "give yourself read permission",
        errno.EPERM: "give yourself read permission",
        errno.ENOENT: "check the path",
        errno.ENOTDIR: "check the path",
        errno.ENAMETOOLONG: "check the path",
        errno.EINVAL: "name a regular file",
        errno.EISDIR: "name a file in it",
        errno.EFBIG: "name another file",
    }
)


def remedy(fault: OSError) -> str:
    """Say what to do where a file cannot be written, as the first half of a sentence.

    Args:
        fault: What writing it raised.

    Returns:
        An imperative.

    >>> remedy(OSError(errno.EFBIG, "File too large"))
    'raise the limit on the size of files (`ulimit -f`), or take a disk that holds larger ones,'
    """
    return _REMEDIES.get(fault.errno or 0, "check the disk")


def reading_remedy(fault: OSError) -> str:
    """Say what to do where a file cannot be read.

    Args:
        fault: What reading it raised.

    Returns:
        An imperative.
    """
    return _READING.get(fault.errno or 0, remedy(fault)).removesuffix(",")
