"""The official files by name, size and MD5 of their uncompressed content, and the check against both.

MD5 is what the data sets' authors publish. It guards against damage and mix-ups, which is what happens to data sets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from picojoule.io.files import opened


class Unavailable(Exception):
    """The reason why a source did not give a data set, as a clause for the error that `fetch` raises."""


class Damaged(Unavailable):
    """The reason of a source that has the data set, but not with the official content."""


@dataclass(frozen=True)
class OfficialFile:
    """One file of a data set in its official, uncompressed, binary form."""

    name: str
    md5: str
    """Of the content, in hexadecimal digits."""
    size: int
    """Bytes of the content."""

    def check(self, content: bytes, where: str) -> None:
        """Compare a content with the official one.

        Args:
            content: The bytes that were read.
            where: The place they were read from, for the error.

        Raises:
            Damaged: The size or the checksum differs.

        >>> OfficialFile("greeting", md5="5d41402abc4b2a76b9719d911017c592", size=5).check(b"hello", "a letter")
        """
        if len(content) != self.size:
            fault = "is truncated" if len(content) < self.size else "is too long"
            raise Damaged(f"{where} {fault} ({self.name} has {self.size} bytes)")
        found = md5([content])
        if found != self.md5:
            raise Damaged(f"{where} has the wrong checksum ({found}, {self.name} has {self.md5})")


def md5(chunks: Iterable[bytes]) -> str:
    """Compute the MD5 of the chunks in a row, in hexadecimal digits."""
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def file_md5(path: Path) -> str:
    """Compute the MD5 of a file's content, read piece by piece."""
    with opened(path) as stream:
        return md5(iter(lambda: stream.read(1 << 20), b""))
