"""The display of a sweep: a live table on standard error, or plain lines where that is not a terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from picojoule.energy.units import format_joules
from picojoule.io.tables import visible
from picojoule.search.sweep.jobs import Job
from picojoule.training.display import Throttle

_STYLES = {"done": "green", "running": "bold", "starting": "", "waiting": "dim", "failed": "bold red"}
_FIRST_SHOWN = ("running", "failed", "starting", "done", "waiting")
"""Which rows to keep where the terminal is too low for all."""
_FRAME = 8
"""Lines of the terminal that are not rows: title, head, rules, what is left out, and a little air."""


_ACCURACY = "accuracy "
"""How a result begins."""
_RESULT = len("100.0%, 99.9 µJ")
"""Columns of the table that hold any result whole; why a run failed is said below the table too."""


class Board:
    """A table of all runs of a sweep (done, running with epoch and percent, waiting or failed) and of the time left.

    Args:
        clock: Gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: Sequence[Job] = ()
        self._results: dict[str, str] = {}
        self._live: Live | None = None
        self._redrawing = Throttle()
        self._began = 0.0
        self._any_started = False

    def begin(self, jobs: Sequence[Job]) -> None:
        """Show the table (see `Watcher`).

        Args:
            jobs: Every run of the sweep.
        """
        self._jobs, self._began = jobs, self._clock()
        if sys.stderr.isatty():
            console = Console(stderr=True)
            self._live = Live(
                get_renderable=lambda: self._table(console.size.height),
                console=console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=sys.stdout is sys.stderr,  # else it is not ours to move
            )
            self._live.start()

    def change(self, job: Job) -> None:
        """Show the new state of a run (see `Watcher`).

        Args:
            job: The run.
        """
        if job.state == "done":
            self._results[job.run.path.name] = _result(job)
        if self._live is None:
            self._line(job)
        else:
            self._live.refresh()

    def progress(self, job: Job) -> None:
        """Show how far a run has come (see `Watcher`).

        Args:
            job: The run.
        """
        if self._live is not None and self._redrawing.due():
            self._live.refresh()

    def say(self, job: Job, text: str) -> None:
        """Print a remark (see `Watcher`).

        Args:
            job: The run.
            text: One sentence.
        """
        self._print(f"{job.run.path.name}: {text}")

    def end(self) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def summary(self) -> str:
        """Return in one line how many runs are done, running, waiting and failed, and how long the rest takes."""
        states = Counter(_state(job) for job in self._jobs)
        states["waiting"] += states.pop("starting", 0)
        counts = ", ".join(f"{states[state]} {state}" for state in ("done", "running", "waiting", "failed"))
        left = self.seconds_left()
        return f"{len(self._jobs)} runs: {counts}" + (f"; about {_duration(left)} left" if left else "")

    def seconds_left(self) -> float | None:
        """Estimate the time left from the speed of this sweep so far.

        Returns:
            Seconds; None before anything is done.
        """
        done = sum(job.size * (job.share - job.inherited) for job in self._jobs if job.state != "failed")
        left = sum(job.size * (1 - job.share) for job in self._jobs if not job.over)
        return (self._clock() - self._began) * left / done if done > 0 else None

    # --- Lines --------------------------------------------------------------------------------------------------------

    def _line(self, job: Job) -> None:
        """Print the new state of a run as a line."""
        name = job.run.path.name
        if job.state == "running" and not self._any_started:
            self._any_started = True
            self._print(self.summary())
        if job.state == "failed":
            self._print(f"{name} failed: {job.reason}")
        elif job.state == "waiting" and job.reason:
            self._print(f"{name}: {job.reason}")
        elif job.state == "waiting":
            self._print(f"{name} is being trained by another process, whose result will do")
        elif job.state == "running":
            self._print(f"{name} {'started' if job.attempts == 1 else 'is tried again'}")
        elif self._any_started:  # what was done before is only counted
            self._print(f"{name} done: {self._results[name]} ({self.summary()})")

    def _print(self, text: str) -> None:
        """Print a line above the table, or where there is none."""
        text = visible(text)
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    # --- Table --------------------------------------------------------------------------------------------------------

    def _table(self, height: int) -> Table:
        """Draw the table for a terminal of so many lines."""
        shown = self._shown(max(4, height - _FRAME))
        hidden = Counter(_state(job) for job in self._jobs if job not in shown)
        caption = ", ".join(f"{count} {state}" for state, count in hidden.items())
        table = Table(title=self.summary(), caption=caption and f"and {caption}", title_justify="left")
        table.add_column("run", overflow="ellipsis", no_wrap=True, ratio=1)
        for title in ("state", "epoch", "trained"):
            table.add_column(title, no_wrap=True, justify="left" if title == "state" else "right")
        table.add_column("accuracy, energy", overflow="ellipsis", no_wrap=True, min_width=_RESULT)
        for job in shown:
            state = _state(job)
            epochs = job.recipe.training.epochs
            under_way = state == "running"
            table.add_row(
                escape(job.run.path.name),
                Text(state, style=_STYLES[state]),
                f"{min(job.epoch + 1, epochs)}/{epochs}" if under_way else "",
                f"{job.share:.0%}" if under_way or job.share else "",
                Text(visible(job.reason) or self._results.get(job.run.path.name, "").removeprefix(_ACCURACY)),
            )
        return table

    def _shown(self, rows: int) -> list[Job]:
        """Choose the runs that are shown where there is no room for all."""
        jobs = list(self._jobs)
        if len(jobs) <= rows:
            return jobs
        # The latest of what is done, the next of what waits; then back into the order of the sweep.
        place = {job.run.path.name: number for number, job in enumerate(jobs)}
        by_need = sorted(
            jobs,
            key=lambda job: (
                _FIRST_SHOWN.index(_state(job)),
                place[job.run.path.name] * (-1 if job.state == "done" else 1),
            ),
        )
        return sorted(by_need[:rows], key=lambda job: place[job.run.path.name])


def _state(job: Job) -> str:
    """Return the state of a run as it is shown."""
    return "starting" if job.state == "running" and job.batches is None else job.state


def _result(job: Job) -> str:
    """Write accuracy and energy of a finished run."""
    test = job.run.result.test
    energy = "" if test.joules is None else f", {format_joules(test.joules)}"
    return f"{_ACCURACY}{test.accuracy:.1%}{energy}"


def _duration(seconds: float) -> str:
    """Write a time as hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))
