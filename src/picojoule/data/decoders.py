"""The official binary formats, decoded: idx (Fashion-MNIST) and CIFAR's records.

A decoder takes the contents of one part's files in order and gives images (uint8 [N, C, H, W]) and labels (int64 [N]).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from picojoule.errors import PicojouleError

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]
Decoder = Callable[[Sequence[bytes]], Arrays]

_UNSIGNED_BYTE = 8


def idx_array(content: bytes) -> NDArray[np.uint8]:
    """One idx file: two zero bytes, element type, number of axes, each extent as big-endian uint32, the elements.

    >>> idx_array(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])).tolist()
    [7, 8, 9]
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE or len(content) < 4 + 4 * content[3]:
        raise PicojouleError("The content is not an idx file of bytes; fetch the data set again.")
    axes = content[3]
    shape = struct.unpack_from(f">{axes}I", content, 4)
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes)
    if values.size != int(np.prod(shape, dtype=np.int64)):
        raise PicojouleError(f"The idx file announces {shape} bytes and holds {values.size}; fetch the data set again.")
    return values.reshape(shape)


def decode_idx(contents: Sequence[bytes]) -> Arrays:
    """An idx file of images and one of labels."""
    images, labels = (idx_array(content) for content in contents)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise PicojouleError(f"idx images {images.shape} and labels {labels.shape} disagree; fetch the data set again.")
    return images[:, None], labels.astype(np.int64)


def cifar_decoder(label_bytes: int) -> Decoder:
    """CIFAR's binary files: records of `label_bytes` labels (the last is the class) and 3×32×32 pixels by planes."""

    def decode(contents: Sequence[bytes]) -> Arrays:
        width = label_bytes + 3 * 32 * 32
        parts = [np.frombuffer(content, dtype=np.uint8) for content in contents]
        if any(part.size % width for part in parts):
            raise PicojouleError(f"A CIFAR file is no multiple of {width} bytes; fetch the data set again.")
        records = np.concatenate([part.reshape(-1, width) for part in parts])
        return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label_bytes - 1].astype(np.int64)

    return decode
