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
    """Why one source did not give a data set: a clause for the sentence that `fetch` raises when no source is left."""


class Damaged(Unavailable):
    """The source has the data set, but not with the official content."""


@dataclass(frozen=True)
class OfficialFile:
    """One file of a data set in its official, uncompressed, binary form."""

    name: str
    md5: str
    size: int

    def check(self, content: bytes, where: str) -> None:
        """Raise `Damaged` unless `content` is the official one; `where` names the place it was read from.

        >>> OfficialFile("greeting", md5="5d41402abc4b2a76b9719d911017c592", size=5).check(b"hello", "a letter")
        """
        if len(content) != self.size:
            fault = "is truncated" if len(content) < self.size else "is too long"
            raise Damaged(f"{where} {fault} ({self.name} has {self.size} bytes)")
        found = md5([content])
        if found != self.md5:
            raise Damaged(f"{where} has the wrong checksum ({found}, {self.name} has {self.md5})")


def md5(chunks: Iterable[bytes]) -> str:
    """MD5 of the chunks in a row, in hexadecimal digits."""
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def file_md5(path: Path) -> str:
    """MD5 of a file's content, read piece by piece."""
    with opened(path) as stream:
        return md5(iter(lambda: stream.read(1 << 20), b""))
