"""What a worker does, wherever it is: train one run and tell how it goes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from picojoule.errors import PicojouleError, memory_ran_out
from picojoule.io.signals import Interrupted
from picojoule.recipe import Recipe
from picojoule.runs.folder import Busy, Run
from picojoule.runs.metrics import EpochMetrics
from picojoule.search.sweep.jobs import Begun, Ended, Event, Held, Reached, Said
from picojoule.training import fit
from picojoule.training.display import Rhythm

_PAUSE = 0.25
"""Seconds between two reports: often enough for a reader, too seldom to cost anything."""


class Messenger:
    """A reporter that passes on what it is told."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._reporting = Rhythm(_PAUSE)

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        self._tell(Begun(batches, epoch, batch))

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        if self._reporting.due():
            self._tell(Reached(epoch, batch))

    def epoch(self, metrics: EpochMetrics) -> None:
        self._tell(Reached(metrics.epoch + 1, 0))

    def say(self, text: str) -> None:
        self._tell(Said(text))

    def end(self) -> None:
        pass


def train(recipe: Recipe, into: Path, tell: Callable[[Event], None], wait: bool) -> Ended | Held:
    """One attempt at a run: how it ended, whatever happened."""
    try:
        fit.fit(recipe, into, reporters=[Messenger(tell)], wait=wait)
    except Busy:
        return Held()
    except (PicojouleError, Interrupted) as fault:
        return Ended(str(fault))
    except (MemoryError, RuntimeError, OSError) as fault:
        return Ended(memory_ran_out(fault) or _unforeseen(fault, tell))
    except (Exception, SystemExit) as fault:  # the user's model may raise anything
        return Ended(_unforeseen(fault, tell))
    return Ended()


def _unforeseen(fault: BaseException, tell: Callable[[Event], None]) -> str:
    tell(Said("".join(traceback.format_exception(fault))))
    return " ".join(f"{type(fault).__name__}: {fault}".split())
