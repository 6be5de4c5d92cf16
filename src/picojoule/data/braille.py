"""Braille: letters that a robot's fingertip slides over, 12 pressures at 40 Hz (Müller-Cleve et al., 2022, CC BY 4.0).

The authors publish pickles, which would run code when they are opened; so this reads an `.npz` file with the same
numbers (`scripts/braille.py` makes it of theirs): `taxels` uint8 [1350, 76, 12], lower where the finger is pressed, and
`labels` [1350], the letter's place among the sorted names. What is checked is the content of the two arrays, so it does
not matter who saved them.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from picojoule.data.checksum import Damaged
from picojoule.data.event_frames import averaged_in_frames, change_events, summed_in_frames

Encoding: TypeAlias = Literal["spikes", "currents"]
STEPS, TAXELS = 76, 12
THRESHOLD = 5.0
"""The change of a reading (of 255) that makes a spike, unless said otherwise: above the sensor's noise of ±3."""
CONTENT = "499cc0d7589b221bed1912f69e8a3f34"
"""MD5 of the bytes of `taxels`, then of `labels` as uint8."""


def read_readings(path: Path, content: str = CONTENT) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the pressures and their letters, and check that they are the official ones.

    Args:
        path: `braille.npz`.
        content: The checksum of the two arrays.

    Returns:
        Readings [N, T, 12] and labels [N].

    Raises:
        Damaged: It is another file.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            taxels, labels = arrays["taxels"], arrays["labels"]
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError) as fault:
        raise Damaged(f"{path} is damaged, or not an .npz file with taxels and labels") from fault
    if taxels.dtype != np.uint8 or taxels.ndim != 3 or labels.shape != taxels.shape[:1]:
        raise Damaged(f"{path} has taxels of {taxels.dtype} {taxels.shape} and labels of {labels.shape}")
    found = hashlib.md5(taxels.tobytes() + labels.astype(np.uint8).tobytes(), usedforsecurity=False).hexdigest()
    if found != content:
        raise Damaged(f"{path} has other readings than the official ones (checksum {found}, not {content})")
    return taxels.astype(np.int64), labels.astype(np.int64)


def encoded(readings: NDArray[np.int64], encoding: Encoding, frames: int, threshold: float) -> NDArray[np.float32]:
    """Encode readings as spikes, or as currents in [0, 1] that are 0 where nothing is pressed.

    Args:
        readings: [N, T, 12].
        encoding: Which of the two.
        frames: Time steps of the result; spikes are added up and currents averaged in each.
        threshold: The change that makes a spike.

    Returns:
        [N, frames, 24, 1, 1] of spikes, rises before falls; [N, frames, 12, 1, 1] of currents.
    """
    if encoding == "spikes":
        values = summed_in_frames(change_events(-readings, threshold), frames)
    else:
        values = averaged_in_frames(((255 - readings) / 255).astype(np.float32), frames)
    return values[..., None, None]
