"""The scheduler of a sweep: every run once, after those that it builds on, and once more if it fails.

It knows nothing of processes or clusters: a backend trains the runs and reports events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from picojoule.errors import PicojouleError
from picojoule.io.signals import Interrupted, Stop
from picojoule.runs.verdict import missed
from picojoule.search.sweep.jobs import Backend, Begun, Event, Job, Locked, Reached, Said, State, Watcher
from picojoule.training.fit import is_finished

_ATTEMPTS = 2
"""How often a run is tried."""
_POLLING = 0.2
"""Seconds between two looks at whether the sweep is to stop."""


@dataclass(frozen=True)
class Scheduler:
    """The scheduler of a sweep: starts each run when it can begin, and keeps its state.

    Attributes:
        jobs: The runs.
        backend: What trains them.
        watcher: Who is told how it goes.
    """

    jobs: Sequence[Job]
    backend: Backend
    watcher: Watcher

    def go(self, stop: Stop) -> None:
        """Train until every run is done or has failed.

        Args:
            stop: Asked several times per second whether the sweep is to stop.

        Raises:
            Interrupted: If it is to stop, after every run has written a checkpoint.
        """
        for job in self.jobs:
            self._settle_finished(job)
        told = False
        while not all(job.over for job in self.jobs):
            if not stop.requested:
                self._start_ready()
            elif not told:
                told = True
                self.backend.stop()
            if stop.requested and not self._running():
                done = sum(job.state == "done" for job in self.jobs)
                raise Interrupted(f"stopped with {done} of {len(self.jobs)} runs done; the same command goes on")
            for job, event in self.backend.listen(_POLLING):
                self._hear(job, event, stopping=stop.requested)

    def _running(self) -> int:
        """Count the runs that are being trained."""
        return sum(job.state == "running" for job in self.jobs)

    # --- Starting -----------------------------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Start as many runs as there are free places."""
        free = self.backend.places - self._running()
        ready = self._ready()
        # What another process is training is waited for only when there is nothing better to do.
        for job in ([job for job in ready if not job.elsewhere] or ready)[: max(0, free)]:
            if self._settle_finished(job):
                continue
            job.attempts += 1
            self.backend.start(job, wait=job.elsewhere)
            self._change_state(job, "running")

    def _ready(self) -> list[Job]:
        """List the runs that can begin: what they build on is done."""
        by_name = {job.run.path.name: job for job in self.jobs}
        ready = []
        for job in self.jobs:
            if job.state != "waiting":
                continue
            # One that is not of this sweep is there already, or the run says that it is not.
            before = [by_name[name] for name in job.recipe.needs.values() if name in by_name]
            failed = [other for other in before if other.state == "failed"]
            if failed:
                self._fail(job, f"the run that it builds on, {failed[0].run.path.name}, failed")
            elif all(other.state == "done" for other in before):
                ready.append(job)
        return ready

    def _settle_finished(self, job: Job) -> bool:
        """Return whether there is nothing to do for a job: it is finished, or the folder in its place is damaged."""
        try:
            if not is_finished(job.recipe, job.run.path.parent):
                return False
            shortfall = missed(job.run)
        except PicojouleError as fault:
            self._change_state(job, "failed", str(fault))
            return True
        if shortfall is not None:
            self.watcher.say(job, shortfall)
        job.run.remove_checkpoints()  # left by a process that was killed in its last moment
        job.inherited = 1.0  # not by this sweep
        self._change_state(job, "done")
        return True

    # --- Events -------------------------------------------------------------------------------------------------------

    def _hear(self, job: Job, event: Event, stopping: bool) -> None:
        """Change the state of a run as an event demands."""
        if isinstance(event, Said):
            self.watcher.say(job, event.text)
        elif job.over:  # an event from before its end
            pass
        elif isinstance(event, Begun):
            first_time = job.batches is None
            job.batches, job.epoch, job.batch = event.batches, event.epoch, event.batch
            if first_time:
                job.inherited = job.share
            self.watcher.progress(job)
        elif isinstance(event, Reached):
            job.epoch, job.batch = event.epoch, event.batch
            self.watcher.progress(job)
        elif isinstance(event, Locked):
            job.attempts -= 1
            job.elsewhere = True
            self._change_state(job, "waiting")
        elif job.run.finished:  # also if the worker was killed in its last moment
            job.inherited = 1.0 if job.batches is None else job.inherited
            self._change_state(job, "done")
        elif stopping or job.attempts < _ATTEMPTS:
            self._change_state(job, "waiting", event.reason)
        else:
            self._fail(job, event.reason)

    def _fail(self, job: Job, reason: str) -> None:
        """Give a run up, and write the reason into its folder."""
        # A process that was killed could not leave its reason in the folder.
        with contextlib.suppress(PicojouleError), job.run.begun(job.recipe):
            job.run.write_failure(reason)
        self._change_state(job, "failed", reason)

    def _change_state(self, job: Job, state: State, reason: str = "") -> None:
        """Give a run a new state, and tell the watcher."""
        job.state, job.reason = state, reason
        self.watcher.change(job)
