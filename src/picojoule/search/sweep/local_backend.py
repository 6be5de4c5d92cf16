"""The backend of one machine: each run in a process of its own, which may die without harm to the others."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from picojoule.io.machine import cores
from picojoule.recipe import Recipe
from picojoule.search.sweep.jobs import Ended, Event, Job, Locked
from picojoule.search.sweep.worker import train

_UNKNOWN = 255
"""The status that Python gives to a worker whose server was gone when it ended."""
_ENDING = 10.0
"""Seconds that a process may take to end after its last event."""


def default_workers(recipes: Sequence[Recipe]) -> int:
    """Return how many runs are trained at once unless the user says so.

    Args:
        recipes: The runs that are to be trained.

    Returns:
        The cores divided by the largest `training.threads`, at least 1; with GPUs, at most one per GPU.
    """
    workers = max(1, cores() // max((recipe.training.threads for recipe in recipes), default=1))
    return min(workers, torch.cuda.device_count() or workers)


def _context() -> SpawnContext | ForkServerContext:
    """Choose how processes start: on Linux forked from a server that has imported everything once, which is fast."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "lightning_fabric", "sklearn.datasets"])
    return context


@dataclass
class _Worker:
    """A process that trains one run, and the pipe through which it reports."""

    job: Job
    place: int
    process: BaseProcess
    pipe: Connection
    last: Ended | Locked | None = None


class LocalBackend:
    """Worker processes of this machine.

    Args:
        places: How many at once.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._workers: list[_Worker] = []
        self._left: list[BaseProcess] = []
        self._unstarted: list[tuple[Job, Event]] = []
        self._context = _context()

    def start(self, job: Job, wait: bool) -> None:
        """Start a process for a run (see `Backend`)."""
        taken = {worker.place for worker in self._workers}
        place = next(place for place in itertools.count() if place not in taken)
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work,
            args=(job.recipe, job.run.path.parent.absolute(), theirs, wait, _environment(place)),
            name=job.run.path.name,
            daemon=True,
        )
        try:
            process.start()
        except (EOFError, OSError) as fault:  # the server was killed, or the system has no room; the next may start
            ours.close()
            self._unstarted.append((job, Ended(_start_failure(fault))))
        else:
            self._workers.append(_Worker(job, place, process, ours))
        finally:
            theirs.close()  # so that the end of the process is the end of the pipe

    def listen(self, seconds: float) -> list[tuple[Job, Event]]:
        """Wait for events (see `Backend`)."""
        ready = wait([worker.pipe for worker in self._workers], seconds)
        heard = [(worker.job, self._hear(worker)) for worker in self._workers if worker.pipe in ready]
        self._workers = [worker for worker in self._workers if not worker.pipe.closed]
        self._left = [process for process in self._left if process.is_alive()]
        unstarted, self._unstarted = self._unstarted, []
        return [*unstarted, *((job, event) for job, event in heard if event is not None)]

    def _hear(self, worker: _Worker) -> Event | None:
        """Receive one event of a worker; its last one is kept back until the process has ended."""
        try:
            event: Event = worker.pipe.recv()
        except (EOFError, OSError):  # it has ended, perhaps in the middle of an event
            worker.pipe.close()
            self._left.append(worker.process)
            return worker.last or Ended(_exit_reason(worker.process))
        if isinstance(event, Ended | Locked):
            worker.last = event  # reported when the pipe closes: from then on its place is free
            return None
        return event

    def stop(self) -> None:
        """Send every process the signal on which it writes a checkpoint (see `Backend`)."""
        for worker in self._workers:
            worker.process.terminate()

    def close(self) -> None:
        """Kill every process that has not ended (see `Backend`)."""
        for worker in self._workers:
            worker.process.kill()
            worker.pipe.close()
        for process in [*self._left, *(worker.process for worker in self._workers)]:
            process.join(_ENDING)


def _start_failure(fault: EOFError | OSError) -> str:
    """Say why a process could not be started."""
    if isinstance(fault, EOFError | ConnectionError):
        return (
            "its process could not be started, for the server that starts them was killed, as the system does when "
            "memory runs out: take fewer --workers, and run the same command again"
        )
    return (
        f"its process could not be started ({fault.strerror or fault}): take fewer --workers, and run the same command "
        "again"
    )


def _exit_reason(process: BaseProcess) -> str:
    """Say why a process ended that did not say so itself."""
    process.join(_ENDING)
    status = process.exitcode
    if status == -9:
        return (
            "its process was killed (signal 9), as the system does when memory runs out: take fewer --workers, or a "
            "smaller training.batch_size"
        )
    if status is not None and status < 0:
        return f"its process was ended by signal {-status} ({signal.strsignal(-status)})"
    if status == _UNKNOWN:
        return "its process ended, and so did the server that would know why: run the same command again"
    return (
        f"its process ended with status {status} and without a word: a script that calls `sweep.run` has to do so "
        'under `if __name__ == "__main__":`'
    )


def _environment(place: int) -> dict[str, str]:
    """Return the environment of a worker: this process's, because the server may be older, and one of the GPUs."""
    environment = dict(os.environ)
    count = torch.cuda.device_count()
    if count:
        visible = environment.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[place % count]
    return environment


# --- In the worker's process ------------------------------------------------------------------------------------------


def _work(recipe: Recipe, into: Path, pipe: Connection, wait: bool, environment: dict[str, str]) -> None:
    """Train a run in the worker's process."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C goes to the sweep alone, which tells its workers
    os.dup2(2, 1)  # standard output belongs to the sweep
    os.environ.clear()
    os.environ.update(environment)
    _tell(pipe, train(recipe, into, lambda event: _tell(pipe, event), wait))
    pipe.close()


def _tell(pipe: Connection, event: Event) -> None:
    """Send an event to the sweep; where it is gone, stop as if it had asked for it."""
    try:
        pipe.send(event)
    except OSError:  # the sweep is gone: write a checkpoint and go too
        os.kill(os.getpid(), signal.SIGTERM)
