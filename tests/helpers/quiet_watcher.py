"""A watcher for tests of sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picojoule.search.sweep import Job


class Quiet:
    """A watcher of a sweep that shows nothing: it remembers, and does something when a run has come further."""

    def __init__(self, on_progress: Callable[[Job], None] = lambda job: None) -> None:
        self.changes: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.shares: list[float] = []
        self.jobs: Sequence[Job] = ()
        self.ended = 0
        self._on_progress = on_progress

    def begin(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs

    def change(self, job: Job) -> None:
        self.changes.append((job.recipe.name, job.state))

    def progress(self, job: Job) -> None:
        self.shares.append(job.share)
        self._on_progress(job)

    def say(self, job: Job, text: str) -> None:
        self.said.append(text)

    def end(self) -> None:
        self.ended += 1
