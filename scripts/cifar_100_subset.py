"""Make own data of a part of CIFAR-100: training images from an .npz file, test images from the official test file.

    python scripts/cifar_100_subset.py train.npz cifar-100-python/test cifar-100-20000.npz
    picojoule sweep small/resnet18-cifar-100

The first file has `images` (uint8, [N, 3, 32, 32]) and `labels`; nothing in either can run code.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from picojoule.data.pickles import cifar_records
from picojoule.io.files import read_bytes, write_atomically

_PIXELS = (3, 32, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "test", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    with np.load(options.train, allow_pickle=False) as train:
        images, labels = train["images"], train["labels"].astype(np.int64)
    content = cifar_records(read_bytes(options.test), ("coarse_labels", "fine_labels"), str(options.test))
    records = np.frombuffer(content, np.uint8).reshape(-1, 2 + 3072)  # coarse and fine label, then the pixels
    buffer = io.BytesIO()
    np.savez(
        buffer,
        x_train=images,
        y_train=labels,
        x_test=records[:, 2:].reshape(-1, *_PIXELS),
        y_test=records[:, 1].astype(np.int64),
    )
    write_atomically(options.out, buffer.getvalue())
    print(f"{len(images):,} training and {len(records):,} test images")
    print(options.out)


if __name__ == "__main__":
    main()
