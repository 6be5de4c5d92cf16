"""scikit-learn's handwritten digits: 1797 images of 8×8, part of the library, so there is always some data."""

from __future__ import annotations

import numpy as np

from picojoule.data.decoders import Arrays
from picojoule.data.splits import draw_stratified

TEST_SEED = 10_000
_LEVELS = 16
_ENLARGE = 4


def digits_parts(test_images: int) -> tuple[Arrays, Arrays]:
    """Training and test images; the test images are a fixed, stratified draw, since the set has no official split.

    The grey levels 0 … 16 are spread over 0 … 255, and each pixel becomes a square of 4×4, which gives 32×32.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels = np.asarray(bunch.images)
    labels = np.asarray(bunch.target, dtype=np.int64)
    pixels = np.rint(levels * 255 / _LEVELS).astype(np.uint8)
    images = pixels.repeat(_ENLARGE, axis=1).repeat(_ENLARGE, axis=2)[:, None]
    test, train = draw_stratified(labels, test_images, TEST_SEED)
    return (images[train], labels[train]), (images[test], labels[test])
