"""A report on a folder of runs: page, figures and tables."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt

from picojoule.energy.units import format_joules
from picojoule.io.files import make_folder, write_atomically
from picojoule.io.tables import Column, Sheet
from picojoule.report import figures, pictures
from picojoule.report.collection import STATES, Collection, Entry, gather
from picojoule.report.curve import Setting, budget_label, kind_label, mean_table, measured, settings, variant_label
from picojoule.report.finding import TOLERATED_LOSSES, Finding, Level, finding
from picojoule.report.page import asset, chart_place, figure_place, page, table, unbroken
from picojoule.report.rows import BASELINE, curve_rows, layer_rows, mean_layers, training_rows
from picojoule.report.scores import score, score_table
from picojoule.report.shares import share_rows, synapses_of, terms_at_one, terms_measured
from picojoule.report.store import stored
from picojoule.synapses.table import Synapses

DRAWN_SETTINGS = 8
"""As many settings get pictures: a setting takes seconds, and the page has them all."""
CHOSEN = "this run"

Reference = Callable[[Setting], Mapping[str, Mapping[str, float]]]
"""Scores that others found in a setting: by curve, by name of the score."""


@dataclass(frozen=True)
class Report:
    """What was written, and what it is about."""

    collection: Collection
    settings: tuple[Setting, ...]
    scores: tuple[Sheet, ...]
    """The areas under the curves of each setting that has some, narrow enough for a terminal: without a reference."""
    page: Path
    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "page": str(self.page),
            "files": [str(path) for path in self.files],
            "runs": self.collection.counts,
            "settings": [
                {
                    "label": setting.label,
                    "baseline_joules": setting.baseline_joules,
                    "curves": [
                        {"label": curve.label, "points": len(curve.points), **score(curve)} for curve in setting.curves
                    ],
                }
                for setting in self.settings
            ],
        }


def write(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    reference: Reference | None = None,
    drawn: int = DRAWN_SETTINGS,
) -> Report:
    """`report.html`, `figures/` and `tables/` on all runs below `folder`, into `out` (by default `folder/report`).

    Scores of the `reference`, such as `picojoule.paper.printed_scores`, stand beside those of the runs.
    """
    collection = gather(folder)
    into = Path(out) if out is not None else collection.folder / "report"
    found = settings(collection)
    findings = [finding(setting) for setting in found]
    chosen = [showcase(setting, main) for setting, main in zip(found, findings, strict=True)]
    synapses = _all_synapses(found)
    make_folder(into)
    with_curves = [setting for setting in found if setting.curves]
    scores = {
        setting.label: score_table(setting.curves, reference=reference(setting) if reference is not None else None)
        for setting in with_curves
    }
    files = [*_write_tables(into / "tables", collection, found, scores)]
    for name, setting, entry, counted in list(zip(_file_names(found), found, chosen, synapses, strict=True))[:drawn]:
        for kind, chart in _pictures(setting, entry, counted).items():
            files += pictures.save(chart, make_folder(into / "figures") / f"{kind}-{name}")
    shares = [
        {"layers": list(counted), "terms": terms_at_one(counted, setting.recipe["energy.hardware"])}
        if counted is not None
        else None
        for setting, counted in zip(found, synapses, strict=True)
    ]
    title = f"picojoule · {collection.name}"
    text = page(
        title,
        _body(title, collection, found, findings, scores),
        _charts(found),
        stored(collection, found, shares, chosen),
        ("report",),
    )
    home = into / "report.html"
    write_atomically(home, text.encode())
    ours = tuple(replace(_areas(score_table(setting.curves)), title=setting.label) for setting in with_curves)
    return Report(collection, tuple(found), ours, home, tuple(files))


def showcase(setting: Setting, found: Finding | None) -> Entry | None:
    """The run that is shown first: a typical one of the level that the headline tells of, or else the most accurate."""
    if not setting.entries:
        return None
    if found is not None:
        name = (found.within[0] or found.best).typical.run
        return next(entry for entry in setting.entries if entry.name == name)
    candidates = measured(setting.entries)
    return max(candidates, key=lambda run: run.test.accuracy).entry if candidates else setting.entries[0]


# --- Tables ----------------------------------------------------------------------------------------------------------


def _write_tables(
    folder: Path, collection: Collection, found: list[Setting], scores: Mapping[str, Sheet]
) -> list[Path]:
    means = {setting.label: mean_table(setting.curves) for setting in found if setting.curves}
    sheets = {
        **({"scores": Sheet.joined("setting", scores), "tradeoff": Sheet.joined("setting", means)} if scores else {}),
        "runs": run_table(collection, found),
    }
    files = []
    for name, sheet in sheets.items():
        for ending, text in ((".csv", sheet.csv()), (".tex", sheet.latex())):
            files.append(make_folder(folder) / f"{name}{ending}")
            write_atomically(files[-1], text.encode())
    return files


def _areas(scores: Sheet) -> Sheet:
    """Of a table of scores, the curves, their points and areas."""
    kept = [n for n, column in enumerate(scores.columns) if n < 2 or column.title.startswith("AUC")]
    rows = tuple(tuple(row[n] for n in kept) for row in scores.rows)
    return replace(scores, columns=tuple(scores.columns[n] for n in kept), rows=rows)


def run_table(collection: Collection, found: list[Setting]) -> Sheet:
    """Every run, finished or not."""
    places = {entry.name: setting for setting in found for entry in setting.entries}
    columns = (
        *(Column("run"), Column("state"), Column("setting"), Column("penalty"), Column("p"), Column("strength")),
        *(Column("seed"), Column("accuracy [%]", scale=100), Column("energy [µJ]", 4, 1e6)),
        *(Column("energy / baseline [%]", scale=100), Column("R [%]", scale=100), Column("dead rate [%]", scale=100)),
        Column("remark"),
    )
    rows = []
    for entry in collection:
        setting, test = places.get(entry.name), entry.test
        penalty = entry.recipe.penalty if entry.recipe is not None else None
        baseline = setting.baseline_joules if setting is not None else None
        rows.append(
            (
                *(entry.name, entry.state, setting.label if setting is not None else ""),
                *((penalty.kind, f"{penalty.p:g}", _amount(entry)) if penalty is not None else ("", "", "")),
                entry.recipe.seed if entry.recipe is not None else "",
                *((test.accuracy, test.joules) if test is not None else ("", "")),
                (test.joules / baseline if test.joules is not None and baseline else None) if test is not None else "",
                *((test.rate_mean, test.dead_rate) if test is not None else ("", "")),
                entry.reason,
            )
        )
    return Sheet(columns, tuple(rows))


def _amount(entry: Entry) -> str:
    return (budget_label(entry.recipe) or f"{entry.recipe.penalty.strength:g}") if entry.recipe is not None else ""


# --- Figures ---------------------------------------------------------------------------------------------------------


def _all_synapses(found: list[Setting]) -> list[Synapses | None]:
    """ψ for each setting; settings of the same network share it."""
    known: dict[tuple[Any, ...], Synapses | None] = {}
    keys = ("model.name", "data.name", "data.pad", "energy.psi", "neuron.kind", "neuron.steps")
    counted = []
    for setting in found:
        key = tuple(setting.recipe.get(name) for name in keys)
        recipe = setting.entries[0].recipe
        if key not in known:
            known[key] = synapses_of(recipe) if recipe is not None else None
        counted.append(known[key])
    return counted


def _file_names(found: list[Setting]) -> list[str]:
    """A name for each setting; those that come out the same, for their length, are numbered."""
    seen: Counter[str] = Counter()
    names = []
    for setting in found:
        seen[setting.slug] += 1
        names.append(setting.slug if seen[setting.slug] == 1 else f"{setting.slug}-{seen[setting.slug]}")
    return names


def _pictures(setting: Setting, entry: Entry | None, synapses: Synapses | None) -> dict[str, alt.TopLevelMixin]:
    """The charts of a setting, and those of the run that the page shows first."""
    charts: dict[str, alt.TopLevelMixin] = {}
    chart: alt.TopLevelMixin
    if setting.curves:
        chart = figures.tradeoff(curve_rows(setting.curves), *_kinds_and_variants([setting]))
        charts["tradeoff"] = _titled(chart, "Accuracy over energy", setting.label)
    if synapses is not None:
        chart = figures.penalty_by_layer(share_rows(synapses, terms_at_one(synapses)))
        charts["penalty"] = _titled(chart, "Energy and penalties by layer, if every neuron fires", setting.label)
    if entry is not None and entry.test is not None and entry.test.layers:
        names = [layer.name for layer in entry.test.layers]
        alike = [e for e in setting.baseline if e.test is not None and [x.name for x in e.test.layers] == names]
        baseline = layer_rows(BASELINE, mean_layers(alike)) if entry not in alike else []
        name = _spoken(setting, entry)
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


def _spoken(setting: Setting, entry: Entry) -> str:
    """A run's penalty and strength, as a legend names it."""
    recipe = entry.recipe
    if recipe is None or not recipe.penalised:
        return BASELINE
    kind = setting.kinds.get(entry.name, kind_label(recipe.penalty.kind))
    level = budget_label(recipe) or f"λ' = {recipe.penalty.strength:g}"
    return f"{kind}, {variant_label(recipe.penalty.p)}, {level}"


