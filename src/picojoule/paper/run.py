"""Running an experiment: its runs, as many as are missing, and then its tables and figures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt

from picojoule import data as datasets
from picojoule import report
from picojoule.data import Progress
from picojoule.data.progress import quiet
from picojoule.errors import PicojouleError
from picojoule.io.files import make_folder, read_json, write_atomically
from picojoule.io.tables import Sheet
from picojoule.paper import reference
from picojoule.paper.context import Bench, Findings
from picojoule.paper.experiments import Experiment
from picojoule.paper.scales import SCALES, SIZES, STAND_IN, Scale, Size
from picojoule.search import sweep
from picojoule.search.sweep import Failure, Watcher, Where

_SUMMARY = "summary.json"


@dataclass(frozen=True)
class Produced:
    """What came of an experiment."""

    experiment: Experiment
    scale: Scale
    runs: int
    failures: tuple[Failure, ...]
    findings: Findings
    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "place": self.experiment.place,
            "scale": self.scale.name,
            "seeds": len(self.scale.seeds),
            "stand_ins": dict.fromkeys(sorted(self.scale.replaced), STAND_IN),
            "runs": self.runs,
            "failures": [{"run": failure.recipe.name, "reason": failure.reason} for failure in self.failures],
            "tables": {
                name: {"columns": sheet.titles, "rows": sheet.values()} for name, sheet in self.findings.tables.items()
            },
            "notes": list(self.findings.notes),
            "files": [path.name for path in self.files],
        }


def run(
    experiment: Experiment,
    size: Size = "small",
    into: str | os.PathLike[str] = "runs/paper",
    out: str | os.PathLike[str] = "paper",
    *,
    seeds: int | None = None,
    workers: int | None = None,
    on: Where = "local",
    address: str | None = None,
    say: Callable[[str], None] = print,
    watcher: Watcher | None = None,
) -> Produced:
    """Train what is missing in `into`, which all experiments share, and write tables and figures to `out/NAME`.

    The same call again trains nothing. Where a run fails, the tables show what there is. At the scale "smoke" digits
    stand in for a data set that is not in the cache; at the others it is fetched. `seeds` is how many runs each setting
    has; the scale's own number unless given.
    """
    folder = Path(out) / experiment.name
    wanted = SCALES[size].with_seeds(seeds)
    _spare_larger(folder, wanted)
    scale = fetch_data(experiment, wanted, say)
    make_folder(folder)  # before the hours of training
    recipes = experiment.work.recipes(scale)
    failures: tuple[Failure, ...] = ()
    if recipes:
        failures = sweep.run(recipes, into, workers=workers, on=on, address=address, watcher=watcher).failures
    found = _titled(experiment.work.findings(Bench(scale, Path(into), say)), experiment, scale)
    produced = Produced(experiment, scale, len(recipes), failures, found, _write(found, folder))
    write_atomically(folder / _SUMMARY, (json.dumps(produced.to_dict(), indent=2) + "\n").encode())
    return replace(produced, files=(*produced.files, folder / _SUMMARY))


def _spare_larger(folder: Path, scale: Scale) -> None:
    try:
        summary = read_json(folder / _SUMMARY)
        before, seeds = SIZES.index(summary["scale"]), int(summary.get("seeds", 1))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # nothing there, or nothing that is a summary
        return
    now, fewer = SIZES.index(scale.name), len(scale.seeds) < seeds
    if before < now or (before == now and fewer):
        held = f"the scale {SIZES[before]}"
        if before == now:
            held = f"{held} with {_counted(seeds)}"
        wanted = scale.name if before < now else _counted(len(scale.seeds))
        raise PicojouleError(
            f"{folder} holds the results of {held}, which those of {wanted} would replace: choose another folder with "
            "--out"
        )


def _counted(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def fetch_data(
    experiment: Experiment, scale: Scale, say: Callable[[str], None] = print, progress: Progress = quiet
) -> Scale:
    """Get the data sets that are missing; at the scale "smoke", say instead which ones the stand-in replaces."""
    names = {recipe.data.name for recipe in experiment.work.recipes(scale)}
    here = {entry.name for entry in datasets.listing() if entry.here is not None}
    missing = sorted(names - here)
    if scale.name == "smoke":
        return scale.without(frozenset(missing))
    for name in missing:
        say(str(datasets.fetch(name, progress=progress)))
    return scale


def _titled(found: Findings, experiment: Experiment, scale: Scale) -> Findings:
    """Every table and figure says what it is, at which scale, and on what data if not on its own."""
    notes = [*found.notes]
    title = experiment.title
    if experiment.work.scaled:
        shown = f"{scale.name} scale" + (f", {_counted(len(scale.seeds))}" if experiment.work.recipes(scale) else "")
        title = f"{title} ({shown})"
    if scale.replaced:
        stand_in = f"on {STAND_IN} instead of {' and '.join(sorted(scale.replaced))}"
        title = f"{title}, {stand_in}"
        notes.append(f"Made {stand_in}, which cannot be had here: `picojoule data fetch` gets it.")
    if experiment.work.scaled and scale.name != "full":
        notes.append(
            f"The {scale.name} scale has fewer images, epochs and settings than the paper, so its numbers are not "
            "expected to be the paper's."
        )
    notes += reference.misprints(experiment.labels)
    return Findings(
        {name: replace(sheet, title=title) for name, sheet in found.tables.items()},
        {name: _with_title(chart, title) for name, chart in found.figures.items()},
        tuple(notes),
    )


def _with_title(chart: alt.TopLevelMixin, title: str) -> alt.TopLevelMixin:
    own = getattr(chart, "title", alt.Undefined)
    subtitle = [own] if isinstance(own, str) else []
    titled: alt.TopLevelMixin = chart.properties(title=alt.Title(title, subtitle=subtitle, anchor="start"))
    return titled


def _write(found: Findings, folder: Path) -> tuple[Path, ...]:
    files = []
    for name, sheet in found.tables.items():
        for ending, text in _forms(sheet, found.notes).items():
            files.append(folder / f"{name}{ending}")
            write_atomically(files[-1], text.encode())
    for name, chart in found.figures.items():
        files += report.save(chart, folder / name)
    return tuple(files)


def _forms(sheet: Sheet, notes: tuple[str, ...]) -> Mapping[str, str]:
    below = "".join(f"\n{note}\n" for note in notes)
    return {".csv": sheet.csv(), ".tex": sheet.latex(), ".txt": f"{sheet.text()}\n{below}"}
