"""How a run looks while it goes on: a progress display on standard error (or plain lines), and TensorBoard."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError
from picojoule.io.background import apart
from picojoule.io.tables import visible
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.metrics import EpochMetrics

REDRAWN = 0.1
"""Seconds between two drawings of a bar or a table, which is then as smooth as it need be.

They are drawn by whoever has news, for Rich would start a thread in the main thread, and that does not survive an
exception from a signal's handler (see `background`).
"""


class Rhythm:
    """Says whether something is due that is to happen at most once in so many seconds."""

    def __init__(self, seconds: float = REDRAWN) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class Display:
    """Loss, accuracy, energy beside what is wanted of it or what it was after the first epoch, and the time left."""

    def __init__(self, title: str = "") -> None:
        self._title = title
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._batches = 1
        self._redrawing = Rhythm()
        self._first_joules: float | None = None

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
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
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                auto_refresh=False,
            )
            self._progress.start()
            total = recipe.training.epochs * batches
            budget = recipe.penalty.budget
            aim = f"λ'={recipe.penalty.strength:g}" if budget is None else f"budget {_shown(budget)}"
            title = self._title or f"{recipe.model.name} {recipe.penalty.kind} {aim}"
            self._task = self._progress.add_task(title, total=total, completed=epoch * batches + batch, state="")

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        if self._progress is not None:
            state = f"epoch {epoch + 1} loss {loss:.3f} accuracy {accuracy:.1%}"
            done, redraw = epoch * self._batches + batch, self._redrawing.due()
            self._progress.update(self._task, completed=done, state=state, refresh=redraw)

    def epoch(self, metrics: EpochMetrics) -> None:
        title = f"{self._title}: " if self._title else ""
        self.say(
            f"{title}epoch {metrics.epoch + 1}: loss {metrics.train_loss:.3f}, validation accuracy "
            f"{metrics.validation_accuracy:.1%}{self._energy(metrics)}, {metrics.seconds:.0f} s"
        )

    def _energy(self, metrics: EpochMetrics) -> str:
        joules, wanted, first = metrics.joules, metrics.target_joules, self._first_joules
        self._first_joules = joules if first is None else first
        if joules is None:
            return ""
        beside = ""
        if wanted is not None:
            beside = f" (the budget wants {format_joules(wanted)} by now)"
        elif first:
            beside = f" ({joules / first:.0%} of the {format_joules(first)} after epoch 1)"
        return f", {format_joules(joules)} an image{beside}, rate {metrics.rate_mean:.1%}"

    def say(self, text: str) -> None:
        text = visible(text)
        if self._progress is not None:
            self._progress.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _shown(budget: float | str) -> str:
    return budget if isinstance(budget, str) else f"{budget:.3g} of the unpenalised energy"


class TensorBoard:
    """Every number of `metrics.jsonl` as a scalar, in the run's folder.

    Its writer has a thread and locks of its own, so it is called apart from the main thread (see `background`).
    """

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise PicojouleError("TensorBoard is not installed: pip install 'picojoule[tensorboard]'") from None
        self._make = SummaryWriter
        self._writer: Any = None

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None:
        self._writer = apart(lambda: self._make(str(run.path / "tensorboard"), purge_step=epoch))

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        pass

    def epoch(self, metrics: EpochMetrics) -> None:
        apart(lambda: self._write(metrics))

    def _write(self, metrics: EpochMetrics) -> None:
        for key, value in metrics.to_dict().items():
            if isinstance(value, int | float) and key != "epoch":
                self._writer.add_scalar(key, value, metrics.epoch)
        for layer in metrics.layers:
            for key, figure in (("joules", layer.joules), ("rate", layer.rate), ("dead_rate", layer.dead_rate)):
                if figure is not None:
                    self._writer.add_scalar(f"{key}/{layer.name}", figure, metrics.epoch)

    def say(self, text: str) -> None:
        pass

    def end(self) -> None:
        if self._writer is not None:
            apart(self._writer.close)
