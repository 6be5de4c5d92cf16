"""Reporters that show how a run goes: a progress display on standard error (or plain lines), and TensorBoard."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from picojoule.energy.units import format_joules
from picojoule.io.background import run_in_thread
from picojoule.io.extras import explained
from picojoule.io.tables import visible
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.metrics import EpochMetrics

REDRAW_SECONDS = 0.1
"""Seconds between two drawings of a bar or a table, which is as smooth as the eye needs.

They are drawn when something has changed, and not by Rich's own thread: starting a thread in the main thread does not
survive an exception from a signal's handler (see `background`).
"""


class Throttle:
    """A limit on how often something is done: at most once in so many seconds.

    Args:
        seconds: The least time between two occasions.

    >>> throttle = Throttle(3600)
    >>> throttle.due(), throttle.due()
    (True, False)
    """

    def __init__(self, seconds: float = REDRAW_SECONDS) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        """Return whether it may be done now; if so, the time begins anew."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class Display:
    """A progress bar with loss and accuracy, and a line per epoch with accuracy and energy, on standard error.

    The energy stands beside what the budget wants, or beside that after the first epoch. Where standard error is not a
    terminal there are lines only.

    Args:
        title: What the bar is called; by default the network and its penalty.
    """

    def __init__(self, title: str = "") -> None:
        self._title = title
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._batches = 1
        self._redrawing = Throttle()
        self._first_joules: float | None = None

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        """Show the bar, from where the run goes on (see `Reporter`)."""
        self._batches = batches
        earlier = run.metrics[:1]
        self._first_joules = earlier[0].joules if earlier else None
        if epoch == recipe.training.epochs:
            self.say(f"resuming {run.path.name} after its last epoch")
        elif epoch or batch:
            self.say(f"resuming {run.path.name} in epoch {epoch + 1} after {batch} of {batches} batches")
        if sys.stderr.isatty():
            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                auto_refresh=False,
                expand=True,  # the bar takes what the words leave
            )
            self._progress.start()
            total = recipe.training.epochs * batches
            budget = recipe.penalty.budget
            aim = f"λ'={recipe.penalty.strength:g}" if budget is None else f"budget {_shown(budget)}"
            title = self._title or f"{recipe.model.name} {recipe.penalty.kind} {aim}"
            self._task = self._progress.add_task(title, total=total, completed=epoch * batches + batch, state="")

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        """Move the bar on (see `Reporter`)."""
        if self._progress is not None:
            state = f"epoch {epoch + 1} loss {loss:.2f} accuracy {accuracy:.1%}"
            done, redraw = epoch * self._batches + batch, self._redrawing.due()
            self._progress.update(self._task, completed=done, state=state, refresh=redraw)

    def epoch(self, metrics: EpochMetrics) -> None:
        """Print the line of an epoch (see `Reporter`)."""
        title = f"{self._title}: " if self._title else ""
        self.say(
            f"{title}epoch {metrics.epoch + 1}: loss {metrics.train_loss:.3f}, validation accuracy "
            f"{metrics.validation_accuracy:.1%}{self._energy(metrics)}, {metrics.seconds:.0f} s"
        )

    def _energy(self, metrics: EpochMetrics) -> str:
        """Write the energy of an epoch beside what it is compared with."""
        joules, wanted, first = metrics.joules, metrics.target_joules, self._first_joules
        self._first_joules = joules if first is None else first
        if joules is None:
            return ""
        compared = ""
        if wanted is not None:
            compared = f" (the budget wants {format_joules(wanted)} by now)"
        elif first:
            compared = f" ({joules / first:.0%} of the {format_joules(first)} after epoch 1)"
        return f", {format_joules(joules)} an image{compared}, rate {metrics.rate_mean:.1%}"

    def say(self, text: str) -> None:
        """Print a remark (see `Reporter`)."""
        text = visible(text)
        if self._progress is not None:
            self._progress.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _shown(budget: float | str) -> str:
    """Write a budget for the bar's title."""
    return budget if isinstance(budget, str) else f"{budget:.3g} of the unpenalised energy"


class TensorBoard:
    """A log for TensorBoard in the run's folder: every number of `metrics.jsonl` as a scalar.

    Its writer has a thread and locks of its own, so it is called apart from the main thread (see `background`).

    Raises:
        PicojouleError: If TensorBoard is not installed.
    """

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as missing:
            raise explained(missing, "the log for TensorBoard") from None
        self._make = SummaryWriter
        self._writer: Any = None

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        """Open the log in the run's folder (see `Reporter`)."""
        self._writer = run_in_thread(lambda: self._make(str(run.path / "tensorboard"), purge_step=epoch))

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        """Do nothing: there is one value per epoch."""

    def epoch(self, metrics: EpochMetrics) -> None:
        """Write the numbers of an epoch (see `Reporter`)."""
        run_in_thread(lambda: self._write(metrics))

    def _write(self, metrics: EpochMetrics) -> None:
        """Write the numbers of an epoch, those of its layers too."""
        for key, value in metrics.to_dict().items():
            if isinstance(value, int | float) and key != "epoch":
                self._writer.add_scalar(key, value, metrics.epoch)
        for layer in metrics.layers:
            for key, figure in (("joules", layer.joules), ("rate", layer.rate), ("dead_rate", layer.dead_rate)):
                if figure is not None:
                    self._writer.add_scalar(f"{key}/{layer.name}", figure, metrics.epoch)

    def say(self, text: str) -> None:
        """Do nothing: remarks are not numbers."""

    def end(self) -> None:
        """Close the log."""
        if self._writer is not None:
            run_in_thread(self._writer.close)
