"""The runs in a folder, whatever state they are in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from picojoule.errors import PicojouleError
from picojoule.io import files
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.result import Epoch, Measured, first_fault, printable

State = Literal["finished", "unfinished", "failed", "damaged"]
STATES: tuple[State, ...] = get_args(State)
SHOWN_EPOCHS = 60
"""A training curve of more epochs is thinned out to so many."""

_HOMES = ("recipe.toml", "result.json")


@dataclass(frozen=True)
class Entry:
    """One run folder as a report sees it."""

    name: str
    """Its path below the folder that was gathered, as it can be printed."""
    path: Path
    state: State
    reason: str = ""
    """Why it is not finished, or what of it cannot be read."""
    recipe: Recipe | None = None
    test: Measured | None = None
    epochs: int = 0
    """Epochs that are done."""
    training: tuple[Epoch, ...] = ()
    """The lines of `metrics.jsonl`, thinned out."""


@dataclass(frozen=True)
class Collection:
    """All runs below a folder, in the order of their names."""

    folder: Path
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The folder's own, as it can be printed; of a folder "runs", which says little, with the one above."""
        place = self.folder.resolve()
        return printable(f"{place.parent.name}/{place.name}" if place.name == "runs" else place.name)

    @cached_property
    def counts(self) -> dict[State, int]:
        """How many runs are in each state."""
        counted = Counter(entry.state for entry in self.entries)
        return {state: counted[state] for state in STATES}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)


def gather(folder: str | os.PathLike[str]) -> Collection:
    """Every run folder in or below `folder`: finished, unfinished, failed, or damaged, which is never an error here."""
    folder = Path(folder)
    if not os.path.isdir(folder):  # pathlib's own raises where a name is too long
        raise PicojouleError(
            f"there is no folder {folder}: name one that `picojoule train` or `picojoule sweep` filled"
        )
    paths = sorted(Path(root) for root, _, names in os.walk(folder) if any(home in names for home in _HOMES))
    if not paths:
        raise PicojouleError(
            f"{folder} holds no run folders: name one that `picojoule train` or `picojoule sweep` filled"
        )
    entries = (_entry(folder, path) for path in paths)
    return Collection(folder, tuple(replace(e, name=printable(e.name), reason=printable(e.reason)) for e in entries))


def _entry(folder: Path, path: Path) -> Entry:
    name = path.name if path == folder else path.relative_to(folder).as_posix()
    run = Run(path)
    try:
        recipe = Run.at(path).recipe
    except PicojouleError as fault:
        return Entry(name, path, "damaged", str(fault))
    metrics_fault = ""
    try:
        epochs, training = _training(run)
    except (OSError, UnicodeDecodeError) as fault:
        epochs, training, metrics_fault = 0, (), f"metrics.jsonl cannot be read ({files.reason(fault)})"
    except ValidationError as fault:
        epochs, training, metrics_fault = 0, (), f"metrics.jsonl is damaged ({first_fault(fault)})"
    known: dict[str, Any] = {"recipe": recipe, "epochs": epochs, "training": training}
    if not run.finished:
        done = metrics_fault or f"{epochs} of {recipe.training.epochs} epochs are done"
        if run.failure is not None:
            return Entry(name, path, "failed", f"{run.failure} ({done})", **known)
        return Entry(name, path, "unfinished", done, **known)
    try:
        return Entry(name, path, "finished", metrics_fault, test=Measured.model_validate(run.result["test"]), **known)
    except PicojouleError as fault:
        return Entry(name, path, "damaged", str(fault), **known)
    except ValidationError as fault:
        return Entry(name, path, "damaged", f"result.json is no result of picojoule ({first_fault(fault)})", **known)


def _training(run: Run) -> tuple[int, tuple[Epoch, ...]]:
    """The number of epochs, and at most SHOWN_EPOCHS of them, the first and the last among them.

    Only these lines are parsed: each holds every layer, and a thousand runs have many.
    """
    try:
        lines = files.read_text(run.path / "metrics.jsonl").splitlines()
    except FileNotFoundError:
        return 0, ()
    last = len(lines) - 1
    steps = min(SHOWN_EPOCHS - 1, last)
    wanted = sorted({round(i * last / steps) for i in range(steps + 1)}) if steps > 0 else range(len(lines))
    return len(lines), tuple(Epoch.model_validate_json(lines[i]) for i in wanted)
