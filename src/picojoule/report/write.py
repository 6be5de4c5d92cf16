"""A report on a folder of runs: page, figures and tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt

from picojoule.io import packs
from picojoule.io.files import make_folder, write_atomically
from picojoule.io.tables import Column, Sheet
from picojoule.report import figures, pictures
from picojoule.report.body import empty_charts, kinds_and_variants, page_body
from picojoule.report.collection import Collection, Entry, gather
from picojoule.report.curve import Curve, budget_label, kind_label, mean_table, variant_label
from picojoule.report.equal_energy import (
    SHARES,
    accuracies,
    accuracy_table,
    difference_table,
    differences,
    interval,
)
from picojoule.report.finding import Finding, finding
from picojoule.report.group import RunGroup, measured, run_groups
from picojoule.report.page import page
from picojoule.report.rows import BASELINE, curve_rows, layer_rows, mean_layers, training_rows
from picojoule.report.scores import score, score_table
from picojoule.report.shares import share_rows, synapses_of, terms_at_one, terms_measured
from picojoule.report.store import stored
from picojoule.synapses.table import Synapses

DRAWN_GROUPS = 8
"""How many groups get pictures: a group takes seconds, and the page has them all."""

Reference = Callable[[RunGroup], Mapping[str, Mapping[str, float]]]
"""Scores that others found in a group: by curve, by name of the score."""


@dataclass(frozen=True)
class Report:
    """What was written, and what it is about."""

    collection: Collection
    """All runs."""
    groups: tuple[RunGroup, ...]
    """Their groups."""
    scores: tuple[Sheet, ...]
    """Of each group with curves the areas under them, and what their differences at equal energy tell of the paper's
    claims: narrow enough for a terminal, so without a reference and single shares."""
    page: Path
    """The page."""
    files: tuple[Path, ...]
    """Figures and tables."""

    def to_dict(self) -> dict[str, Any]:
        """Give the document of `report --json`.

        Returns:
            Plain values.
        """
        return {
            "page": str(self.page),
            "files": [str(path) for path in self.files],
            "runs": self.collection.counts,
            "settings": [
                {
                    "label": group.label,
                    "baseline_joules": group.baseline_joules,
                    "curves": [
                        {
                            "label": curve.label,
                            "points": len(curve.points),
                            **score(curve),
                            "accuracy_at_energy": _accuracy_at_energy(curve),
                        }
                        for curve in group.curves
                    ],
                    "differences": [found.to_dict() for found in differences(group.curves)],
                }
                for group in self.groups
            ],
        }


def write(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    reference: Reference | None = None,
    drawn: int = DRAWN_GROUPS,
) -> Report:
    """Write a report on all runs below a folder: `report.html`, `figures/` and `tables/`.

    Args:
        folder: The folder of runs.
        out: Where the report goes; unless given, `folder/report`, and beside a pack `NAME-report`.
        reference: Scores to stand beside those of the runs, such as `picojoule.paper.printed_scores`.
        drawn: How many groups get pictures, those with most runs first.

    Returns:
        What was written.

    Raises:
        PicojouleError: If there is no run, or the report cannot be written.

    >>> import tempfile
    >>> made = write(finished_run.path.parent, tempfile.mkdtemp(), drawn=0)  # a folder of runs
    >>> made.page.name, made.collection.counts["finished"]
    ('report.html', 1)
    """
    collection = gather(folder)
    into = Path(out) if out is not None else _home(collection.folder)
    found = run_groups(collection)
    findings = [finding(group) for group in found]
    chosen = [showcase(group, main) for group, main in zip(found, findings, strict=True)]
    synapses = _all_synapses(found)
    make_folder(into)
    with_curves = [group for group in found if group.curves]
    scores = {
        group.label: score_table(group.curves, reference=reference(group) if reference is not None else None)
        for group in with_curves
    }
    equal = {
        group.label: {"Accuracy at equal energy": accuracy_table(group.curves)}
        | ({"Differences at equal energy": difference_table(group.curves)} if differences(group.curves) else {})
        for group in with_curves
    }
    files = [*_write_tables(into / "tables", collection, found, scores)]
    for name, group, entry, counted in list(zip(_file_names(found), found, chosen, synapses, strict=True))[:drawn]:
        for kind, chart in _draw(group, entry, counted).items():
            files += pictures.save(chart, make_folder(into / "figures") / f"{kind}-{name}")
    shares = [
        {"layers": list(counted), "terms": terms_at_one(counted, group.recipe["energy.hardware"])}
        if counted is not None
        else None
        for group, counted in zip(found, synapses, strict=True)
    ]
    title = f"picojoule · {collection.name}"
    text = page(
        title,
        page_body(title, collection, found, findings, scores, equal),
        empty_charts(found),
        stored(collection, found, shares, chosen),
        ("report",),
    )
    home = into / "report.html"
    write_atomically(home, text.encode())
    ours = [sheet for group in with_curves for sheet in _shown(group)]
    return Report(collection, tuple(found), tuple(ours), home, tuple(files))


def _home(folder: Path) -> Path:
    """Choose where the report on a folder, or on a pack, goes."""
    if packs.is_pack(folder):
        return folder.with_name(f"{folder.name.removesuffix(packs.SUFFIX)}-report")
    return folder / "report"


def showcase(group: RunGroup, found: Finding | None) -> Entry | None:
    """Choose the run of a group that is shown first.

    Args:
        group: The group.
        found: Its main finding.

    Returns:
        A typical run of the level that the headline tells of, or else the most accurate one.
    """
    if not group.entries:
        return None
    if found is not None:
        name = (found.within[0] or found.best).typical.run
        return next(entry for entry in group.entries if entry.name == name)
    candidates = measured(group.entries)
    return max(candidates, key=lambda run: run.test.accuracy).entry if candidates else group.entries[0]


# --- Tables ----------------------------------------------------------------------------------------------------------


def _write_tables(
    folder: Path, collection: Collection, found: list[RunGroup], scores: Mapping[str, Sheet]
) -> list[Path]:
    means = {group.label: mean_table(group.curves) for group in found if group.curves}
    sheets = {
        **({"scores": Sheet.joined("setting", scores), "tradeoff": Sheet.joined("setting", means)} if scores else {}),
        **_equal_energy_tables(found),
        "runs": run_table(collection, found),
    }
    files = []
    for name, sheet in sheets.items():
        for ending, text in ((".csv", sheet.csv()), (".tex", sheet.latex())):
            files.append(make_folder(folder) / f"{name}{ending}")
            write_atomically(files[-1], text.encode())
    return files


def _equal_energy_tables(found: list[RunGroup]) -> dict[str, Sheet]:
    """Make the tables of accuracies and of differences at equal energy; none where there is nothing in them."""
    made = {
        "equal-energy": {group.label: accuracy_table(group.curves) for group in found if group.curves},
        "differences": {group.label: difference_table(group.curves) for group in found if differences(group.curves)},
    }
    return {name: Sheet.joined("setting", sheets) for name, sheets in made.items() if sheets}


def _accuracy_at_energy(curve: Curve) -> dict[str, dict[str, float | None] | None]:
    """Give the mean accuracy at equal energies with its interval, by share of the baseline's energy."""
    found = {share: list(accuracies(curve, share).values()) for share in SHARES}
    return {f"{share:g}": interval(values)._asdict() if values else None for share, values in found.items()}


