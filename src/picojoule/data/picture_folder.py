"""Data of the user's own as pictures: a folder for each class, with PNG and JPEG files in it.

`PATH/train/CLASS/…`, `PATH/test/CLASS/…` (and `PATH/validation/CLASS/…`), or `PATH/CLASS/…` alone. Classes are numbered
in the order of their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.data.parts import PARTS, SPELLINGS, Part, Parts
from picojoule.data.picture import Picture, look_at, read_pixels
from picojoule.data.splits import Indices
from picojoule.errors import PicojouleError
from picojoule.io import files

_ENDINGS = (".png", ".jpg", ".jpeg")
_PARTS = {spelling: part for part, spellings in SPELLINGS.items() for spelling in spellings}


@dataclass(frozen=True, eq=False)
class PictureSamples:
    """Pictures that are decoded when they are asked for.

    Attributes:
        paths: The files.
        shape: Channels, height and width that each is brought to.
    """

    paths: tuple[Path, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers: uint8."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, positions: Indices) -> NDArray[np.uint8]:
        """Decode the pictures at these positions, [N, C, H, W]."""
        channels, height, width = self.shape
        pixels = [read_pixels(self.paths[position], channels, height, width) for position in positions.tolist()]
        return np.stack(pixels) if pixels else np.zeros((0, *self.shape), np.uint8)


def read_folder(folder: Path, size: int | None) -> Parts:
    """Find the pictures of a folder and look at the size of each.

    Args:
        folder: The folder.
        size: Rows and columns to which all are scaled; None where all have one size already.

    Returns:
        Its parts; pictures are not decoded yet. They are grey if all of them are.

    Raises:
        PicojouleError: There are no classes, a file is no picture, or sizes differ and none was given.
    """
    if not folder.is_dir():
        raise PicojouleError(f"there is no folder {folder}: check the path, or run from the folder it starts from")
    places = _places(folder)
    names = tuple(path.name for path in _folders(places["train"]))
    if len(names) < 2:
        raise PicojouleError(
            f"{places['train']} has {len(names)} folder{'s' * (len(names) != 1)} of classes: put the pictures of each "
            "class into a folder of its own, at least two of them"
        )
    found = {part: _pictures(places[part], names) for part in PARTS if part in places}
    looked = [look_at(path) for paths, _ in found.values() for path in paths]
    shape = _common_shape(looked, size)
    parts = {part: Part(PictureSamples(paths, shape), labels) for part, (paths, labels) in found.items()}
    return Parts(parts["train"], parts.get("validation"), parts.get("test"), str(folder), names)


def _places(folder: Path) -> dict[str, Path]:
    """Find the folder of each part; without a folder for training, the classes are right here."""
    below = _folders(folder)
    named: dict[str, Path] = {}
    for path in below:
        part = _PARTS.get(path.name.lower())
        if part is not None and part in named:
            raise PicojouleError(
                f"{named[part]} and {path} are both the {part} part: put the pictures into one of them"
            )
        if part is not None:
            named[part] = path
    if "train" not in named:
        if named and len(named) == len(below):
            raise PicojouleError(
                f"{folder} has {min(named.values())} but no train folder: put the training pictures into one"
            )
        return {"train": folder}
    other = next((path for path in below if path not in named.values()), None)
    if other is not None:
        raise PicojouleError(
            f"{other} is neither train, validation nor test, but stands beside {named['train']}: move it away, or into "
            "the part that it belongs to"
        )
    return named


def _folders(folder: Path) -> list[Path]:
    return [path for path in _listed(folder) if path.is_dir()]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as fault:
        raise PicojouleError(
            f"{folder} cannot be read ({files.reason(fault)}): {files.reading_remedy(fault)}"
        ) from None


def _pictures(place: Path, names: tuple[str, ...]) -> tuple[tuple[Path, ...], NDArray[np.int64]]:
    """List the pictures of a part in order, with the class of each."""
    strange = {path.name for path in _folders(place)} - set(names)
    if strange:
        raise PicojouleError(
            f"{place / min(strange)} is a class that the training pictures do not have: give both the same folders"
        )
    paths: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(names):
        inside = place / name
        within = _listed(inside) if inside.is_dir() else []
        other = next((path for path in within if path.suffix.lower() not in _ENDINGS), None)
        if other is not None and other.is_dir():
            raise PicojouleError(f"{other} is a folder inside a class: move its pictures up, or it out of the folder")
        if other is not None:
            raise PicojouleError(
                f"{other} is not named like a picture (.png, .jpg, .jpeg): convert it, or move it out of the folder"
            )
        if inside.is_dir() and not within:
            raise PicojouleError(f"{inside} holds no picture: put PNG or JPEG files into it, or remove the folder")
        paths += within
        labels += [number] * len(within)
    return tuple(paths), np.array(labels, dtype=np.int64)


def _common_shape(looked: list[Picture], size: int | None) -> tuple[int, int, int]:
    channels = 1 if all(picture.grey for picture in looked) else 3
    if size is not None:
        return channels, size, size
    first = looked[0] if looked else None
    if first is None:
        raise PicojouleError("the folders of the classes hold no picture: put PNG or JPEG files into them")
    other = next((p for p in looked if (p.height, p.width) != (first.height, first.width)), None)
    if other is not None:
        raise PicojouleError(
            f"{first.path} has {first.height}×{first.width} pixels and {other.path} has {other.height}×{other.width}: "
            "say to which size all are to be scaled, as in data.size=32"
        )
    return channels, first.height, first.width
