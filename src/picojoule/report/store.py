"""The data of a report page: each number once, and what only a chosen run needs apart, to be read when it is chosen."""

from __future__ import annotations

from typing import Any

from picojoule.report.collection import Collection, Entry
from picojoule.report.curve import budget_label, rank, variant_label
from picojoule.report.figures import colours, extent, looks
from picojoule.report.group import FREE_KEYS, RunGroup, flattened, measured
from picojoule.report.page import compact
from picojoule.report.rows import curve_rows
from picojoule.runs.result import LayerResult

_COLUMNS = (
    *("name", "state", "reason", "setting", "on_curve", "kind", "variant", "strength", "budget", "rank", "seed"),
    *("accuracy", "energy", "joules", "rate", "dead", "layers"),
)
_TRAINING = (
    "epoch",
    "train_loss",
    "validation_loss",
    "train_accuracy",
    "validation_accuracy",
    "joules",
    "target_joules",
    "strength",
)
_DIGITS = 5


def stored(
    collection: Collection, groups: list[RunGroup], shares: list[dict[str, Any] | None], showcases: list[Entry | None]
) -> dict[str, str]:
    """Write the data of a page as blocks of JSON.

    Args:
        collection: All runs.
        groups: Their groups.
        shares: For each group, the layers' shares in energy and penalties; None where they are not known.
        showcases: For each group, the run that is shown first.

    Returns:
        The blocks `store`, and `details`, which has a line of JSON for each run.
    """
    places = {entry.name: number for number, group in enumerate(groups) for entry in group.entries}
    on_curve = {
        entry.name for group in groups if group.baseline_joules is not None for entry, *_ in measured(group.entries)
    }
    layer_sets: dict[tuple[tuple[str, int], ...], int] = {}
    runs = [_row(entry, places.get(entry.name), groups, entry.name in on_curve, layer_sets) for entry in collection]
    index = {entry.name: number for number, entry in enumerate(collection)}
    kinds = [curve.kind for group in groups for curve in group.curves]
    variants = sorted({curve.variant for group in groups for curve in group.curves})
    store = {
        "columns": _COLUMNS,
        "runs": runs,
        "layers": [list(layers) for layers in layer_sets],
        "colours": colours(kinds),
        "looks": looks(variants),
        "settings": [
            {
                "label": group.label,
                "recipe": group.recipe,
                "curves": [[curve.kind, curve.variant] for curve in group.curves],
                "extent": [_short(end) for end in extent(curve_rows(group.curves))],
                "shares": share,
                "run": index[showcase.name] if showcase is not None else None,
                "note": _note(group),
            }
            for group, share, showcase in zip(groups, shares, showcases, strict=True)
        ],
    }
    return {"store": compact(store), "details": "\n".join(compact(_details(entry)) for entry in collection)}


def _row(
    entry: Entry,
    place: int | None,
    groups: list[RunGroup],
    on_curve: bool,
    layer_sets: dict[tuple[tuple[str, int], ...], int],
) -> list[Any]:
    penalty = entry.recipe.penalty if entry.recipe is not None else None
    test = entry.test
    baseline = groups[place].baseline_joules if place is not None else None
    layers = None
    if test is not None and test.layers:
        layers = layer_sets.setdefault(tuple((layer.name, layer.neurons) for layer in test.layers), len(layer_sets))
    row = {
        "name": entry.name,
        "state": entry.state,
        "reason": entry.reason,
        "setting": place,
        "on_curve": int(on_curve),
        "kind": groups[place].kinds.get(entry.name) if place is not None else None,
        "variant": variant_label(penalty.p) if penalty is not None else None,
        "strength": _short(penalty.strength) if penalty is not None else None,
        "budget": budget_label(entry.recipe) if entry.recipe is not None else None,
        "rank": _short(rank(entry.recipe, baseline)) if entry.recipe is not None else None,
        "seed": entry.recipe.seed if entry.recipe is not None else None,
        "accuracy": _short(test.accuracy) if test is not None else None,
        "energy": _short(test.joules / baseline) if test is not None and test.joules is not None and baseline else None,
        "joules": _short(test.joules) if test is not None else None,
        "rate": _short(test.rate_mean) if test is not None else None,
        "dead": _short(test.dead_rate) if test is not None else None,
        "layers": layers,
    }
    return [row[column] for column in _COLUMNS]


def _details(entry: Entry) -> dict[str, Any]:
    flat = flattened(entry.recipe) if entry.recipe is not None else {}
    return {
        "reason": entry.reason,
        "free": {key: flat[key] for key in FREE_KEYS if key in flat},
        "layers": _layers(entry.test.layers) if entry.test is not None and entry.test.layers else None,
        "training": {
            key: [
                _short(getattr(epoch, key) + (key == "epoch")) if getattr(epoch, key) is not None else None
                for epoch in entry.training
            ]
            for key in _TRAINING
        }
        if entry.training
        else None,
    }


def _layers(layers: tuple[LayerResult, ...]) -> dict[str, list[float | None]]:
    return {key: [_short(getattr(layer, key)) for layer in layers] for key in ("joules", "synops", "rate")}


def _note(group: RunGroup) -> str:
    if group.baseline_joules is None:
        return (
            "No finished run here spikes and has no penalty (penalty.strength = 0), so energy has no baseline to be "
            "measured against: train one to see the curves."
        )
    return "" if group.curves else "Only the baseline is here so far: train with penalty.strength > 0 to see a curve."


def _short(value: float | None) -> float | int | None:
    """Round to as many digits as a chart needs."""
    if value is None:
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
