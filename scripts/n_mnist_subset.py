"""Make own data of a part of N-MNIST: the recordings of an .npz file as event lists, to be counted in frames.

    python scripts/n_mnist_subset.py nmnist-small.npz n-mnist-1100.npz --frames 5
    picojoule sweep small/n-mnist-cnn4

The first file has, for `train` and `test`, `…_xyp` (uint8, [E, 3]), `…_t` (microseconds), `…_offsets` (where each
recording begins, and the end) and `…_labels`. Its test part is small, so the last recordings of the training part join
it (`--more-test`).
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.io.files import write_atomically

_SIDE = 34


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--more-test", type=int, default=250)
    options = parser.parse_args()
    with np.load(options.source, allow_pickle=False) as arrays:
        train, test = (_recordings(arrays, part) for part in ("train", "test"))
    last = len(train) - options.more_test
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        **_part("train", train[:last]),
        **_part("test", [*test, *train[last:]]),
        frames=np.int64(options.frames),
        height=np.int64(_SIDE),
        width=np.int64(_SIDE),
    )
    write_atomically(options.out, buffer.getvalue())
    print(f"{last:,} recordings to train and validate with, {len(test) + len(train) - last:,} to test")
    print(options.out)


_Recording = tuple[NDArray[Any], int]
"""Its events [E, 4] (time, x, y, polarity), and its class."""


def _recordings(arrays: Any, part: str) -> list[_Recording]:
    events = np.column_stack([arrays[f"{part}_t"], arrays[f"{part}_xyp"]]).astype(np.int32)
    pieces = np.split(events, arrays[f"{part}_offsets"][1:-1])
    return list(zip(pieces, arrays[f"{part}_labels"].tolist(), strict=True))


def _part(name: str, recordings: list[_Recording]) -> dict[str, NDArray[Any]]:
    lists = [np.insert(events, 0, number, axis=1) for number, (events, _) in enumerate(recordings)]
    labels = np.array([label for _, label in recordings], dtype=np.int64)
    return {f"events_{name}": np.concatenate(lists), f"y_{name}": labels}


if __name__ == "__main__":
    main()
