"""The body of a report page: headlines and tiles, and the places where its script puts charts and tables."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path

import altair as alt

from picojoule.energy.units import format_joules
from picojoule.io.files import is_file
from picojoule.io.tables import Column, Sheet
from picojoule.report import figures
from picojoule.report.collection import STATES, Collection
from picojoule.report.finding import TOLERATED_LOSSES, Finding, Level
from picojoule.report.group import RunGroup
from picojoule.report.page import asset, chart_place, figure_place, table, unbroken
from picojoule.report.rows import BASELINE

CHOSEN = "this run"
MOST_PICTURES = 12
"""Of one run: `picojoule show` draws five."""


def kinds_and_variants(found: list[RunGroup]) -> tuple[list[str], list[str]]:
    """List the kinds and the variants of all curves.

    Args:
        found: The groups that have the curves.

    Returns:
        The kinds in the order of the curves, and the variants in alphabetical order.
    """
    curves = [curve for group in found for curve in group.curves]
    return list(dict.fromkeys(c.kind for c in curves)), sorted(dict.fromkeys(c.variant for c in curves))


def empty_charts(found: list[RunGroup]) -> dict[str, alt.TopLevelMixin]:
    """Describe the charts of a page without rows: its script puts them in.

    Args:
        found: The groups whose curves will be shown.

    Returns:
        The charts by the names of their places.
    """
    both = (BASELINE, CHOSEN)
    return {
        "tradeoff": figures.tradeoff([], *kinds_and_variants(found), width="container", height=360, legend=False),
        "layer-energy": figures.energy_by_layer([], both, width="container"),
        "layer-rate": figures.rate_by_layer([], both, width="container"),
        "shares": figures.penalty_by_layer([], width="container"),
        **{f"training-{key}": figures.training([], key, width="container") for key in figures.TRAINING},
    }


def page_body(
    title: str,
    collection: Collection,
    found: list[RunGroup],
    findings: list[Finding | None],
    scores: Mapping[str, Sheet],
    equal: Mapping[str, Mapping[str, Sheet]],
) -> str:
    """Make the body of a report page.

    Args:
        title: The title.
        collection: All runs.
        found: Their groups.
        findings: The main finding of each group.
        scores: The tables of scores, by the label of their group.
        equal: The tables of accuracies and differences at equal energy by their captions, by the label of their group.

    Returns:
        HTML.
    """
    badges = "".join(
        f'<li class="state-{state}">{count:,} {state} {"run" if count == 1 else "runs"}</li>'
        for state, count in collection.counts.items()
        if count
    )
    index = {entry.name: number for number, entry in enumerate(collection)}
    headlines = {number: _headline_and_tiles(main, index) for number, main in enumerate(findings) if main is not None}
    tables = {
        number: "".join(
            table(sheet, caption)
            for caption, sheet in {"Scores of the curves": scores[group.label], **equal[group.label]}.items()
        )
        for number, group in enumerate(found)
        if group.label in scores
    }
    return asset("report.html").format(
        title=html.escape(title),
        badges=badges,
        states="".join(f"<option>{state}</option>" for state in STATES if collection.counts[state]),
        findings=_by_group(headlines),
        tradeoff=figure_place("tradeoff", "Accuracy over energy", wide=True),
        scores=_by_group(tables),
        layers=figure_place("layer-energy", "Energy by layer") + figure_place("layer-rate", "Firing rate by layer"),
        shares=chart_place("shares", "Share of the energy and of each penalty"),
        pictures=_pictures(collection),
        training=figure_place("training-loss", "Loss")
        + figure_place("training-accuracy", "Accuracy")
        + figure_place("training-energy", "Energy on the validation images")
        + figure_place("training-strength", "Strength of the penalty"),
    )


def _pictures(collection: Collection) -> str:
    """Put in what `picojoule show` drew of the runs, as pictures that cannot run code; nothing where there is none."""
    drawn = {entry.name: _drawn(collection.folder, entry.name) for entry in collection}
    shown = "".join(
        f"<details><summary>{html.escape(name)}</summary>{''.join(map(_picture, files))}</details>"
        for name, files in drawn.items()
        if files
    )
    return f"<h2>Networks at work</h2>\n{shown}" if shown else ""


def _drawn(folder: Path, name: str) -> list[Path]:
    run = folder if folder.name == name else folder / name
    return [path for path in sorted((run / "pictures").glob("*.svg")) if is_file(path)][:MOST_PICTURES]


def _picture(file: Path) -> str:
    content = base64.b64encode(file.read_bytes()).decode()
    title = html.escape(file.stem.replace("-", " "))
    image = f'<img alt="{title}" src="data:image/svg+xml;base64,{content}">'
    return f"<figure><figcaption>{title}</figcaption>{image}</figure>"


def _by_group(parts: Mapping[int, str]) -> str:
    return "".join(f'<div data-setting="{number}">{text}</div>' for number, text in parts.items())


def _headline_and_tiles(main: Finding, index: Mapping[str, int]) -> str:
    """Give the main finding as a headline and a tile for each level; a tile chooses its run."""
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
    """Say under what conditions the tiles hold."""
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
        "cost": f"{format_joules(level.joules)} per image",
        "how": "trained without penalty" if plain else f"{level.label}, {level.amount}",
    }
    spans = " ".join(f'<span class="{kind}">{unbroken(text)}</span>' for kind, text in lines.items())
    return f'<button type="button" class="tile" data-run="{run}">{spans}</button>'