def _kinds_and_variants(found: list[Setting]) -> tuple[list[str], list[str]]:
    curves = [curve for setting in found for curve in setting.curves]
    return list(dict.fromkeys(c.kind for c in curves)), sorted(dict.fromkeys(c.variant for c in curves))


# --- The page --------------------------------------------------------------------------------------------------------


def _charts(found: list[Setting]) -> dict[str, alt.TopLevelMixin]:
    """Without rows: the page's script puts them in."""
    both = (BASELINE, CHOSEN)
    return {
        "tradeoff": figures.tradeoff([], *_kinds_and_variants(found), width="container", height=360, legend=False),
        "layer-energy": figures.energy_by_layer([], both, width="container"),
        "layer-rate": figures.rate_by_layer([], both, width="container"),
        "shares": figures.penalty_by_layer([], width="container"),
        **{f"training-{key}": figures.training([], key, width="container") for key in figures.TRAINING},
    }


def _body(
    title: str,
    collection: Collection,
    found: list[Setting],
    findings: list[Finding | None],
    scores: Mapping[str, Sheet],
) -> str:
    badges = "".join(
        f'<li class="state-{state}">{count:,} {state} {"run" if count == 1 else "runs"}</li>'
        for state, count in collection.counts.items()
        if count
    )
    index = {entry.name: number for number, entry in enumerate(collection)}
    told = {number: _told(main, index) for number, main in enumerate(findings) if main is not None}
    tables = {
        number: table(scores[setting.label], "Scores of the curves")
        for number, setting in enumerate(found)
        if setting.label in scores
    }
    return asset("report.html").format(
        title=html.escape(title),
        badges=badges,
        states="".join(f"<option>{state}</option>" for state in STATES if collection.counts[state]),
        findings=_by_setting(told),
        tradeoff=figure_place("tradeoff", "Accuracy over energy", wide=True),
        scores=_by_setting(tables),
        layers=figure_place("layer-energy", "Energy by layer") + figure_place("layer-rate", "Firing rate by layer"),
        shares=chart_place("shares", "Share of the energy and of each penalty"),
        training=figure_place("training-loss", "Loss")
        + figure_place("training-accuracy", "Accuracy")
        + figure_place("training-energy", "Energy on the validation images")
        + figure_place("training-strength", "Strength of the penalty"),
    )


