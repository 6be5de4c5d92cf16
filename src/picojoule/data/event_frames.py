"""Frames of events: how many events each pixel and polarity has in each of T equal spans of a recording."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from picojoule.data.splits import Indices


def count_events(
    sample: Indices, time: Indices, channel: Indices, y: Indices, x: Indices, shape: tuple[int, int, int, int, int]
) -> NDArray[np.float32]:
    """Count events in frames; the time of each sample, from its first to its last event, is cut evenly.

    Args:
        sample: The number of the sample that each event belongs to.
        time: When it happened, in any unit, whole numbers.
        channel: Its polarity.
        y: Its row.
        x: Its column.
        shape: Samples, frames, channels, rows and columns.

    Returns:
        Whole numbers of events [N, T, C, H, W].

    >>> one = np.array([0, 0, 0])
    >>> frames = count_events(one, np.array([5, 6, 14]), one, one, one, (1, 2, 1, 1, 1))
    >>> frames.flatten().tolist()
    [2.0, 1.0]
    """
    samples, frames = shape[:2]
    first = np.full(samples, np.iinfo(np.int64).max)
    last = np.full(samples, np.iinfo(np.int64).min)
    np.minimum.at(first, sample, time)
    np.maximum.at(last, sample, time)
    span = np.maximum(last - first, 0)[sample] + 1
    frame = (time - first[sample]) * frames // span
    place = np.ravel_multi_index((sample, frame, channel, y, x), shape)
    return np.bincount(place, minlength=int(np.prod(shape))).reshape(shape).astype(np.float32)


def change_events(values: NDArray[np.int64], threshold: float) -> NDArray[np.float32]:
    """Encode readings over time by a threshold: a spike for each threshold by which a value has risen or fallen.

    Each channel keeps the value at which it last fired, beginning with its first one; n thresholds passed in one step
    are n spikes, and the kept value moves by as many thresholds.

    Args:
        values: Readings [N, T, C].
        threshold: The change that makes a spike, above 0.

    Returns:
        Whole numbers of spikes [N, T, 2·C]: the rises of all channels, then the falls.

    >>> change_events(np.array([[[0], [5], [4], [0]]]), threshold=2)[0].tolist()
    [[0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 2.0]]
    """
    kept = values[:, 0].astype(np.float64)
    steps = []
    for t in range(values.shape[1]):
        moved = np.trunc((values[:, t] - kept) / threshold)
        kept += moved * threshold
        steps.append(np.concatenate([np.maximum(moved, 0), np.maximum(-moved, 0)], axis=1))
    return np.stack(steps, axis=1).astype(np.float32)


def summed_in_frames(spikes: NDArray[np.float32], frames: int) -> NDArray[np.float32]:
    """Add up spikes [N, T, …] in equal spans of time, [N, frames, …]."""
    return np.add.reduceat(spikes, _starts(spikes.shape[1], frames), axis=1)


def averaged_in_frames(values: NDArray[np.float32], frames: int) -> NDArray[np.float32]:
    """Average readings [N, T, …] in equal spans of time, [N, frames, …]."""
    starts = _starts(values.shape[1], frames)
    lengths = np.diff([*starts, values.shape[1]]).astype(np.float32)
    means: NDArray[np.float32] = summed_in_frames(values, frames) / lengths.reshape(-1, *[1] * (values.ndim - 2))
    return means


def _starts(steps: int, frames: int) -> Indices:
    return (np.arange(frames) * steps) // frames
