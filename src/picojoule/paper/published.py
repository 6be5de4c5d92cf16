"""The numbers that the paper prints, as data; `scripts/transcribe.py` took them from its source.

Tables and figures go by the labels of that source (`tbl:…`, `fig:…`). Percentages are given as fractions.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from picojoule.io.tables import Estimate

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SCORES = {"auc": "AUC", "spearman": "Spearman", "mi": "MI"}
_PERCENT = 100


class Ablated(NamedTuple):
    """A row of an ablation table: λ (raw), λ_WD and B_BN, and what they gave.

    The block is 1 for λ alone, 2 for weight decay without and 3 for weight decay with that of batch norm.
    """

    block: int
    strength: float
    weight_decay: float
    decay_batch_norm: bool
    accuracy: Estimate
    energy: Estimate
    dead_rate: Estimate
    rate: Estimate

    @property
    def setting(self) -> tuple[float, float, bool]:
        """The setting of the row: λ, λ_WD and B_BN."""
        return self.strength, self.weight_decay, self.decay_batch_norm


class Tuned(NamedTuple):
    """A row of the hyper-parameter table; None where the surrogate has no such parameter."""

    model: str
    optimizer: str
    surrogate: str
    lr: float
    weight_decay: float
    decay_batch_norm: bool
    alpha: float | None
    tau: float | None


@cache
def places() -> dict[str, str]:
    """Return the numbers of the paper's tables and figures by their labels.

    Returns:
        "Table 6", "Figure 4" and so on by label.

    >>> places()["tbl:hyperparameter"], places()["fig:auc"]
    ('Table 6', 'Figure 4')
    """
    return {row["label"]: row["place"] for row in _rows("labels")}


def totals() -> dict[str, dict[str, int]]:
    """Return table 1: the penalty terms of each model if every neuron fires.

    Returns:
        `energy` (E_SNN/E_AC), `syn`, `total` and `balance` by model.
    """
    return {row.pop("model"): {key: int(value) for key, value in row.items()} for row in _rows("totals")}


def ablation(label: str) -> tuple[Ablated, ...]:
    """Return an ablation table.

    Args:
        label: Its label.

    Returns:
        Its rows.

    >>> ablation("tbl:ablation-vgg11-adam")[1].accuracy
    Estimate(mean=0.8923, deviation=0.00141)
    """

    def measured(row: dict[str, str], key: str) -> Estimate:
        return Estimate(_fraction(row[key]), _fraction(row[f"{key}_deviation"]))

    return tuple(
        Ablated(
            int(row["block"]),
            float(row["strength"]),
            float(row["weight_decay"]),
            row["decay_batch_norm"] == "1",
            *(measured(row, key) for key in ("accuracy", "energy", "dead", "rate")),
        )
        for row in _rows("ablations")
        if row["label"] == label
    )


def scores(label: str) -> dict[str, dict[str, float]]:
    """Return the scores of each curve in a table.

    Args:
        label: The label of the table.

    Returns:
        Scores by the label of the curve, both named as in `picojoule.report`.

    >>> scores("tbl:quantitative-comparison-ann2snn")["conversion (T = 5)"]["AUC(70)"]
    0.474
    """
    found: dict[str, dict[str, float]] = {}
    for row in _rows("scores"):
        if row["label"] == label:
            kind = row["kind"] if row["kind"] == "conversion" else f"Ω_{row['kind']}"
            value = _fraction(row["value"]) if row["score"] == "auc" else float(row["value"])
            found.setdefault(f"{kind} ({row['variant']})", {})[f"{_SCORES[row['score']]}({row['cutoff']})"] = value
    return found


def hyperparameters() -> tuple[Tuned, ...]:
    """Return table 6, the hyper-parameters.

    Returns:
        Its rows.
    """
    return tuple(
        Tuned(
            row["model"],
            row["optimizer"],
            row["surrogate"],
            float(row["lr"]),
            float(row["weight_decay"]),
            row["decay_batch_norm"] == "1",
            *(float(row[key]) if row[key] else None for key in ("alpha", "tau")),
        )
        for row in _rows("hyperparameters")
    )


def training_time() -> dict[str, float]:
    """Return table 7, training times relative to training without a penalty.

    Returns:
        The ratio by penalty; `none` is without.
    """
    return {row["penalty"]: float(row["ratio"]) for row in _rows("training-time")}


def architectures() -> dict[str, str]:
    """Return table 5, the architectures.

    Returns:
        Layers by the name of the network or block, joined by –, the two paths of a residual block by +.
    """
    return {row["name"]: row["layers"] for row in _rows("architectures")}


def misprints(labels: Iterable[str]) -> tuple[str, ...]:
    """Say what is known to be wrong with tables and figures.

    Args:
        labels: Their labels.

    Returns:
        One text per misprint.
    """
    wanted = set(labels)
    return tuple(entry["text"] for entry in _misprints() if wanted & set(entry["labels"]))


def is_misprinted(label: str) -> bool:
    """Return whether the numbers of a table belong to something else, so that nothing is compared with them.

    Args:
        label: The label of the table.
    """
    return any(label in entry["labels"] for entry in _misprints() if entry.get("wrong_numbers"))


def _fraction(percent: str) -> float:
    """Turn percent into a fraction, rounded to the digits that are printed, which a division would blur."""
    return round(float(percent) / _PERCENT, 10)


@cache
def _misprints() -> tuple[dict[str, Any], ...]:
    """Read the list of misprints."""
    return tuple(tomllib.loads(_text("misprints.toml"))["misprint"])


def _rows(name: str) -> Iterable[dict[str, str]]:
    """Read a table by the names of its columns."""
    return csv.DictReader(_text(f"{name}.csv").splitlines())


def _text(name: str) -> str:
    """Read a file of printed numbers."""
    return (files("picojoule.paper") / "printed" / name).read_text(encoding="utf-8")
