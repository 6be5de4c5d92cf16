"""Where a penalty saves: each layer's share of the energy without a penalty and with each at a tenth of the energy.

A penalty that moved energy from dear layers to cheap ones would change the shares; one that only turns down everything
leaves them as they are. Of each penalty with p = 1, the strength counts whose energy is nearest to a tenth of the
baseline's, and all its seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from picojoule import report
from picojoule.io.tables import Cell, Column, Sheet
from picojoule.paper.context import Results
from picojoule.report import Curve, Entry, RunGroup
from picojoule.report.curve import variant_label
from picojoule.report.rows import BASELINE, mean_layers
from picojoule.runs.result import LayerResult

SHARE = 0.1
"""Of the baseline's energy."""
_FURTHEST = 2.0
"""A strength whose energy is further off than this factor is not shown as a tenth."""


def by_layer(group: RunGroup, curves: Iterable[Curve]) -> Results:
    """Make the table and the figure of the shares.

    Args:
        group: The finished runs.
        curves: Their curves.

    Returns:
        "layers-at-10": the share of each layer, and what is left of its own energy; nothing where no strength is near
        a tenth.
    """
    entries = {entry.name: entry for entry in group.entries}
    networks = {BASELINE: mean_layers(group.baseline)}
    for curve in curves:
        level = report.nearest_level(curve, SHARE)
        energy = statistics.fmean(point.energy for point in level) if level else 0.0
        if curve.variant == variant_label(1) and SHARE / _FURTHEST <= energy <= SHARE * _FURTHEST:
            name = f"{curve.kind}, λ' = {level[0].strength:g}: {100 * energy:.1f} %"
            networks[name] = mean_layers(_found(entries, [point.run for point in level]))
    if len(networks) < 2 or not networks[BASELINE]:
        return Results({})
    rows = [
        {**row, "share": layer.joules / (sum(each.joules for each in layers) or 1.0)}
        for name, layers in networks.items()
        for row, layer in zip(report.rows.layer_rows(name, layers), layers, strict=True)
    ]
    return Results(
        {"layers-at-10": _table(networks)}, {"layers-at-10": report.figures.share_by_layer(rows, list(networks))}
    )


def _found(entries: dict[str, Entry], names: Iterable[str]) -> Sequence[Entry]:
    return [entries[name] for name in names]


def _table(networks: dict[str, list[LayerResult]]) -> Sheet:
    """Make the table: a row per layer, and one for the whole network."""
    totals = {name: sum(layer.joules for layer in layers) for name, layers in networks.items()}
    before = networks[BASELINE]
    columns = [Column("layer"), Column(f"share, {BASELINE} [%]", 1, 100)]
    for name in list(networks)[1:]:
        columns += [Column(f"share, {name} [%]", 1, 100), Column(f"left, {name} [%]", 1, 100)]
    rows: list[tuple[Cell, ...]] = []
    for number, layer in enumerate(before):
        row: list[Cell] = [layer.name, layer.joules / totals[BASELINE]]
        for name in list(networks)[1:]:
            joules = networks[name][number].joules
            row += [joules / totals[name], joules / layer.joules if layer.joules else None]
        rows.append(tuple(row))
    whole: list[Cell] = ["all", 1.0]
    for name in list(networks)[1:]:
        whole += [1.0, totals[name] / totals[BASELINE]]
    return Sheet(tuple(columns), (*rows, tuple(whole)))
