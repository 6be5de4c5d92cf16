"""The runs in a folder, whatever state they are in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.record import Run

State = Literal["finished", "unfinished", "failed", "damaged"]
STATES: tuple[State, ...] = get_args(State)
SHOWN_EPOCHS = 60
"""A training curve of more epochs is thinned out to so many."""

_HOMES = ("recipe.toml", "result.json")


def _printable(text: str) -> str:
    """Without what no encoding has, such as a part of a folder's name that is no text."""
    return text.encode(errors="backslashreplace").decode()


# Wider than any network, and narrow enough for sums and ratios to stay finite: one damaged figure spoils no other.
_SMALLEST, _LARGEST = 1e-30, 1e30


def _energy(joules: float) -> float:
    if joules and not _SMALLEST <= joules <= _LARGEST:
        raise ValueError("no energy of a network")
    return joules


Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Joules = Annotated[float, AfterValidator(_energy)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class MeasuredLayer(_Stored):
    """One layer in the `test` object of `result.json`."""

    name: Annotated[str, AfterValidator(_printable)]
    neurons: Count
    synops: Number
    joules: Joules
    rate: Number | None
    dead_rate: Number | None


class Measured(_Stored):
    """What a report reads of the `test` object of `result.json`."""

    samples: Count
    accuracy: float = Field(ge=0, le=1)
    joules: Joules | None
    rate_mean: Number | None
    dead_rate: Number | None
    ann_joules: Joules | None
    layers: tuple[MeasuredLayer, ...]


class Epoch(_Stored):
    """What a report reads of a line of `metrics.jsonl`."""

    epoch: Count
    train_loss: Number | None = None
    train_accuracy: Number | None = None
    validation_loss: Number | None = None
    validation_accuracy: Number | None = None
    joules: Joules | None = None
    target_joules: Joules | None = None
    """What a budget run wanted to spend by then."""
    strength: Number | None = None


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
        return _printable(f"{place.parent.name}/{place.name}" if place.name == "runs" else place.name)

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
    if not folder.is_dir():
        raise PicojouleError(
            f"there is no folder {folder}: name one that `picojoule train` or `picojoule sweep` filled"
        )
    paths = sorted(Path(root) for root, _, files in os.walk(folder) if any(home in files for home in _HOMES))
    if not paths:
        raise PicojouleError(
            f"{folder} holds no run folders: name one that `picojoule train` or `picojoule sweep` filled"
        )
    entries = (_entry(folder, path) for path in paths)
    return Collection(folder, tuple(replace(e, name=_printable(e.name), reason=_printable(e.reason)) for e in entries))


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
        epochs, training, metrics_fault = 0, (), f"metrics.jsonl cannot be read ({fault})"
    except ValidationError as fault:
        epochs, training, metrics_fault = 0, (), f"metrics.jsonl is damaged ({_first(fault)})"
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
        return Entry(name, path, "damaged", f"result.json is no result of picojoule ({_first(fault)})", **known)


def _first(fault: ValidationError) -> str:
    mistake = fault.errors(include_url=False)[0]
    key = ".".join(map(str, mistake["loc"]))
    return f"{key and f'{key}: '}{mistake['msg']}"


def _training(run: Run) -> tuple[int, tuple[Epoch, ...]]:
    """The number of epochs, and at most SHOWN_EPOCHS of them, the first and the last among them.

    Only these lines are parsed: each holds every layer, and a thousand runs have many.
    """
    try:
        lines = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0, ()
    last = len(lines) - 1
    steps = min(SHOWN_EPOCHS - 1, last)
    wanted = sorted({round(i * last / steps) for i in range(steps + 1)}) if steps > 0 else range(len(lines))
    return len(lines), tuple(Epoch.model_validate_json(lines[i]) for i in wanted)
