"""A run as a sweep sees it: its state, the events that are reported of it, and the interfaces of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from picojoule.data import DATASETS
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run

_UNKNOWN_SIZE = 10_000
"""Images of data of the user's own, of which a recipe does not tell how many they are; runs are only compared by it."""

State = Literal["waiting", "running", "done", "failed"]


@dataclass(eq=False)
class Job:
    """One run of a sweep and its state.

    Attributes:
        recipe: What is trained.
        run: The run's folder.
        state: "waiting", "running", "done" or "failed".
        attempts: How often this sweep has started it.
        elsewhere: Whether another process is training it.
        batches: Batches per epoch; None before it trains.
        epoch: The epoch under way, counted from 0.
        batch: Batches of it that are done.
        inherited: The share of the training that was done when this sweep began.
        reason: Why it failed, or failed the last time.
    """

    recipe: Recipe
    run: Run
    state: State = "waiting"
    attempts: int = 0
    elsewhere: bool = False
    batches: int | None = None
    epoch: int = 0
    batch: int = 0
    inherited: float = 0.0
    reason: str = ""

    @property
    def share(self) -> float:
        """The share of the training that is done, from 0 to 1."""
        if self.state == "done":
            return 1.0
        if self.batches is None:
            return self.inherited
        return (self.epoch + self.batch / self.batches) / self.recipe.training.epochs

    @property
    def size(self) -> int:
        """The images that the whole training shows, by which its time is estimated."""
        data = self.recipe.data
        images = DATASETS[data.name].splits[0] if data.name in DATASETS else _UNKNOWN_SIZE
        return self.recipe.training.epochs * (data.limit or images)

    @property
    def over(self) -> bool:
        """Whether it is done or has failed."""
        return self.state in ("done", "failed")


# --- Events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begun:
    """The event that training begins or goes on, from this batch of this epoch.

    Attributes:
        batches: Batches per epoch.
        epoch: The epoch, counted from 0.
        batch: Batches of it that are done already.
    """

    batches: int
    epoch: int
    batch: int


@dataclass(frozen=True)
class Reached:
    """The event that so many batches of an epoch are done.

    Attributes:
        epoch: The epoch, counted from 0.
        batch: Batches of it that are done.
    """

    epoch: int
    batch: int


@dataclass(frozen=True)
class Said:
    """A remark of the run: a silent layer, a damaged checkpoint.

    Attributes:
        text: One sentence.
    """

    text: str


@dataclass(frozen=True)
class Locked:
    """The event that another process is training the run, so that it was not started."""


@dataclass(frozen=True)
class Ended:
    """The event that an attempt has ended; the run's folder says whether it is finished.

    Attributes:
        reason: Why it is not finished.
    """

    reason: str = ""


Event = Begun | Reached | Said | Locked | Ended


# --- Interfaces -------------------------------------------------------------------------------------------------------


class Backend(Protocol):
    """The interface of what trains the runs of a sweep: processes of this machine, or a cluster.

    Attributes:
        places: How many runs it trains at once.
    """

    places: int

    def start(self, job: Job, wait: bool) -> None:
        """Start a run.

        Args:
            job: The run.
            wait: Whether to wait for another process that is training it.
        """

    def listen(self, seconds: float) -> Sequence[tuple[Job, Event]]:
        """Wait for events.

        Args:
            seconds: How long at most.

        Returns:
            Events with their runs, of that time or before it; not necessarily all of them.
        """

    def stop(self) -> None:
        """Ask every run to write a checkpoint and end; each still reports its end."""

    def close(self) -> None:
        """End every process that has not ended."""


class Watcher(Protocol):
    """The interface of a display of a sweep; pass one to `sweep.run`."""

    def begin(self, jobs: Sequence[Job]) -> None:
        """Hear that the sweep begins.

        Args:
            jobs: All its runs.
        """

    def change(self, job: Job) -> None:
        """Hear that a run was started, is done, has failed, or is to be tried again.

        Args:
            job: The run in its new state.
        """

    def progress(self, job: Job) -> None:
        """Hear that a run has come further.

        Args:
            job: The run.
        """

    def say(self, job: Job, text: str) -> None:
        """Hear a remark of a run.

        Args:
            job: The run.
            text: One sentence.
        """

    def end(self) -> None:
        """Hear that the sweep has ended, in whatever way."""
