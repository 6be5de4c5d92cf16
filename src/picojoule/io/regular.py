"""Opening regular files: a pipe that nobody writes to, a device or a socket is refused by its kind."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotAFile(OSError):
    """The error for a path at which there is neither a regular file nor a folder.

    Args:
        kind: What there is, as in "it is a pipe".
    """

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EINVAL, f"it is {kind}, not a file")
        self.kind = kind


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a path that does not lead to a regular file.

    Args:
        path: What the user named.

    Raises:
        OSError: If there is nothing, or something else.
    """
    try:
        mode = os.stat(path).st_mode
    except ValueError as fault:  # a null byte, or letters that no file name has
        raise OSError(errno.EINVAL, f"its name is not a path: {fault}") from None
    _check_mode(mode)


def _check_mode(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    raise NotAFile(next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else"))


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: What the user named.

    Returns:
        The open file, in binary mode.

    Raises:
        OSError: If it is not a regular file, or cannot be read.
    """
    check_regular(path)  # first, because opening a device can do something to it
    return open(path, "rb", opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    """Return a descriptor; without waiting, should a pipe have taken the file's place in the meantime."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_mode(os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
