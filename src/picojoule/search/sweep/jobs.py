"""A run as a sweep sees it: where it stands, and what is heard of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from picojoule.data import DATASETS
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run

State = Literal["waiting", "running", "done", "failed"]


@dataclass(eq=False)
class Job:
    """One run of a sweep."""

    recipe: Recipe
    run: Run
    state: State = "waiting"
    attempts: int = 0
    elsewhere: bool = False
    """Another process is training it."""
    batches: int | None = None
    """Of an epoch; known once it trains."""
    epoch: int = 0
    batch: int = 0
    inherited: float = 0.0
    """The share that was done when this sweep took it up."""
    reason: str = ""
    """Why it failed, or failed the last time."""

    @property
    def share(self) -> float:
        """How much of the training is done, from 0 to 1."""
        if self.state == "done":
            return 1.0
        if self.batches is None:
            return self.inherited
        return (self.epoch + self.batch / self.batches) / self.recipe.training.epochs

    @property
    def size(self) -> int:
        """Images that the whole training shows: what runs of one sweep differ in most, as to time."""
        data = self.recipe.data
        return self.recipe.training.epochs * (data.limit or DATASETS[data.name].splits[0])

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed")


# --- What is heard of it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begun:
    """It trains, from this batch of this epoch on."""

    batches: int
    epoch: int
    batch: int


@dataclass(frozen=True)
class Reached:
    """So many batches of this epoch are done."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class Said:
    """It had something to say: a silent layer, a damaged checkpoint."""

    text: str


@dataclass(frozen=True)
class Locked:
    """Another process is training it, so it was left alone."""


@dataclass(frozen=True)
class Ended:
    """It is finished, or not, for this reason."""

    reason: str = ""


Event = Begun | Reached | Said | Locked | Ended


# --- Who does it, and who looks on ------------------------------------------------------------------------------------


class Backend(Protocol):
    """Those who do the work: processes of this machine, or a cluster."""

    places: int
    """How many runs it takes at once."""

    def start(self, job: Job, wait: bool) -> None:
        """Take up a run; `wait` for another process that is training it."""

    def listen(self, seconds: float) -> Sequence[tuple[Job, Event]]:
        """What was heard in that time, or before; not necessarily all of it."""

    def stop(self) -> None:
        """Ask every run to write a checkpoint and end; each is still heard of."""

    def close(self) -> None:
        """End what has not ended."""


class Watcher(Protocol):
    """Somebody who is told how a sweep goes."""

    def begin(self, jobs: Sequence[Job]) -> None: ...
    def change(self, job: Job) -> None:
        """It was started, is done, has failed, or is to be tried again."""

    def progress(self, job: Job) -> None: ...
    def say(self, job: Job, text: str) -> None: ...
    def end(self) -> None: ...
