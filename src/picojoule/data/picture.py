"""A picture of the user's own, brought to the form of a data set's images."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.io import files

_GREY = ("1", "L", "I", "F")


@dataclass(frozen=True)
class Picture:
    """What the head of a picture file says: its size, turned as its camera noted, and whether it is grey."""

    path: Path
    height: int
    width: int
    grey: bool


def read_picture(path: Path, shape: tuple[int, ...], pad: int) -> Tensor:
    """Read a PNG or JPEG file as uint8 [C, H, W], grey or in colour as a data set is, with its black border.

    A picture of another size is scaled to that of the data set; one that already has the border is taken as it is. The
    picture is turned as its camera noted, what is transparent is black, and 16 bits become 8.

    Args:
        path: The file.
        shape: Channels, height and width of the data set's images, without the border.
        pad: Rows and columns of black pixels on each side.

    Returns:
        The pixels.

    Raises:
        PicojouleError: The file is missing, cannot be read, is no such picture, or is too large; or the data set's
            samples are no pictures.
    """
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise PicojouleError(
            f"{path} is a picture, but the network takes samples of the shape {'×'.join(map(str, shape))}: let it "
            "answer a split of its data instead"
        )
    channels, height, width = shape
    converted = _converted(path, channels)
    border = pad
    if converted.size == (width + 2 * pad, height + 2 * pad):
        border = 0
    elif converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    padded = np.pad(_planes(converted, channels), ((0, 0), (border, border), (border, border)))
    return torch.from_numpy(padded)


def read_pixels(path: Path, channels: int, height: int, width: int) -> NDArray[np.uint8]:
    """Read a picture as uint8 [C, H, W], scaled to a size; otherwise as `read_picture`.

    Args:
        path: The file.
        channels: 1 for grey, 3 for colour.
        height: Rows.
        width: Columns.

    Returns:
        The pixels.

    Raises:
        PicojouleError: The file is missing, cannot be read, is no such picture, or is too large.
    """
    converted = _converted(path, channels)
    if converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    return _planes(converted, channels)


def look_at(path: Path) -> Picture:
    """Read the head of a picture file, without decoding it.

    Args:
        path: The file.

    Returns:
        Its size and whether it is grey.

    Raises:
        PicojouleError: The file cannot be read, is no PNG or JPEG picture, or is too large.
    """
    with _opened(path) as picture:
        turned = picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # the orientation: these swap the sides
        width, height = picture.size[::-1] if turned else picture.size
        return Picture(path, height, width, picture.mode.partition(";")[0] in (*_GREY, "LA"))


def _converted(path: Path, channels: int) -> Image.Image:
    with _opened(path) as picture:
        return _of_bytes(ImageOps.exif_transpose(picture)).convert("L" if channels == 1 else "RGB")


def _planes(picture: Image.Image, channels: int) -> NDArray[np.uint8]:
    pixels = np.asarray(picture, dtype=np.uint8).reshape(*picture.size[::-1], channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open a picture, and put what goes wrong with it in the block into a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with files.opened(path) as file, Image.open(file, formats=("PNG", "JPEG")) as picture:
                yield picture
    except FileNotFoundError:
        raise PicojouleError(f"there is no file {path}: check the path") from None
    except IsADirectoryError:
        raise PicojouleError(f"{path} is a folder: name the pictures in it") from None
    except UnidentifiedImageError:
        raise PicojouleError(f"{path} is neither a PNG nor a JPEG picture: convert it to one of them") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise PicojouleError(f"{path} has too many pixels to be safely read: save it smaller") from None
    except OSError as fault:
        # Pillow's own have no number.
        remedy = "save it anew" if fault.errno is None else files.reading_remedy(fault)
        raise PicojouleError(f"{path} cannot be read ({files.reason(fault)}): {remedy}") from None
    except (ValueError, SyntaxError) as fault:  # Pillow raises these too
        if isinstance(fault, PicojouleError):
            raise
        raise PicojouleError(f"{path} cannot be read ({files.reason(fault)}): save it anew") from None


def _of_bytes(picture: Image.Image) -> Image.Image:
    """Undo what `convert` gets wrong: it clips 16 bits to white and forgets what is transparent."""
    if picture.mode.startswith("I"):
        return Image.fromarray((np.asarray(picture) // 257).astype(np.uint8))
    if picture.has_transparency_data:
        black = Image.new("RGBA", picture.size, "black")
        return Image.alpha_composite(black, picture.convert("RGBA"))
    return picture