def _shown(group: RunGroup) -> list[Sheet]:
    """Make what a terminal shows of a group: areas under its curves, and verdicts on the claims it can speak to."""
    areas = _narrowed(score_table(group.curves), lambda n, title: n < 2 or title.startswith("AUC"))
    sheets = [replace(areas, title=group.label)]
    if differences(group.curves):
        verdicts = _narrowed(difference_table(group.curves), lambda _, title: not title.startswith("at "))
        sheets.append(replace(verdicts, title=f"{group.label}: accuracy at equal energy"))
    return sheets


def _narrowed(sheet: Sheet, wanted: Callable[[int, str], bool]) -> Sheet:
    """Keep those columns of a table whose place and title are wanted."""
    kept = [n for n, column in enumerate(sheet.columns) if wanted(n, column.title)]
    rows = tuple(tuple(row[n] for n in kept) for row in sheet.rows)
    return replace(sheet, columns=tuple(sheet.columns[n] for n in kept), rows=rows)


def run_table(collection: Collection, found: list[RunGroup]) -> Sheet:
    """Make a table of every run, finished or not.

    Args:
        collection: The runs.
        found: Their groups.

    Returns:
        One row per run.
    """
    places = {entry.name: group for group in found for entry in group.entries}
    columns = (
        *(Column("run"), Column("state"), Column("setting"), Column("penalty"), Column("p"), Column("strength")),
        *(Column("seed"), Column("accuracy [%]", scale=100), Column("energy [µJ]", 4, 1e6)),
        Column("everything [µJ]", 4, 1e6),
        *(Column("energy / baseline [%]", scale=100), Column("R [%]", scale=100), Column("dead rate [%]", scale=100)),
        Column("remark"),
    )
    rows = []
    for entry in collection:
        group, test = places.get(entry.name), entry.test
        penalty = entry.recipe.penalty if entry.recipe is not None else None
        baseline = group.baseline_joules if group is not None else None
        rows.append(
            (
                *(entry.name, entry.state, group.label if group is not None else ""),
                *((penalty.kind, f"{penalty.p:g}", _amount(entry)) if penalty is not None else ("", "", "")),
                entry.recipe.seed if entry.recipe is not None else "",
                *((test.accuracy, test.joules, test.total_joules) if test is not None else ("", "", "")),
                (test.joules / baseline if test.joules is not None and baseline else None) if test is not None else "",
                *((test.rate_mean, test.dead_rate) if test is not None else ("", "")),
                entry.reason,
            )
        )
    return Sheet(columns, tuple(rows))


