"""The metrics of a run, which are the lines of `metrics.jsonl`: the one place that reads, checks and writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from picojoule.io import files
from picojoule.runs.result import LayerResult
from picojoule.runs.stored import Amount, Count, InvalidContent, Joules, Number, Share, StoredValue


class EpochMetrics(StoredValue):
    """What was measured in one epoch: a line of `metrics.jsonl`.

    The energy, the firing rates and the layers are those of the validation images, per sample.
    """

    epoch: Count
    """Counted from 0."""
    train_loss: Number
    """Mean cross-entropy over the epoch's training images, without the penalty."""
    train_accuracy: Number
    """Share of right answers among them."""
    train_penalty: Number | None
    """Mean of the penalty Ω over them; null for a network without spikes."""
    validation_loss: Number
    """Mean cross-entropy on the validation images after the epoch."""
    validation_accuracy: Share
    """Share of right answers among them."""
    joules: Joules | None
    """Energy of the spikes; null for a network without spikes."""
    rate_mean: Amount | None
    """Mean over the layers of their firing rates."""
    dead_rate: Share | None
    """Share of all neurons that never fired."""
    layers: tuple[LayerResult, ...]
    """The same by layer, in the order of the model."""
    lr: Amount
    """The learning rate of the epoch."""
    strength: Number | None = None
    """The strength λ of the penalty in the epoch's last batch."""
    target_joules: Joules | None = None
    """What a run with a budget wanted to spend by the end of the epoch; null where nothing was wanted yet."""
    seconds: Amount
    """How long the epoch took, its measurement not included."""
    peak_bytes: Count | None = None
    """The most memory that the process had held until then; null where the system does not tell."""


def read_metrics(path: Path, at_most: int | None = None) -> tuple[int, list[EpochMetrics]]:
    """Read a `metrics.jsonl`.

    Args:
        path: The file.
        at_most: Read no more than so many lines, evenly spaced, the first and the last among them; None reads all.

    Returns:
        The number of lines, and the epochs that were read; 0 and none where there is no such file yet.

    Raises:
        InvalidContent: If a line is not that of an epoch; says which.
        OSError: If the file cannot be read.
        ValueError: If it is not UTF-8.
    """
    try:
        lines = files.read_text(path).splitlines()
    except FileNotFoundError:
        return 0, []
    return len(lines), [_parse_line(lines[index], index) for index in _evenly_spaced(len(lines), at_most)]


def metrics_text(metrics: Iterable[EpochMetrics]) -> str:
    """Give the text of `metrics.jsonl`.

    Args:
        metrics: The epochs so far.

    Returns:
        A line of JSON for each.
    """
    return "".join(json.dumps(epoch.to_dict(), allow_nan=False) + "\n" for epoch in metrics)


def _parse_line(line: str, index: int) -> EpochMetrics:
    try:
        return EpochMetrics.parse_json(line)
    except InvalidContent as fault:
        raise InvalidContent(f"line {index + 1}: {fault}") from None


def _evenly_spaced(count: int, at_most: int | None) -> Iterable[int]:
    """Choose indices below `count`.

    >>> list(_evenly_spaced(5, 3)), list(_evenly_spaced(2, 3)), list(_evenly_spaced(5, None))
    ([0, 2, 4], [0, 1], [0, 1, 2, 3, 4])
    """
    if at_most is None or count <= at_most or at_most < 2:
        return range(count)
    return sorted({round(i * (count - 1) / (at_most - 1)) for i in range(at_most)})
