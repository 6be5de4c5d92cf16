"""Who is told how a run goes."""

from __future__ import annotations

import logging
from typing import Protocol

from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.metrics import EpochMetrics


class Reporter(Protocol):
    """Somebody who is told how a run goes: a progress display, a log, TensorBoard."""

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None: ...
    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None: ...
    def epoch(self, metrics: EpochMetrics) -> None: ...
    def say(self, text: str) -> None: ...
    def end(self) -> None: ...


class Log:
    """The reporter of last resort."""

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None: ...
    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None: ...
    def epoch(self, metrics: EpochMetrics) -> None: ...
    def end(self) -> None: ...

    def say(self, text: str) -> None:
        logging.getLogger("picojoule").warning(text)


def say(reporters: tuple[Reporter, ...], text: str) -> None:
    for reporter in reporters:
        reporter.say(text)
