"""The official binary formats against values written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from picojoule.data.decoders import cifar_decoder, decode_idx, idx_array
from picojoule.errors import PicojouleError


def test_an_idx_file_has_its_extents_in_big_endian_order() -> None:
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    assert idx_array(content).tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\x08", bytes([0, 0, 9, 1, 0, 0, 0, 1, 7]), bytes([0, 0, 8, 1, 0, 0, 0, 2, 7]), b"\x1f\x8b\x08\0"],
    ids=["empty", "header cut", "other type", "one short", "gzip"],
)
def test_what_is_not_idx_is_refused(content: bytes) -> None:
    with pytest.raises(PicojouleError, match="idx"):
        idx_array(content)


def test_idx_images_and_labels_must_be_equally_many() -> None:
    images = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 5, 6])
    two, one = bytes([0, 0, 8, 1, 0, 0, 0, 2, 3, 4]), bytes([0, 0, 8, 1, 0, 0, 0, 1, 3])
    pictures, labels = decode_idx([images, two])
    assert pictures.shape == (2, 1, 1, 1)
    assert labels.dtype == np.int64
    assert labels.tolist() == [3, 4]
    with pytest.raises(PicojouleError, match="disagree"):
        decode_idx([images, one])


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_a_cifar_record_is_labels_then_planes_and_the_last_label_counts(label_bytes: int) -> None:
    pixels = [bytes(np.random.default_rng(k).integers(0, 256, 3072, dtype=np.uint8)) for k in range(3)]
    labels = [bytes([9, 4][-label_bytes:]), bytes([9, 5][-label_bytes:]), bytes([9, 6][-label_bytes:])]
    files = [labels[0] + pixels[0] + labels[1] + pixels[1], labels[2] + pixels[2]]
    images, classes = cifar_decoder(label_bytes)(files)
    assert classes.tolist() == [4, 5, 6]
    assert images.shape == (3, 3, 32, 32)
    for image, channel, row, column in [(0, 0, 0, 0), (1, 2, 31, 31), (2, 1, 5, 17)]:
        assert images[image, channel, row, column] == pixels[image][channel * 1024 + row * 32 + column]


def test_a_cifar_file_of_odd_length_is_refused() -> None:
    with pytest.raises(PicojouleError, match="multiple of 3073"):
        cifar_decoder(1)([bytes(3072)])
