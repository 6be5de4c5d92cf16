"""What a user sees of a sweep."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import picojoule as pj
import tiny
from picojoule.search.sweep import Board, Job


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe(), tmp_path_factory.mktemp("finished"))


@pytest.fixture
def jobs(finished: pj.Run) -> list[Job]:
    """Of each kind one; runs of 3 epochs with 5 batches."""
    first, *others = (tiny.recipe(f"seed={seed}") for seed in range(5))
    done, running, starting, waiting, failed = jobs = [
        Job(first, finished),
        *(Job(recipe, pj.Run(finished.path.parent / recipe.name)) for recipe in others),
    ]
    done.state, done.batches, done.attempts = "done", 5, 1
    running.state, running.batches, running.epoch, running.batch, running.attempts = "running", 5, 1, 2, 1
    starting.state, starting.attempts = "running", 1
    waiting.state = "waiting"
    failed.state, failed.reason, failed.attempts = "failed", "the [red]disk is full", 2
    return jobs


def board_at(seconds: float, jobs: list[Job]) -> Board:
    times = iter((100.0,))
    board = Board(lambda: next(times, 100.0 + seconds))
    board.begin(jobs)
    return board


def test_the_time_left_is_by_what_this_sweep_has_done(jobs: list[Job]) -> None:
    # 1 + 7/15 runs took 22 seconds; 8/15 + 1 + 1 are left.
    assert board_at(22, jobs).seconds_left() == pytest.approx(22 * (38 / 15) / (22 / 15))
    # What was there before was not done in that time.
    jobs[0].inherited, jobs[1].inherited = 1.0, 1 / 3
    assert board_at(22, jobs).seconds_left() == pytest.approx(22 * (38 / 15) / (2 / 15))
    jobs[1].inherited = jobs[1].share
    assert board_at(22, jobs).seconds_left() is None


def test_a_larger_run_takes_longer(jobs: list[Job]) -> None:
    small = board_at(22, jobs).seconds_left()
    jobs[3].recipe = tiny.recipe("training.epochs=6", "data.limit=400")
    large = board_at(22, jobs).seconds_left()
    assert small is not None
    assert large == pytest.approx(small + 3 * 22 * 15 / 22)


def test_lines_where_nobody_watches(jobs: list[Job], capsys: pytest.CaptureFixture[str], finished: pj.Run) -> None:
    board = board_at(22, jobs)
    done, running, starting, waiting, failed = jobs
    done.inherited = 1.0
    board.change(done)  # of an earlier sweep: only counted
    board.change(starting)
    board.say(running, "the layer spike1 has fallen silent")
    board.progress(running)
    running.attempts = 2
    board.change(running)
    waiting.reason = "killed"
    board.change(waiting)
    waiting.reason = ""
    board.change(waiting)
    board.change(failed)
    board.change(done)
    board.end()
    captured = capsys.readouterr()
    assert captured.out == ""
    names = [job.recipe.name for job in jobs]
    accuracy = finished.result.test.accuracy
    lines = captured.err.splitlines()
    assert lines[0] == "5 runs: 1 done, 1 running, 2 waiting, 1 failed; about 0:01:59 left"
    assert lines[1:-1] == [
        f"{names[2]} started",
        f"{names[1]}: the layer spike1 has fallen silent",
        f"{names[1]} is tried again",
        f"{names[3]}: killed",
        f"{names[3]} is being trained by another process, whose result will do",
        f"{names[4]} failed: the [red]disk is full",
    ]
    assert lines[-1].startswith(f"{names[0]} done: accuracy {accuracy:.1%}, ")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Job], int], str]:
    def shown(jobs: list[Job], lines: int) -> str:
        terminal = Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", terminal)
            patched.setenv("TERM", "xterm")
            patched.setenv("COLUMNS", "120")
            patched.setenv("LINES", str(lines))
            board = board_at(22, jobs)
            for job in jobs:
                board.change(job)
            board.say(jobs[0], "[brackets] stay")
            board.end()
        return terminal.getvalue()

    return shown


def test_a_table_where_somebody_watches(jobs: list[Job], shown: Callable[[list[Job], int], str]) -> None:
    table = shown(jobs, 40)
    assert "5 runs: 1 done, 1 running, 2 waiting, 1 failed; about 0:00:38 left" in table
    for job in jobs:
        assert job.recipe.name in table
    for words in ("[brackets] stay", "the [red]disk is full", "2/3", "47%", "starting", "accuracy, energy"):
        assert words in table, words


def test_a_low_terminal_shows_what_runs_and_failed_and_counts_the_rest(
    jobs: list[Job], shown: Callable[[list[Job], int], str]
) -> None:
    more = [Job(tiny.recipe(f"seed={seed}"), pj.Run(Path(tiny.recipe(f"seed={seed}").name))) for seed in range(5, 50)]
    table = shown([*more, *jobs], 12)
    for job in (jobs[1], jobs[2], jobs[4]):
        assert job.recipe.name in table
    assert more[1].recipe.name not in table
    assert "and 46 waiting" in table
