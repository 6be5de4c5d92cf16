"""Running an experiment: its runs, as many as are missing, and then its tables and figures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
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
from picojoule.paper import published
from picojoule.paper.context import Context, Results
from picojoule.paper.experiments import NamedExperiment
from picojoule.paper.scales import SCALES, SIZES, STAND_IN, Scale, Size
from picojoule.search import sweep
from picojoule.search.sweep import Failure, Watcher, Where

_SUMMARY = "summary.json"


@dataclass(frozen=True)
class Produced:
    """The outcome of an experiment.

    Attributes:
        experiment: The experiment.
        scale: How much of it was run, and on which data.
        runs: How many runs it has.
        finished: How many of them are finished, and so in the tables.
        failures: Those that failed.
        results: Its tables and figures.
        files: The files that were written.
    """

    experiment: NamedExperiment
    scale: Scale
    runs: int
    finished: int
    failures: tuple[Failure, ...]
    results: Results
    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values, as `summary.json` and `picojoule paper run --json` have it."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "place": self.experiment.place,
            "scale": self.scale.name,
            "seeds": len(self.scale.seeds),
            "stand_ins": dict.fromkeys(sorted(self.scale.replaced), STAND_IN),
            "runs": self.runs,
            "finished": self.finished,
            "failures": [{"run": failure.recipe.name, "reason": failure.reason} for failure in self.failures],
            "tables": {
                name: {"columns": sheet.titles, "rows": sheet.values()} for name, sheet in self.results.tables.items()
            },
            "notes": list(self.results.notes),
            "files": [path.name for path in self.files],
        }


def run(
    named: NamedExperiment,
    size: Size = "small",
    into: str | os.PathLike[str] = "runs/paper",
    out: str | os.PathLike[str] = "paper",
    *,
    seeds: int | None = None,
    train: bool = True,
    workers: int | None = None,
    on: Where = "local",
    address: str | None = None,
    say: Callable[[str], None] = print,
    watcher: Watcher | None = None,
    transfer: Callable[[], AbstractContextManager[Progress]] = lambda: nullcontext(quiet),
) -> Produced:
    """Train what an experiment lacks and write its tables and figures.

    The same call again trains nothing. Where a run fails, the tables show what there is and say so. At the scale
    "smoke" digits stand in for a data set that is not in the cache; at the others it is fetched.

    Args:
        named: The experiment.
        size: The scale.
        into: The folder of runs, which all experiments share.
        out: Tables and figures go to `out/NAME`.
        seeds: Runs of each setting; the scale's own number unless given.
        train: Whether what is missing is trained; otherwise tables and figures are of the runs that are there.
        workers: Runs at once; by the cores unless given.
        on: Where the runs are trained.
        address: The address of a Ray cluster.
        say: Told in a sentence what is fetched or measured.
        watcher: Told how the runs go; a table on standard error unless given.
        transfer: Makes the context in which data are fetched, whose value is told how much has come.

    Returns:
        What was made, with the files that were written.

    Raises:
        PicojouleError: If `out` holds the results of a larger scale, or data cannot be fetched.
    """
    folder = Path(out) / named.name
    wanted = SCALES[size].with_seeds(seeds)
    _refuse_smaller(folder, wanted)
    scale = _fetch_data(named, wanted, say, transfer if train else None)
    make_folder(folder)  # before the hours of training
    recipes = named.experiment.recipes(scale)
    failures: tuple[Failure, ...] = ()
    if recipes and train:
        failures = sweep.run(recipes, into, workers=workers, on=on, address=address, watcher=watcher).failures
    context = Context(scale, Path(into), say)
    finished = len(context.finished(recipes))
    found = _titled(named.experiment.results(context), named, scale, finished, len(recipes))
    produced = Produced(named, scale, len(recipes), finished, failures, found, _write(found, folder))
    write_atomically(folder / _SUMMARY, (json.dumps(produced.to_dict(), indent=2) + "\n").encode())
    return replace(produced, files=(*produced.files, folder / _SUMMARY))


def _refuse_smaller(folder: Path, scale: Scale) -> None:
    """Refuse to replace the results of a larger scale, or of more seeds."""
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
    """Write a number of seeds."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def _fetch_data(
    named: NamedExperiment,
    scale: Scale,
    say: Callable[[str], None],
    transfer: Callable[[], AbstractContextManager[Progress]] | None,
) -> Scale:
    """Get the data sets that are missing, if there is a way; at the scale "smoke", let the stand-in replace them."""
    names = {recipe.data.name for recipe in named.experiment.recipes(scale)}
    here = {entry.name for entry in datasets.listing() if entry.here is not None}
    missing = sorted(names - here)
    if scale.name == "smoke":
        return scale.without(frozenset(missing))
    if missing and transfer is not None:
        with transfer() as progress:
            for name in missing:
                say(str(datasets.fetch(name, progress=progress)))
    return scale


def _titled(found: Results, named: NamedExperiment, scale: Scale, finished: int, runs: int) -> Results:
    """Give every table and figure a title: what it is, at which scale, how much of it is done, and on what data."""
    notes = [*found.notes]
    title = named.title
    if named.experiment.scaled:
        shown = f"{scale.name} scale" + (f", {_counted(len(scale.seeds))}" if runs else "")
        shown += f", {finished} of {runs} runs" if finished < runs else ""
        title = f"{title} ({shown})"
    if scale.replaced:
        stand_in = f"on {STAND_IN} instead of {' and '.join(sorted(scale.replaced))}"
        title = f"{title}, {stand_in}"
        notes.append(f"Made {stand_in}, which cannot be had here: `picojoule data fetch` gets it.")
    if named.experiment.scaled and scale.name != "full":
        notes.append(
            f"The {scale.name} scale has fewer images, epochs and settings than the paper, so its numbers are not "
            "expected to be the paper's."
        )
    if finished < runs:
        notes.append(f"Made of {finished} of {runs} runs: what the others would show is not in it.")
    notes += published.misprints(named.labels)
    return Results(
        {name: replace(sheet, title=title) for name, sheet in found.tables.items()},
        {name: _with_title(chart, title) for name, chart in found.figures.items()},
        tuple(notes),
    )


def _with_title(chart: alt.TopLevelMixin, title: str) -> alt.TopLevelMixin:
    """Give a figure a title, below which its own one stands."""
    own = getattr(chart, "title", alt.Undefined)
    subtitle = [own] if isinstance(own, str) else []
    titled: alt.TopLevelMixin = chart.properties(title=alt.Title(title, subtitle=subtitle, anchor="start"))
    return titled


def _write(found: Results, folder: Path) -> tuple[Path, ...]:
    """Write tables and figures in all formats."""
    files = []
    for name, sheet in found.tables.items():
        for ending, text in _formats(sheet, found.notes).items():
            files.append(folder / f"{name}{ending}")
            write_atomically(files[-1], text.encode())
    for name, chart in found.figures.items():
        files += report.save(chart, folder / name)
    return tuple(files)


def _formats(sheet: Sheet, notes: tuple[str, ...]) -> Mapping[str, str]:
    """Return a table as CSV, LaTeX and text, by the ending of the file."""
    below = "".join(f"\n{note}\n" for note in notes)
    return {".csv": sheet.csv(), ".tex": sheet.latex(), ".txt": f"{sheet.text()}\n{below}"}
