"""Running a sweep: every run that is missing, on this machine or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, get_args

from picojoule.errors import PicojouleError, as_path, unknown
from picojoule.io.files import make_folder
from picojoule.io.signals import stop_signals
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.search.sweep.board import Board
from picojoule.search.sweep.jobs import Crew, Job, Watcher
from picojoule.search.sweep.local_backend import Local, default_workers
from picojoule.search.sweep.outcome import Failure, Outcome
from picojoule.search.sweep.ray_backend import Cluster
from picojoule.search.sweep.schedule import Schedule

Where = Literal["local", "ray"]


def run(
    recipes: Iterable[Recipe],
    into: str | os.PathLike[str] = "runs",
    *,
    workers: int | None = None,
    on: Where = "local",
    address: str | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Train every recipe into its folder `into/<recipe.name>`; what is finished there already is not done again.

    `on="local"` takes processes of this machine, `workers` at once (unless given: the cores divided by the recipes'
    `training.threads`); `on="ray"` takes the Ray cluster at `address`, or the one that Ray finds, or starts one here.
    Each run computes with `training.threads` threads, so its bits are the same wherever it is done. A run that fails
    is tried once more, from its last checkpoint, and then reported with its reason; the others go on. SIGINT and
    SIGTERM stop the sweep (`Interrupted`) after each run has written a checkpoint. How it goes is told to the
    `watcher`, by default a table on standard error.

    Worker processes import the script that started them: call this under ``if __name__ == "__main__":``.
    """
    if on not in get_args(Where):
        raise unknown("place to run on", on, get_args(Where))
    if workers is not None and (type(workers) is not int or workers < 1):
        raise PicojouleError(f"{workers} workers cannot do anything: take 1 or more")
    if address is not None and on != "ray":
        raise PicojouleError(f"the address {address} is that of a Ray cluster: run it on ray, or leave it out")
    recipes = _distinct(recipes)
    folder = as_path("the folder of runs", into)
    make_folder(folder)  # or every run would say that it cannot be
    jobs = [Job(recipe, Run.of(recipe, folder)) for recipe in recipes]
    watcher = watcher if watcher is not None else Board()
    to_do = [job.recipe for job in jobs if not job.run.finished]
    crew: Crew = Cluster(workers, address) if on == "ray" and to_do else Local(workers or default_workers(to_do))
    try:
        with stop_signals() as stop:
            watcher.begin(jobs)
            try:
                Schedule(jobs, crew, watcher).go(stop)
            finally:
                watcher.end()
    finally:
        crew.close()
    return Outcome(
        runs=tuple(job.run for job in jobs if job.state == "done"),
        failures=tuple(Failure(job.recipe, job.reason) for job in jobs if job.state == "failed"),
    )


def _distinct(recipes: object) -> tuple[Recipe, ...]:
    each = tuple(recipes) if isinstance(recipes, Iterable) and not isinstance(recipes, Recipe) else None
    if each is None or not all(isinstance(recipe, Recipe) for recipe in each):
        raise PicojouleError(f"a sweep needs a list of recipes, not {type(recipes).__name__}: sweep.load reads one")
    return tuple(dict.fromkeys(each))
