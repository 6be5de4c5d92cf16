"""Running a sweep: every run that is missing, on this machine or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, get_args

from picojoule.data import Data
from picojoule.errors import PicojouleError, as_path, unknown
from picojoule.io.files import make_folder
from picojoule.io.signals import stop_signals
from picojoule.recipe import Recipe
from picojoule.recipe.sections import DataSection
from picojoule.runs.folder import Run
from picojoule.search.sweep.board import Board
from picojoule.search.sweep.jobs import Backend, Job, Watcher
from picojoule.search.sweep.local_backend import LocalBackend, default_workers
from picojoule.search.sweep.outcome import Failure, Outcome
from picojoule.search.sweep.ray_backend import RayBackend
from picojoule.search.sweep.scheduler import Scheduler

Where = Literal["local", "ray"]
"""Where the runs of a sweep are trained."""


def run(
    recipes: Iterable[Recipe],
    into: str | os.PathLike[str] = "runs",
    *,
    workers: int | None = None,
    on: Where = "local",
    address: str | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Train many recipes, several at once, each into its folder `into/<recipe.name>`; finished runs are kept.

    Each run computes with `training.threads` threads, so its bits are the same wherever it is trained. A run that fails
    is tried once more, from its last checkpoint, and then reported with its reason; the others go on. Worker processes
    import the script that started them: call this under ``if __name__ == "__main__":``.

    Args:
        recipes: What is trained; a recipe that comes twice is trained once.
        into: The folder of runs.
        workers: Runs at once; unless given, the cores divided by the recipes' `training.threads`.
        on: "local" for processes of this machine, "ray" for a Ray cluster.
        address: Of the Ray cluster; unless given, the one that Ray finds, or one that is started here.
        watcher: Told how it goes; a table on standard error unless given.

    Returns:
        The finished runs and the failed ones.

    Raises:
        Interrupted: If the process was told to stop (SIGINT, SIGTERM), after each run has written a checkpoint.
        PicojouleError: If the arguments are not valid, or there is no such cluster.

    >>> outcome = run([finished_run.recipe], finished_run.path.parent)  # returns at once: nothing is missing
    >>> [done.path == finished_run.path for done in outcome.runs], outcome.failures
    ([True], ())
    """
    if on not in get_args(Where):
        raise unknown("place to run on", on, get_args(Where))
    if workers is not None and (type(workers) is not int or workers < 1):
        raise PicojouleError(f"{workers} workers cannot do anything: take 1 or more")
    if address is not None and on != "ray":
        raise PicojouleError(f"the address {address} is that of a Ray cluster: run it on ray, or leave it out")
    recipes = _completed(_distinct(recipes))
    folder = as_path("the folder of runs", into)
    make_folder(folder)  # otherwise every run would report that it cannot be made
    jobs = [Job(recipe, Run.of(recipe, folder)) for recipe in recipes]
    watcher = watcher if watcher is not None else Board()
    to_do = [job.recipe for job in jobs if not job.run.finished]
    backend: Backend = (
        RayBackend(workers, address) if on == "ray" and to_do else LocalBackend(workers or default_workers(to_do))
    )
    try:
        with stop_signals() as stop:
            watcher.begin(jobs)
            try:
                Scheduler(jobs, backend, watcher).go(stop)
            finally:
                watcher.end()
    finally:
        backend.close()
    return Outcome(
        runs=tuple(job.run for job in jobs if job.state == "done"),
        failures=tuple(Failure(job.recipe, job.reason) for job in jobs if job.state == "failed"),
    )


def _distinct(recipes: object) -> tuple[Recipe, ...]:
    """Check that these are recipes, and take each once."""
    each = tuple(recipes) if isinstance(recipes, Iterable) and not isinstance(recipes, Recipe) else None
    if each is None or not all(isinstance(recipe, Recipe) for recipe in each):
        raise PicojouleError(f"a sweep needs a list of recipes, not {type(recipes).__name__}: sweep.load reads one")
    return tuple(dict.fromkeys(each))


def _completed(recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
    """Complete the recipes with what loading tells of the user's own data, which are loaded once for all recipes."""
    loaded: dict[DataSection, Data] = {}
    complete = []
    for recipe in recipes:
        if recipe.data.own:
            whole = recipe.data.model_copy(update=dict.fromkeys(("limit", "limit_validation", "limit_test")))
            loaded[whole] = loaded.get(whole) or whole.load(trust=True)
            recipe = recipe.completed(loaded[whole])
        complete.append(recipe)
    return tuple(complete)
