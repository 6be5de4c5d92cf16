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
    """A row of an ablation table: λ (raw), λ_WD and B_BN, and what they gave."""

    block: int
    """Rows between two rules: λ alone, weight decay without and with that of batch norm."""
    strength: float
    weight_decay: float
    decay_batch_norm: bool
    accuracy: Estimate
    energy: Estimate
    dead_rate: Estimate
    rate: Estimate

    @property
    def setting(self) -> tuple[float, float, bool]:
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
    """
    >>> places()["tbl:hyperparameter"], places()["fig:auc"]
    ('Table 6', 'Figure 4')
    """
    return {row["label"]: row["place"] for row in _rows("labels")}


def totals() -> dict[str, dict[str, int]]:
    """Table 1: `energy` (E_SNN/E_AC), `syn`, `total` and `balance` of each model if every neuron fires."""
    return {row.pop("model"): {key: int(value) for key, value in row.items()} for row in _rows("totals")}


def ablation(label: str) -> tuple[Ablated, ...]:
    """
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
    """The scores of each curve, both named as `picojoule.report.score` and its curves are.

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
    """Table 6."""
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
    """Table 7: the time of training with each penalty relative to that without (`none`)."""
    return {row["penalty"]: float(row["ratio"]) for row in _rows("training-time")}


def architectures() -> dict[str, str]:
    """Table 5: layers joined by –, the two paths of a residual block by +."""
    return {row["name"]: row["layers"] for row in _rows("architectures")}


def misprints(labels: Iterable[str]) -> tuple[str, ...]:
    """What is known to be wrong with these tables and figures."""
    wanted = set(labels)
    return tuple(entry["text"] for entry in _misprints() if wanted & set(entry["labels"]))


def is_misprinted(label: str) -> bool:
    """Whether the numbers printed there belong to something else."""
    return any(label in entry["labels"] for entry in _misprints() if entry.get("wrong_numbers"))


def _fraction(percent: str) -> float:
    """Rounded to the digits that are there, which a division would blur."""
    return round(float(percent) / _PERCENT, 10)


@cache
def _misprints() -> tuple[dict[str, Any], ...]:
    return tuple(tomllib.loads(_text("misprints.toml"))["misprint"])


def _rows(name: str) -> Iterable[dict[str, str]]:
    return csv.DictReader(_text(f"{name}.csv").splitlines())


def _text(name: str) -> str:
    return (files("picojoule.paper") / "printed" / name).read_text(encoding="utf-8")
