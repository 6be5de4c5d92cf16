"""Reporters: the interface of those who are told how a run goes, and the one that writes to Python's log."""

from __future__ import annotations

import logging
from typing import Protocol

from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.metrics import EpochMetrics


class Reporter(Protocol):
    """The interface of a progress display, a log or a logger such as TensorBoard.

    Pass reporters to `picojoule.fit`, which calls them in this order: `begin`, then `step` after each batch, `epoch`
    after each epoch and `say` at any time, and `end` in any case.

    >>> class Losses(LogReporter):
    ...     def epoch(self, metrics):
    ...         print(metrics.epoch, metrics.validation_loss)
    >>> reporters: list[Reporter] = [Losses()]
    """

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        """Hear that a run begins or goes on.

        Args:
            run: The run's folder.
            recipe: What is trained.
            batches: Batches per epoch.
            epoch: The epoch from which it goes on, counted from 0.
            batch: Batches of that epoch that are done already.
        """

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        """Hear that a batch is done.

        Args:
            epoch: The epoch, counted from 0.
            batch: Batches of it that are done.
            loss: Mean cross-entropy of the epoch so far.
            accuracy: Accuracy of the epoch so far, as a fraction.
        """

    def epoch(self, metrics: EpochMetrics) -> None:
        """Hear that an epoch is done.

        Args:
            metrics: The epoch's line of `metrics.jsonl`.
        """

    def say(self, text: str) -> None:
        """Hear a remark: a silent layer, a damaged checkpoint, a missed budget.

        Args:
            text: One sentence.
        """

    def end(self) -> None:
        """Hear that training has ended, finished or not."""


class LogReporter:
    """The reporter of runs that were given none: remarks become warnings in the log "picojoule"."""

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        """Do nothing."""

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        """Do nothing."""

    def epoch(self, metrics: EpochMetrics) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Write a remark to the log.

        Args:
            text: One sentence.
        """
        logging.getLogger("picojoule").warning(text)
