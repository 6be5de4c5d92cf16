"""Data of the user's own in one .npz file: arrays by part, or lists of events that become frames over time.

| array | what |
|---|---|
| `x_train`, `x_validation`, `x_test` | [N, D], [N, H, W], [N, C, H, W] or [N, T, C, H, W]; uint8 or floats |
| `events_train`, … in their place | integers [E, 5]: sample, time, x, y, polarity (0 or 1) of each event |
| `y_train`, `y_validation`, `y_test` | classes from 0 up, [N] |
| `frames`, `height`, `width` | with events: how many frames, evenly spaced in time, of which size |
| `class_names` | optional: a text for each class |

Only `x_train` (or `events_train`) and `y_train` are needed; `x_val` and `x_valid` are `x_validation`, and an array of
any other name is refused. Nothing in the file can run code: pickled objects are
refused. A file that is larger than memory is mapped, for which its arrays must not be compressed.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from picojoule.data.event_frames import count_events
from picojoule.data.parts import PARTS, SPELLINGS, Part, Parts, checked_labels, checked_part
from picojoule.data.samples import ArraySamples, Samples, room
from picojoule.errors import PicojouleError
from picojoule.io import files

_LOCAL_HEADER = struct.Struct("<26xHH")
_ENCRYPTED = 1
"""The bit of a zip file's flags."""
_COLUMNS = 5
_KINDS = ("x", "events", "y")
_OTHERS = ("frames", "height", "width", "class_names")


