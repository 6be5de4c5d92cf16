"""The collection of all runs below a folder, whatever state they are in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from picojoule.errors import PicojouleError
from picojoule.io import packs
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run, find_runs
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.result import SplitResult
from picojoule.runs.stored import printable

RunState = Literal["finished", "unfinished", "failed", "damaged"]
STATES: tuple[RunState, ...] = get_args(RunState)
SHOWN_EPOCHS = 60
"""A training curve of more epochs is thinned out to so many points."""


@dataclass(frozen=True)
class Entry:
    """One run folder as a report sees it."""

    name: str
    """Its path below the folder that was gathered, as it can be printed."""
    path: Path
    """The run's folder."""
    state: RunState
    """How far it has come."""
    reason: str = ""
    """Why it is not finished, or what of it cannot be read."""
    recipe: Recipe | None = None
    """None where it cannot be read."""
    test: SplitResult | None = None
    """On the test images; None unless the run is finished."""
    epochs: int = 0
    """Epochs that are done."""
    training: tuple[EpochMetrics, ...] = ()
    """The metrics of at most SHOWN_EPOCHS epochs."""


@dataclass(frozen=True)
class Collection:
    """All runs below a folder, in the order of their names."""

    folder: Path
    """Where they were looked for."""
    entries: tuple[Entry, ...]
    """One for each run folder."""

    @property
    def name(self) -> str:
        """The folder's name, as it can be printed; that of a folder "runs", which says little, with the one above."""
        place = self.folder.resolve()
        if packs.is_pack(place):
            return printable(place.name.removesuffix(packs.SUFFIX))
        return printable(f"{place.parent.name}/{place.name}" if place.name == "runs" else place.name)

    @cached_property
    def counts(self) -> dict[RunState, int]:
        """How many runs are in each state."""
        counted = Counter(entry.state for entry in self.entries)
        return {state: counted[state] for state in STATES}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)


def gather(folder: str | os.PathLike[str]) -> Collection:
    """Collect every run folder in or below a folder.

    Args:
        folder: Where to look, at any depth, or a pack.

    Returns:
        The runs, finished, unfinished, failed or damaged, which is never an error here.

    Raises:
        PicojouleError: If there is no such folder, or no run in it.

    >>> [entry.state for entry in gather(finished_run.path.parent)]  # a folder of runs
    ['finished']
    """
    folder = Path(folder)
    if not os.path.isdir(folder) and not packs.is_pack(folder):  # pathlib's own raises where a name is too long
        raise PicojouleError(
            f"there is no folder {folder}: name one that `picojoule train` or `picojoule sweep` filled"
        )
    runs = find_runs(folder)
    if not runs:
        raise PicojouleError(
            f"{folder} holds no run folders: name one that `picojoule train` or `picojoule sweep` filled"
        )
    entries = (_entry(run, _name(folder, run)) for run in runs)
    return Collection(folder, tuple(replace(e, name=printable(e.name), reason=printable(e.reason)) for e in entries))


def read_entry(run: Run) -> Entry:
    """Read one run as a report sees it.

    Args:
        run: The run, in whatever state.

    Returns:
        Its entry, under the name of its folder.

    Example:
        >>> read_entry(finished_run).state
        'finished'
    """
    return _entry(run, run.path.name)


def _name(folder: Path, run: Run) -> str:
    return run.path.name if run.path == folder else run.path.relative_to(folder).as_posix()


def _entry(run: Run, name: str) -> Entry:
    path = run.path
    try:
        recipe = Run.at(path).recipe
    except PicojouleError as fault:
        return Entry(name, path, "damaged", str(fault))
    metrics_fault = ""
    epochs, training = 0, list[EpochMetrics]()
    try:
        epochs, training = run.thinned_metrics(SHOWN_EPOCHS)
    except PicojouleError as fault:
        metrics_fault = str(fault)
    known: dict[str, Any] = {"recipe": recipe, "epochs": epochs, "training": tuple(training)}
    if not run.finished:
        done = metrics_fault or f"{epochs} of {recipe.training.epochs} epochs are done"
        if run.failure is not None:
            return Entry(name, path, "failed", f"{run.failure} ({done})", **known)
        return Entry(name, path, "unfinished", done, **known)
    try:
        return Entry(name, path, "finished", metrics_fault, test=run.result.test, **known)
    except PicojouleError as fault:
        return Entry(name, path, "damaged", str(fault), **known)