def _by_setting(parts: Mapping[int, str]) -> str:
    return "".join(f'<div data-setting="{number}">{text}</div>' for number, text in parts.items())


def _told(main: Finding, index: Mapping[str, int]) -> str:
    """The main finding as a headline and a tile for each level; a tile chooses its run."""
    frugal = main.within[0]
    headline = frugal.headline if frugal is not None else "No network here saves energy within a point of the baseline"
    tiles = [("baseline", main.baseline), ("most accurate with a penalty", main.best)]
    for loss, level in zip(TOLERATED_LOSSES, main.within, strict=True):
        if level is not None:
            tiles.append((f"at most {100 * loss:g} {'point' if loss == 0.01 else 'points'} lost", level))
    return (
        f'<p class="headline">{html.escape(headline)}</p>\n<div class="tiles">'
        + "".join(_tile(name, level, index[level.typical.run]) for name, level in tiles)
        + f'</div>\n<p class="note">{_conditions(main)}</p>'
    )


def _conditions(main: Finding) -> str:
    """What the tiles are worth."""
    seeds = main.best.seeds
    means = f"Means over {seeds} seeds ± sample standard deviation" if seeds > 1 else "One seed, which is worth little"
    return " ".join(
        [
            f"{means}, on the test images, which also chose the tiles: expect a little less on others.",
            *([f"Not compared: {main.left_out} levels with fewer seeds."] if main.left_out else []),
            *(["Frontiers, which are trained for longer, are left out."] if main.frontiers == "left out" else []),
            *(["A frontier's networks are trained for longer than the baseline."] if main.frontiers == "alone" else []),
        ]
    )


def _tile(name: str, level: Level, run: int) -> str:
    plain = level.label == BASELINE
    percent = Column("", 1, 100)
    lines = {
        "what": name,
        "much": f"{percent.show(level.energy.mean)} %",
        "of": "of the energy",
        "right": f"{percent.show(level.accuracy)} % accurate",
        "cost": f"{format_joules(level.joules)} an image",
        "how": "trained without penalty" if plain else f"{level.label}, {level.amount}",
    }
    spans = " ".join(f'<span class="{kind}">{unbroken(text)}</span>' for kind, text in lines.items())
    return f'<button type="button" class="tile" data-run="{run}">{spans}</button>'
