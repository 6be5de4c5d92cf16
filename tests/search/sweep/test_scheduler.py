"""Who runs when, with a backend that does nothing but what the test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import picojoule as pj
import tiny
from picojoule.io.signals import Interrupted, Stop
from picojoule.search.sweep.jobs import Begun, Ended, Event, Job, Locked, Reached, Said
from picojoule.search.sweep.scheduler import Scheduler

Script = Callable[[Job], list[Event]]


@dataclass
class Backend:
    """Answers each start at once with what the script says; `Ended()` leaves a result behind."""

    script: Script
    finish: Callable[[Job], None]
    places: int = 2
    started: list[tuple[str, bool]] = field(default_factory=list)
    most: int = 0
    stopped: bool = False
    _heard: list[tuple[Job, list[Event]]] = field(default_factory=list)

    def start(self, job: Job, wait: bool) -> None:
        self.started.append((job.recipe.name, wait))
        self._heard.append((job, self.script(job)))
        self.most = max(self.most, len(self._heard))

    def listen(self, seconds: float) -> Sequence[tuple[Job, Event]]:
        if not self._heard:
            return []
        job, events = self._heard.pop(0)
        if events[-1] == Ended():
            self.finish(job)
        return [(job, event) for event in events]

    def stop(self) -> None:
        self.stopped = True
        self._heard = [(job, [Ended("stopped in epoch 1")]) for job, _ in self._heard]

    def close(self) -> None: ...


class Notes:
    def __init__(self) -> None:
        self.changes: list[tuple[int, str, str]] = []
        self.said: list[str] = []
        self.shares: list[float] = []

    def begin(self, jobs: Sequence[Job]) -> None: ...
    def end(self) -> None: ...

    def change(self, job: Job) -> None:
        self.changes.append((job.recipe.seed, job.state, job.reason))

    def progress(self, job: Job) -> None:
        self.shares.append(job.share)

    def say(self, job: Job, text: str) -> None:
        self.said.append(text)


RECIPES = [tiny.recipe(f"seed={seed}") for seed in range(4)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe("training.epochs=1", "data.limit=40"), tmp_path_factory.mktemp("finished"))


@pytest.fixture
def finish(finished: pj.Run) -> Callable[[Job], None]:
    def finish(job: Job) -> None:
        job.run.path.mkdir(exist_ok=True)
        (job.run.path / "recipe.toml").write_text(job.recipe.to_toml())
        (job.run.path / "result.json").write_bytes((finished.path / "result.json").read_bytes())

    return finish


def jobs_in(folder: Path, recipes: Sequence[pj.Recipe] = RECIPES) -> list[Job]:
    return [Job(recipe, pj.Run(folder / recipe.name)) for recipe in recipes]


def go(jobs: list[Job], backend: Backend, stop: Stop | None = None) -> Notes:
    notes = Notes()
    Scheduler(jobs, backend, notes).go(stop or Stop(lambda: None))
    return notes


def test_every_run_once_in_order_and_no_more_at_once_than_there_are_places(
    tmp_path: Path, finish: Callable[[Job], None]
) -> None:
    jobs = jobs_in(tmp_path)
    backend = Backend(lambda job: [Ended()], finish)
    notes = go(jobs, backend)
    assert backend.started == [(recipe.name, False) for recipe in RECIPES]
    assert backend.most == 2
    assert [job.state for job in jobs] == ["done"] * 4
    assert notes.changes[:3] == [(0, "running", ""), (1, "running", ""), (0, "done", "")]


def test_what_is_finished_is_not_done_again(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path)
    for job in jobs[1:3]:
        finish(job)
    backend = Backend(lambda job: [Ended()], finish)
    go(jobs, backend)
    assert backend.started == [(RECIPES[0].name, False), (RECIPES[3].name, False)]
    assert [job.inherited for job in jobs] == [1, 1, 1, 1]


def test_progress_is_that_of_the_training(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path)[:1]
    backend = Backend(
        lambda job: [Begun(5, 1, 0), Said("hm"), Reached(1, 1), Reached(2, 0), Reached(3, 0), Ended()], finish
    )
    notes = go(jobs, backend)
    assert notes.shares == pytest.approx([1 / 3, 1.2 / 3, 2 / 3, 1])
    assert notes.said == ["hm"]
    assert jobs[0].inherited == pytest.approx(1 / 3)


def test_a_run_that_fails_is_tried_once_more(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path)
    backend = Backend(lambda job: [Ended("bad luck")] if job.attempts == 1 or job is jobs[2] else [Ended()], finish)
    notes = go(jobs, backend)
    assert sorted(backend.started) == sorted((recipe.name, False) for recipe in RECIPES for _ in range(2))
    assert [job.state for job in jobs] == ["done", "done", "failed", "done"]
    assert jobs[2].reason == "bad luck"
    assert notes.changes.count((2, "waiting", "bad luck")) == 1
    assert notes.changes.count((2, "failed", "bad luck")) == 1


def test_a_run_whose_worker_died_in_its_last_moment_is_done(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path)

    def script(job: Job) -> list[Event]:
        finish(job)
        return [Begun(5, 0, 0), Ended("killed")]

    backend = Backend(script, finish)
    go(jobs, backend)
    assert len(backend.started) == 4
    assert {job.state for job in jobs} == {"done"}


def test_what_another_process_trains_is_left_for_last_and_then_waited_for(
    tmp_path: Path, finish: Callable[[Job], None]
) -> None:
    jobs = jobs_in(tmp_path)
    backend = Backend(lambda job: [Ended()] if job is not jobs[0] or job.elsewhere else [Locked()], finish, places=1)
    go(jobs, backend)
    assert backend.started == [*((recipe.name, False) for recipe in RECIPES), (RECIPES[0].name, True)]
    assert {job.state for job in jobs} == {"done"}


def test_what_another_process_has_finished_meanwhile_is_taken(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path)

    def script(job: Job) -> list[Event]:
        if job is jobs[3]:
            finish(jobs[0])
        return [Locked()] if job is jobs[0] else [Ended()]

    backend = Backend(script, finish, places=1)
    go(jobs, backend)
    assert backend.started == [(recipe.name, False) for recipe in RECIPES]
    assert {job.state for job in jobs} == {"done"}


def test_a_folder_of_another_recipe_fails_at_once_and_alone(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path)
    finish(jobs[1])
    (jobs[1].run.path / "recipe.toml").write_text(RECIPES[0].to_toml())
    backend = Backend(lambda job: [Ended()], finish)
    go(jobs, backend)
    assert [job.state for job in jobs] == ["done", "failed", "done", "done"]
    assert "belongs to another recipe" in jobs[1].reason
    assert not (jobs[1].run.path / "failure.txt").exists()
    assert len(backend.started) == 3


@pytest.mark.parametrize("content", ["", "{}", "[1, 2]"])
def test_a_damaged_result_fails_at_once_and_alone(tmp_path: Path, finish: Callable[[Job], None], content: str) -> None:
    jobs = jobs_in(tmp_path)
    finish(jobs[1])
    (jobs[1].run.path / "result.json").write_text(content)
    go(jobs, Backend(lambda job: [Ended()], finish))
    assert [job.state for job in jobs] == ["done", "failed", "done", "done"]
    assert "result.json" in jobs[1].reason


THIRD = tiny.recipe("seed=3")
SECOND = tiny.recipe("seed=2", "penalty.kind=target", "penalty.target=0.5", f"penalty.reference={THIRD.name}")
FIRST = tiny.recipe("seed=1", f"training.start_from={SECOND.name}")
CHAIN = [FIRST, SECOND, THIRD, RECIPES[0]]
"""Backwards: the first starts from the second, whose penalty refers to the third."""


def test_a_run_comes_after_those_it_builds_on(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path, CHAIN)
    backend = Backend(lambda job: [Ended()], finish)
    go(jobs, backend)
    assert [name for name, _ in backend.started] == [CHAIN[number].name for number in (2, 3, 1, 0)]
    assert {job.state for job in jobs} == {"done"}


def test_a_run_fails_with_the_one_it_builds_on(tmp_path: Path, finish: Callable[[Job], None]) -> None:
    jobs = jobs_in(tmp_path, CHAIN)
    backend = Backend(lambda job: [Ended("bad luck")] if job is jobs[2] else [Ended()], finish)
    go(jobs, backend)
    assert [job.state for job in jobs] == ["failed", "failed", "failed", "done"]
    assert [job.reason for job in jobs[:3]] == [
        f"the run that it builds on, {SECOND.name}, failed",
        f"the run that it builds on, {THIRD.name}, failed",
        "bad luck",
    ]
    assert [job.run.failure for job in jobs] == [*(job.reason for job in jobs[:3]), None]
    assert len(backend.started) == 3


def test_a_sweep_that_is_stopped_starts_nothing_more_and_waits_for_what_runs(
    tmp_path: Path, finish: Callable[[Job], None]
) -> None:
    jobs = jobs_in(tmp_path)
    stop = Stop(lambda: None)

    def script(job: Job) -> list[Event]:
        stop.requested = job is jobs[2]
        return [Ended()]

    backend = Backend(script, finish)
    with pytest.raises(Interrupted, match="stopped with 2 of 4 runs done; the same command goes on"):
        go(jobs, backend, stop)
    assert backend.stopped
    assert [job.state for job in jobs] == ["done", "done", "waiting", "waiting"]
    assert len(backend.started) == 3