def read_npz(path: Path) -> Parts:
    """Read the parts of a data set from an .npz file.

    Args:
        path: The file.

    Returns:
        Its parts.

    Raises:
        PicojouleError: The file is not there, damaged, or its arrays are not a data set; the message names them.
    """
    try:
        files.check_regular(path)
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            arrays = _Arrays(path, archive, members)
            return _parts(arrays, path)
    except FileNotFoundError:
        raise PicojouleError(
            f"there is no file {path}: check the path, or run from the folder it starts from"
        ) from None
    except OSError as fault:
        raise PicojouleError(f"{path} cannot be read ({files.reason(fault)}): {files.reading_remedy(fault)}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error) as fault:
        raise PicojouleError(
            f"{path} is damaged or not an .npz file ({files.reason(fault)}): save it anew with numpy.savez"
        ) from None


class _Arrays:
    """The arrays of an .npz file by name, mapped into memory where they would not fit."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
        self._path, self._archive, self._members = path, archive, members
        self._mapped = sum(info.file_size for info in members.values()) > room()

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> NDArray[Any]:
        info = self._members[name]
        try:
            if info.flag_bits & _ENCRYPTED:
                raise PicojouleError(f"{name} in {self._path} is encrypted: save it anew with numpy.savez")
            if self._mapped and info.file_size > (1 << 20):
                return self._map(name, info)
            with self._archive.open(info) as stream:
                _read_header(stream, info.file_size)
            with self._archive.open(info) as stream:
                array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
                return array
        except ValueError as fault:
            raise PicojouleError(
                f"{name} in {self._path} is not an array of numbers ({files.reason(fault)}): save it anew with "
                "numpy.savez, without objects"
            ) from None

    def _map(self, name: str, info: zipfile.ZipInfo) -> NDArray[Any]:
        """Map an array that is stored without compression, so that only what is used is read."""
        if info.compress_type != zipfile.ZIP_STORED:
            raise PicojouleError(
                f"{self._path} is larger than memory and {name} in it is compressed, so that it cannot be read piece "
                "by piece: save it with numpy.savez instead of savez_compressed"
            )
        with files.opened(self._path) as stream:
            stream.seek(info.header_offset)
            stream.seek(sum(_LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))), 1)
            shape, fortran, dtype = _read_header(stream, info.file_size)
            begin = stream.tell()
        return np.memmap(self._path, dtype, "r", begin, shape, "F" if fortran else "C")

    def text(self, name: str) -> tuple[str, ...]:
        array = self[name]
        if array.ndim != 1 or array.dtype.kind != "U":
            raise PicojouleError(f"{name} in {self._path} is not a list of texts: save it as numpy.array([…])")
        return tuple(map(str, array))

    def number(self, name: str) -> int:
        if name not in self or self[name].shape != () or self[name].dtype.kind not in "iu" or self[name] < 1:
            raise PicojouleError(f"events in {self._path} need {name}, a whole number from 1 up: save it beside them")
        return int(self[name])


def _read_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type of an array of that many bytes, header included, and leave its data to be read.

    A shape that is larger than the file is refused here, before memory is asked for.
    """
    begin = stream.tell()
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if math.prod(shape) * dtype.itemsize != size - (stream.tell() - begin):
        raise ValueError(f"its shape {shape} is not that of its {size:,} bytes")
    return shape, fortran, dtype


def _parts(arrays: _Arrays, path: Path) -> Parts:
    names = {part: _names(arrays, part, path) for part in PARTS}
    if not names["train"].keys() & {"x", "events"}:
        raise PicojouleError(
            f"{path} has no x_train or events_train (it has {', '.join(arrays) or 'nothing'}): save it with "
            "numpy.savez(file, x_train=…, y_train=…, x_test=…, y_test=…)"
        )
    known = {*_OTHERS, *(name for named in names.values() for name in named.values())}
    strange = next((name for name in arrays if name not in known), None)
    if strange is not None:
        raise PicojouleError(
            f"{path} has an array {strange}, which is no part of a data set: name arrays x_train, y_train, "
            "x_validation, y_validation, x_test and y_test (or events_… for x_…), and leave out the others"
        )
    found = {part: _part(arrays, part, names[part], path) for part in PARTS if names[part]}
    class_names = _class_names(arrays, 1 + max(int(part.labels.max(initial=0)) for part in found.values()), path)
    return Parts(found["train"], found.get("validation"), found.get("test"), str(path), class_names)


def _names(arrays: _Arrays, part: str, path: Path) -> dict[str, str]:
    """Find what the samples, events and labels of a part are called in the file; what it has not is left out."""
    names: dict[str, str] = {}
    for kind in _KINDS:
        given = [f"{kind}_{spelling}" for spelling in SPELLINGS[part] if f"{kind}_{spelling}" in arrays]
        if len(given) > 1:
            raise PicojouleError(f"{path} has both {given[0]} and {given[1]}: keep one of them")
        if given:
            names[kind] = given[0]
    if "x" in names and "events" in names:
        raise PicojouleError(f"{path} has both {names['x']} and {names['events']}: keep one of them")
    return names


def _class_names(arrays: _Arrays, classes: int, path: Path) -> tuple[str, ...]:
    """Read the names of the classes, which must be as many as there are classes, and tell them apart."""
    if "class_names" not in arrays:
        return ()
    names = arrays.text("class_names")
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise PicojouleError(f"class_names in {path} has {twice!r} twice: give each class a name of its own")
    if len(names) < classes:
        raise PicojouleError(
            f"class_names in {path} names {len(names)} classes, and the labels go up to {classes - 1}: name every "
            "class, in the order of their numbers"
        )
    return names


def _part(arrays: _Arrays, part: str, names: dict[str, str], path: Path) -> Part:
    if "y" not in names:
        raise PicojouleError(f"{path} has no y_{part}, the classes of its {part} samples: save them beside the samples")
    where = f"the {part} part of {path}"
    labels = checked_labels(arrays[names["y"]], where)
    found: Samples
    if "x" in names:
        found = ArraySamples(arrays[names["x"]], f"{names['x']} in {path}")
    elif "events" in names:
        sizes = tuple(arrays.number(name) for name in ("frames", "height", "width"))
        place = f"{names['events']} in {path}"
        found = ArraySamples(_binned(arrays[names["events"]], len(labels), sizes, place), place)
    else:
        raise PicojouleError(f"{path} has {names['y']} but no x_{part}: save the samples beside their classes")
    return checked_part(found, labels, where)


def _binned(events: NDArray[Any], samples: int, sizes: tuple[int, ...], where: str) -> NDArray[np.float32]:
    """Count events in frames [N, T, 2, H, W]; the time of each sample, first to last event, is cut evenly."""
    frames, height, width = sizes
    if events.ndim != 2 or events.shape[1] != _COLUMNS or events.dtype.kind not in "iu":
        raise PicojouleError(
            f"{where} is {events.dtype} of the shape {events.shape}: give integers [E, 5], which are sample, time, x, "
            "y and polarity"
        )
    needed = samples * frames * 2 * height * width * np.dtype(np.float32).itemsize
    if needed > room():
        raise PicojouleError(
            f"{where} would be {needed:,} bytes as {frames:,} frames of {height:,}×{width:,}, which is more than fits "
            "into memory: take fewer frames, or a smaller height and width"
        )
    sample, time, x, y, polarity = np.asarray(events, dtype=np.int64).T
    for name, values, end in (
        ("sample", sample, samples),
        ("x", x, width),
        ("y", y, height),
        ("polarity", polarity, 2),
    ):
        if len(values) and not (values.min() >= 0 and values.max() < end):
            raise PicojouleError(f"{where} has a {name} outside of 0 … {end - 1}: check the events")
    return count_events(sample, time, polarity, y, x, (samples, frames, 2, height, width))
