"""N-MNIST: the digits of MNIST, seen by an event camera that makes three small movements (Orchard et al., 2015).

The official form are two zip files with one file for each recording, `Train/5/00001.bin`. An event has five bytes: its
column, its row, then one bit of polarity and 23 bits of time in microseconds.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from picojoule.data.checksum import Damaged
from picojoule.data.event_frames import count_events
from picojoule.data.parts import Part
from picojoule.data.splits import Indices

SIDE = 34
"""Rows and columns."""
_BYTES = 5
_NAME = re.compile(r"(?:.*/)?(?:Train|Test)/([0-9])/(\d+)\.bin")


@dataclass(eq=False)
class Recordings:
    """Recordings in a zip file, each made into frames when it is asked for.

    Args:
        path: The file.
        names: The recordings in it, in order.
        frames: Frames of each.
    """

    path: Path
    names: tuple[str, ...]
    frames: int
    dtype: np.dtype[np.float32] = field(default_factory=lambda: np.dtype(np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        """Frames, polarities, rows and columns of one recording."""
        return (self.frames, 2, SIDE, SIDE)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, positions: Indices) -> NDArray[np.float32]:
        """Count the events of these recordings in frames, [N, T, 2, 34, 34]."""
        with zipfile.ZipFile(self.path) as archive:
            found = [events(archive.read(self.names[i]), f"{self.path}/{self.names[i]}") for i in positions]
        sample = np.repeat(np.arange(len(found)), [len(each) for each in found])
        time, polarity, y, x = np.concatenate(found).T if found else np.zeros((4, 0), np.int64)
        return count_events(sample, time, polarity, y, x, (len(found), *self.shape))  # type: ignore[arg-type]


def events(content: bytes, where: str) -> NDArray[np.int64]:
    """Decode the events of one recording.

    Args:
        content: The file's bytes.
        where: Its name in errors.

    Returns:
        Time, polarity, row and column of each event, [E, 4].

    Raises:
        Damaged: It is not made of whole events on a map of 34×34.

    >>> events(bytes([3, 4, 0b10000000, 1, 2]), "here").tolist()
    [[258, 1, 4, 3]]
    """
    if len(content) % _BYTES:
        raise Damaged(f"{where} is not made of events of {_BYTES} bytes")
    x, y, high, middle, low = np.frombuffer(content, np.uint8).reshape(-1, _BYTES).T.astype(np.int64)
    if len(x) and max(x.max(), y.max()) >= SIDE:
        raise Damaged(f"{where} has an event outside of {SIDE}×{SIDE} pixels")
    return np.stack([(high & 127) << 16 | middle << 8 | low, high >> 7, y, x], axis=1)


def read_recordings(path: Path, frames: int) -> Part:
    """List the recordings of a zip file with their classes, in the order of class and number.

    Args:
        path: `Train.zip` or `Test.zip`.
        frames: Frames that each recording is to have.

    Returns:
        The part.

    Raises:
        Damaged: It is no zip file of recordings.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = sorted(name for name in archive.namelist() if _NAME.fullmatch(name))
    except (zipfile.BadZipFile, zlib.error, EOFError) as fault:
        raise Damaged(f"{path} is damaged or not a zip file") from fault
    labels = [int(match[1]) for match in map(_NAME.fullmatch, found) if match]
    return Part(Recordings(path, tuple(found), frames), np.array(labels, dtype=np.int64))