def _amount(entry: Entry) -> str:
    return (budget_label(entry.recipe) or f"{entry.recipe.penalty.strength:g}") if entry.recipe is not None else ""


# --- Figures ---------------------------------------------------------------------------------------------------------


def _all_synapses(found: list[RunGroup]) -> list[Synapses | None]:
    """Count the synapses of each group's network; groups of the same network share them."""
    known: dict[tuple[Any, ...], Synapses | None] = {}
    keys = ("model.name", "data.name", "data.pad", "energy.psi", "neuron.kind", "neuron.steps")
    counted = []
    for group in found:
        key = tuple(group.recipe.get(name) for name in keys)
        recipe = group.entries[0].recipe
        if key not in known:
            known[key] = synapses_of(recipe) if recipe is not None else None
        counted.append(known[key])
    return counted


def _file_names(found: list[RunGroup]) -> list[str]:
    """Name the files of each group; names that come out the same, for their length, are numbered."""
    seen: Counter[str] = Counter()
    names = []
    for group in found:
        seen[group.slug] += 1
        names.append(group.slug if seen[group.slug] == 1 else f"{group.slug}-{seen[group.slug]}")
    return names


def _draw(group: RunGroup, entry: Entry | None, synapses: Synapses | None) -> dict[str, alt.TopLevelMixin]:
    """Draw the charts of a group, and those of the run that the page shows first."""
    charts: dict[str, alt.TopLevelMixin] = {}
    chart: alt.TopLevelMixin
    if group.curves:
        chart = figures.tradeoff(curve_rows(group.curves), *kinds_and_variants([group]))
        charts["tradeoff"] = _titled(chart, "Accuracy over energy", group.label)
    if synapses is not None:
        chart = figures.penalty_by_layer(share_rows(synapses, terms_at_one(synapses)))
        charts["penalty"] = _titled(chart, "Energy and penalties by layer, if every neuron fires", group.label)
    if entry is not None and entry.test is not None and entry.test.layers:
        names = [layer.name for layer in entry.test.layers]
        alike = [e for e in group.baseline if e.test is not None and [x.name for x in e.test.layers] == names]
        baseline = layer_rows(BASELINE, mean_layers(alike)) if entry not in alike else []
        name = _legend_name(group, entry)
        rows = [*baseline, *layer_rows(name, entry.test.layers)]
        chart = figures.layers(rows, (BASELINE, name) if baseline else (name,))
        charts["layers"] = _titled(chart, "What each layer spends", entry.name)
        chart = figures.penalty_by_layer(share_rows(names, terms_measured(entry.test.layers)))
        charts["penalty-measured"] = _titled(chart, "Energy and penalties by layer, as measured", entry.name)
    if entry is not None and entry.training:
        charts["training"] = _titled(figures.training_curves(training_rows(entry.training)), "Training", entry.name)
    return charts


def _titled(chart: alt.TopLevelMixin, title: str, subtitle: str) -> alt.TopLevelMixin:
    titled: alt.TopLevelMixin = chart.properties(title=alt.Title(title, subtitle=subtitle, anchor="start"))
    return titled


def _legend_name(group: RunGroup, entry: Entry) -> str:
    """Name a run by its penalty and strength, as a legend does."""
    recipe = entry.recipe
    if recipe is None or not recipe.penalised:
        return BASELINE
    kind = group.kinds.get(entry.name, kind_label(recipe.penalty.kind))
    level = budget_label(recipe) or f"λ' = {recipe.penalty.strength:g}"
    return f"{kind}, {variant_label(recipe.penalty.p)}, {level}"
