"""Where files of a data set can lie: in a folder on disk, or in a tar archive that is read without unpacking it."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from picojoule.data.checksum import Damaged
from picojoule.errors import PicojouleError
from picojoule.io.files import opened, reading_remedy, reason

# No genuine file is larger; what claims to be is not read into memory.
_LARGEST = 256 << 20


class Container(Protocol):
    """Somewhere that files can be read from by their names."""

    def read(self, name: str) -> bytes | None:
        """The file's content, or None if it is not there."""

    def where(self, name: str) -> str:
        """The file's place, for error messages."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Folder:
    """A folder on disk."""

    path: Path

    def read(self, name: str) -> bytes | None:
        path = self.path / name
        try:
            with opened(path) as stream:
                return read_all(stream, str(path))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as fault:
            raise PicojouleError(
                f"{path} cannot be read ({reason(fault)}): {reading_remedy(fault)} or name another folder."
            ) from fault

    def where(self, name: str) -> str:
        return str(self.path / name)


@dataclass(frozen=True)
class Archive:
    """The wanted files of a tar archive, held in memory; folders inside the archive do not matter."""

    path: Path
    files: dict[str, bytes]

    @classmethod
    def open(cls, path: Path, wanted: Collection[str]) -> Archive:
        """Read the members whose last name is wanted; nothing is unpacked to disk."""
        files: dict[str, bytes] = {}
        room = _LARGEST  # for all members together
        try:
            with opened(path) as file, tarfile.open(fileobj=file, mode="r:*") as archive:
                for member in archive:
                    name = member.name.rpartition("/")[2]
                    if member.isfile() and name in wanted:
                        stream = archive.extractfile(member)
                        assert stream is not None, "a regular member has a stream"
                        files[name] = read_all(stream, f"{path}/{name}", room)
                        room -= len(files[name])
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as fault:
            raise Damaged(f"{path} is truncated or not an archive") from fault
        except OSError as fault:
            if fault.errno is None:  # not the disk's: so a broken bzip2 stream is told
                raise Damaged(f"{path} is truncated or not an archive") from fault
            raise PicojouleError(f"{path} cannot be read ({reason(fault)}): {reading_remedy(fault)}.") from fault
        return cls(path, files)

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def where(self, name: str) -> str:
        return f"{self.path}/{name}"


def read_all(stream: _Readable, where: str, room: int = _LARGEST) -> bytes:
    content = stream.read(room + 1)
    if len(content) > room:
        raise Damaged(f"{where} is far too large")
    return content
