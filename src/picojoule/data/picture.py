"""One picture of the user's, brought to the form of a data set's images."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from picojoule.data.datasets import DATASETS
from picojoule.errors import PicojouleError
from picojoule.io import files


def read_picture(path: Path, name: str, pad: int) -> Tensor:
    """A PNG or JPEG file as uint8 [C, H, W], grey or in colour as the data set `name` is, with its black border.

    A picture of another size is scaled to that of the data set; one that already has the border is taken as it is. The
    picture is turned as its camera noted, what is transparent is black, and 16 bits become 8.
    """
    channels, height, width = DATASETS[name].shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with files.opened(path) as file, Image.open(file, formats=("PNG", "JPEG")) as picture:
                converted = _of_bytes(ImageOps.exif_transpose(picture)).convert("L" if channels == 1 else "RGB")
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
        raise PicojouleError(f"{path} cannot be read ({files.reason(fault)}): save it anew") from None
    border = pad
    if converted.size == (width + 2 * pad, height + 2 * pad):
        border = 0
    elif converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(converted, dtype=np.uint8).reshape(*converted.size[::-1], channels)
    padded = np.pad(pixels, ((border, border), (border, border), (0, 0)))
    return torch.from_numpy(np.ascontiguousarray(padded.transpose(2, 0, 1)))


def _of_bytes(picture: Image.Image) -> Image.Image:
    """The same without what `convert` gets wrong: it clips 16 bits to white and forgets what is transparent."""
    if picture.mode.startswith("I"):
        return Image.fromarray((np.asarray(picture) // 257).astype(np.uint8))
    if picture.has_transparency_data:
        black = Image.new("RGBA", picture.size, "black")
        return Image.alpha_composite(black, picture.convert("RGBA"))
    return picture
