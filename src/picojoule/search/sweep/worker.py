"""A worker of a sweep, on any backend: train one run and report how it goes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from picojoule.errors import PicojouleError, memory_ran_out
from picojoule.io.signals import Interrupted
from picojoule.recipe import Recipe
from picojoule.runs.folder import Busy, Run
from picojoule.runs.metrics import EpochMetrics
from picojoule.search.sweep.jobs import Begun, Ended, Event, Locked, Reached, Said
from picojoule.training import fit
from picojoule.training.display import Throttle

_PAUSE = 0.25
"""Seconds between two reports of progress: often enough for a reader, too seldom to cost anything."""


class Messenger:
    """A reporter that turns what it is told into events of a sweep.

    Args:
        tell: Sends an event to the sweep.
    """

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._reporting = Throttle(_PAUSE)

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        """Report that training begins (see `Reporter`)."""
        self._tell(Begun(batches, epoch, batch))

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        """Report progress, a few times per second (see `Reporter`)."""
        if self._reporting.due():
            self._tell(Reached(epoch, batch))

    def epoch(self, metrics: EpochMetrics) -> None:
        """Report that an epoch is done (see `Reporter`)."""
        self._tell(Reached(metrics.epoch + 1, 0))

    def say(self, text: str) -> None:
        """Report a remark (see `Reporter`)."""
        self._tell(Said(text))

    def end(self) -> None:
        """Do nothing: `train` reports the end."""


def train(recipe: Recipe, into: Path, tell: Callable[[Event], None], wait: bool) -> Ended | Locked:
    """Make one attempt at a run.

    Args:
        recipe: What is trained.
        into: The folder of runs.
        tell: Sends an event to the sweep.
        wait: Whether to wait for another process that is training the run.

    Returns:
        How it ended, whatever happened: nothing is raised.
    """
    try:
        fit.fit(recipe, into, reporters=[Messenger(tell)], wait=wait)
    except Busy:
        return Locked()
    except (PicojouleError, Interrupted) as fault:
        return Ended(str(fault))
    except (MemoryError, RuntimeError, OSError) as fault:
        return Ended(memory_ran_out(fault) or _unexpected(fault, tell))
    except (Exception, SystemExit) as fault:  # the user's model may raise anything
        return Ended(_unexpected(fault, tell))
    return Ended()


def _unexpected(fault: BaseException, tell: Callable[[Event], None]) -> str:
    """Report the traceback of an error that is not a user's mistake, and return it as one line."""
    tell(Said("".join(traceback.format_exception(fault))))
    return " ".join(f"{type(fault).__name__}: {fault}".split())
