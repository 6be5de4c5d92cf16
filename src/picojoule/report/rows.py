"""Rows for the figures: plain values that a chart draws."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from picojoule.report.collection import Entry
from picojoule.report.curve import Curve
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.result import LayerResult

BASELINE = "baseline"
"""The name of runs without penalty in figures and tables."""

Row = Mapping[str, Any]
"""What one mark of a chart stands for."""


def curve_rows(curves: Iterable[Curve]) -> list[dict[str, Any]]:
    """Make rows for the trade-off figure.

    Args:
        curves: The curves of one group.

    Returns:
        One row per run; each run of the baseline stands there once.

    >>> from picojoule.report import Point
    >>> [row["kind"] for row in curve_rows([Curve("Ω_syn", "p = 1", (Point(0.2, 0.8),), (Point(1.0, 0.9),))])]
    ['baseline', 'Ω_syn']
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for curve in curves:
        for kind, variant, points in ((BASELINE, "", curve.baseline), (curve.kind, curve.variant, curve.points)):
            for number, point in enumerate(points):
                rows[f"{kind} {variant}", point.run or str(number)] = {
                    "run": point.run,
                    "kind": kind,
                    "variant": variant,
                    "strength": point.amount,
                    "rank": point.rank,
                    "seed": str(point.seed),
                    "energy": point.energy,
                    "accuracy": point.accuracy,
                }
    return list(rows.values())


def layer_rows(network: str, layers: Iterable[LayerResult]) -> list[dict[str, Any]]:
    """Make rows of energy (in microjoules) and firing rate by layer.

    Args:
        network: How the legend names the network.
        layers: Its layers.

    Returns:
        One row per layer.

    >>> [row["layer"] for row in layer_rows("a", finished_run.result.test.layers)][:2]  # of a run that `fit` returned
    ['spike1', 'spike2']
    """
    return [
        {"network": network, "layer": layer.name, "energy": layer.joules * 1e6, "rate": layer.rate} for layer in layers
    ]


def mean_layers(entries: Sequence[Entry]) -> list[LayerResult]:
    """Average the layers of several runs of one network.

    Args:
        entries: Finished runs whose networks have the same layers.

    Returns:
        The layers, each number the mean over the runs.

    >>> from picojoule.report import gather
    >>> [layer.name for layer in mean_layers(gather(finished_run.path.parent).entries)][:2]  # of a folder of runs
    ['spike1', 'spike2']
    """
    together = zip(*(entry.test.layers for entry in entries if entry.test is not None), strict=True)
    return [
        same[0].model_copy(
            update={
                key: statistics.fmean(values)
                for key in ("synops", "joules", "rate", "dead_rate")
                if (values := [value for layer in same if (value := getattr(layer, key)) is not None])
            }
        )
        for same in together
    ]


def training_rows(training: Iterable[EpochMetrics]) -> dict[str, list[dict[str, Any]]]:
    """Make rows of how a training went; epochs count from 1.

    Args:
        training: The metrics of some epochs.

    Returns:
        Rows for "loss", "accuracy", "energy" (in microjoules, on the validation images) and "strength".

    >>> [row["series"] for row in training_rows(finished_run.metrics)["loss"]]  # of a run that `fit` returned
    ['training', 'validation']
    """
    series = {
        "loss": (("training", "train_loss", 1.0), ("validation", "validation_loss", 1.0)),
        "accuracy": (("training", "train_accuracy", 1.0), ("validation", "validation_accuracy", 1.0)),
        "energy": (("validation", "joules", 1e6), ("wanted by the budget", "target_joules", 1e6)),
        "strength": (("strength", "strength", 1.0),),
    }
    training = list(training)
    return {
        what: [
            {"epoch": epoch.epoch + 1, "series": name, "value": value * scale}
            for name, key, scale in lines
            for epoch in training
            if (value := getattr(epoch, key)) is not None
        ]
        for what, lines in series.items()
    }
