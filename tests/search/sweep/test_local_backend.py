"""Sweeps on this machine: the same bits as single runs, whatever happens to the workers."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.io.signals import Interrupted
from picojoule.search.sweep import Job, local_backend, worker
from picojoule.search.sweep.jobs import Ended, Said
from quiet_watcher import Quiet
from tiny import traces


@pytest.fixture
def pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, networks named `tiny:paused` train slowly."""
    marks, pause = tmp_path / "marks", tmp_path / "pause"
    marks.mkdir()
    pause.touch()
    monkeypatch.setenv("TINY_MARKS", str(marks))
    monkeypatch.setenv("TINY_PAUSE", str(pause))
    return pause


def kill(job: Job) -> None:
    """What the system does to the worker of a run when memory runs out."""
    for process in multiprocessing.active_children():
        if process.name == job.recipe.name:
            process.kill()


def left_over() -> list[str]:
    return [process.name for process in multiprocessing.active_children() if "digits" in process.name]


def all_traces(runs: Sequence[pj.Run]) -> dict[str, Any]:
    return {run.path.name: traces(run) for run in runs}


# --- As it should be --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_gives_the_bits_of_single_runs_and_does_nothing_twice(tmp_path: Path) -> None:
    recipes = [tiny.recipe("seed=1"), tiny.recipe("training.threads=2"), tiny.recipe("penalty.kind=total")]
    watcher = Quiet()
    outcome = pj.sweep.run(iter([*recipes, recipes[0]]), tmp_path / "sweep", workers=2, watcher=watcher)
    assert outcome.failures == ()
    assert [run.path for run in outcome.runs] == [tmp_path / "sweep" / recipe.name for recipe in recipes]
    assert all_traces(outcome.runs) == all_traces([pj.fit(recipe, tmp_path / "single") for recipe in recipes])
    assert sorted(watcher.changes) == sorted((r.name, state) for r in recipes for state in ("running", "done"))
    assert watcher.ended == 1
    assert left_over() == []
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/*/*")}
    again = Quiet()
    added = tiny.recipe("seed=2")
    outcome = pj.sweep.run([added, *recipes], tmp_path / "sweep", watcher=again)
    assert len(outcome.runs) == 4
    assert [name for name, state in again.changes if state == "running"] == [added.name]
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/*/*")}
    assert {path: after[path] for path in before} == before


def test_a_run_that_starts_from_another_is_done_after_it(tmp_path: Path) -> None:
    first = tiny.recipe("seed=7")
    second = tiny.recipe("seed=8", f"training.start_from={first.name}")
    outcome = pj.sweep.run([second, first], tmp_path / "sweep", workers=2, watcher=Quiet())
    single = [pj.fit(recipe, tmp_path / "single") for recipe in (first, second)]
    assert all_traces(outcome.runs) == all_traces(single)


def test_more_workers_than_could_be_counted(tmp_path: Path) -> None:
    outcome = pj.sweep.run([tiny.recipe("training.epochs=1")], tmp_path, workers=10**30, watcher=Quiet())
    assert len(outcome.runs) == 1
    assert not outcome.failures


def test_nothing_to_do(tmp_path: Path) -> None:
    assert pj.sweep.run([], tmp_path, watcher=Quiet()) == pj.sweep.Outcome((), ())


def test_a_place_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(pj.PicojouleError, match="cannot be made"):
        pj.sweep.run([tiny.recipe()], tmp_path / "file", watcher=Quiet())


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"workers": 0}, "0 workers"),
        ({"on": "rya"}, "did you mean 'ray'"),
        ({"address": "auto"}, "the address auto is that of a Ray cluster"),
    ],
)
def test_mistakes(tmp_path: Path, settings: dict[str, Any], part: str) -> None:
    with pytest.raises(pj.PicojouleError, match=part):
        pj.sweep.run([tiny.recipe()], tmp_path, watcher=Quiet(), **settings)


def test_the_cores_are_divided_among_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= local_backend.cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(local_backend, "cores", lambda: 8)
    recipes = [tiny.recipe(), tiny.recipe("training.threads=3")]
    assert local_backend.default_workers(recipes[:1]) == 8
    assert local_backend.default_workers(recipes) == 2
    assert local_backend.default_workers([tiny.recipe("training.threads=16")]) == 1
    assert local_backend.default_workers([]) == 8
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert local_backend.default_workers(recipes[:1]) == 3


def test_each_worker_has_the_threads_of_the_recipe_and_a_gpu_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for visible, expected in ((None, {"0", "1"}), ("5,7", {"5", "7"})):
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        names = ("training.threads=1", "training.threads=3")
        recipes = [tiny.recipe("model.name=tiny:confesses", name) for name in names]
        outcome = pj.sweep.run(recipes, tmp_path, workers=2, watcher=Quiet())
        words = [failure.reason.partition("RuntimeError: ")[2].partition(")")[0] for failure in outcome.failures]
        assert [word.partition(",")[0] for word in words] == ["1 threads", "3 threads"]
        assert {word.rpartition(" ")[2] for word in words} <= expected


# --- What may happen to a worker --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_twelve_runs_with_workers_killed_at_random_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    recipes = [tiny.recipe(f"seed={seed}") for seed in range(12)]
    undisturbed = pj.sweep.run(recipes, tmp_path / "undisturbed", workers=2, watcher=Quiet())
    assert len(undisturbed.runs) == 12
    draw = random.Random(0)
    # A run is heard of when it begins and after each of its three epochs at least.
    moments = {recipe.name: draw.choice((None, 1, 1, 2, 2, 3)) for recipe in recipes}
    heard = dict.fromkeys(moments, 0)

    def strike(job: Job) -> None:
        heard[job.recipe.name] += 1
        if heard[job.recipe.name] == moments[job.recipe.name]:
            kill(job)

    watcher = Quiet(strike)
    outcome = pj.sweep.run(recipes, tmp_path / "disturbed", workers=2, watcher=watcher)
    assert outcome.failures == ()
    assert all_traces(outcome.runs) == all_traces(undisturbed.runs)
    assert len([name for name, state in watcher.changes if state == "waiting"]) >= 3  # killed and taken up again
    assert sum(job.attempts for job in watcher.jobs) > 12
    assert left_over() == []


@pytest.mark.slow
def test_what_cannot_be_finished_is_tried_twice_and_reported_and_the_rest_goes_on(tmp_path: Path, pause: Path) -> None:
    doomed = tiny.recipe("model.name=tiny:paused")
    faults = [tiny.recipe(f"model.name=tiny:{name}") for name in ("breaks_down", "vanishes", "exits")]
    good = tiny.recipe("seed=1")
    watcher = Quiet(lambda job: kill(job) if job.recipe == doomed else None)
    outcome = pj.sweep.run([doomed, *faults, good], tmp_path, workers=2, watcher=watcher)
    assert [run.path.name for run in outcome.runs] == [good.name]
    assert [failure.recipe for failure in outcome.failures] == [doomed, *faults]
    killed, diverged, vanished, exited = (failure.reason for failure in outcome.failures)
    assert "killed (signal 9)" in killed
    assert "memory runs out" in killed
    assert diverged.startswith("the loss became nan in epoch 2")
    assert "ended with status 7" in vanished
    assert exited.startswith("SystemExit: tiny:exits ended the process (SystemExit: enough) and returned no model")
    assert any("Traceback" in text for text in watcher.said)
    assert [job.run.failure for job in watcher.jobs] == [killed, diverged, vanished, exited, None]
    for recipe in (doomed, *faults):
        assert [state for name, state in watcher.changes if name == recipe.name] == [
            *("running", "waiting", "running", "failed")
        ]
    # Left alone, the killed run goes on from where it was.
    pause.unlink()
    outcome = pj.sweep.run([doomed], tmp_path, watcher=Quiet())
    assert all_traces(outcome.runs) == all_traces([pj.fit(doomed, tmp_path / "single")])


@pytest.mark.usefixtures("pause")
def test_a_worker_ended_by_another_signal(tmp_path: Path) -> None:
    def strike(job: Job) -> None:
        for process in multiprocessing.active_children():
            if process.name == job.recipe.name and process.pid is not None:
                os.kill(process.pid, signal.SIGSEGV)

    outcome = pj.sweep.run([tiny.recipe("model.name=tiny:paused")], tmp_path, watcher=Quiet(strike))
    assert [failure.reason for failure in outcome.failures] == [
        "its process was ended by signal 11 (Segmentation fault)"
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only there is a server")
@pytest.mark.parametrize("times", [1, 2])
def test_a_fork_server_that_is_killed_is_started_again_or_said(tmp_path: Path, times: int) -> None:
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]  # Python has no public name for it
    struck: list[str] = []
    first, second = tiny.recipe("seed=1"), tiny.recipe("seed=2")

    class Killing(Quiet):
        def change(self, job: Job) -> None:
            super().change(job)
            # The server has had no time to end when the next process is asked of it.
            if job.state == ("running" if job.recipe == first else "waiting") and len(struck) < times:
                struck.append(job.recipe.name)
                server.ensure_running()
                os.kill(server._forkserver_pid, signal.SIGSTOP)  # it answers nobody until it is dead
                os.kill(server._forkserver_pid, signal.SIGKILL)

    watcher = Killing()
    outcome = pj.sweep.run([first, second], tmp_path, workers=2, watcher=watcher)
    assert left_over() == []
    assert not [text for text in watcher.said if "Traceback" in text]
    assert outcome.runs[0].path.name == first.name
    reasons = [failure.reason for failure in outcome.failures]
    assert len(outcome.runs) + len(reasons) == 2
    for reason in reasons:
        assert re.fullmatch(r"its process could not be started, for the server .* was killed.*: take fewer .*", reason)


@pytest.mark.parametrize("fault", [EOFError("unexpected EOF"), BrokenPipeError(32, "Broken pipe"), OSError(12, "Full")])
def test_a_process_that_cannot_be_started_is_tried_again_and_then_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    recipes = [tiny.recipe("seed=1"), tiny.recipe("seed=2")]
    process = type(local_backend._context().Process())
    start = process.start
    seen: list[str] = []

    def fail(self: Any) -> None:
        seen.append(self.name)
        if self.name == recipes[0].name or len(seen) < 3:
            raise fault
        start(self)

    monkeypatch.setattr(process, "start", fail)
    watcher = Quiet()
    outcome = pj.sweep.run(recipes, tmp_path, workers=2, watcher=watcher)
    assert [run.path.name for run in outcome.runs] == [recipes[1].name]
    assert [job.attempts for job in watcher.jobs] == [2, 2]
    (failure,) = outcome.failures
    assert re.match(r"its process could not be started(, for the server| \(Full\): take fewer)", failure.reason)
    assert watcher.jobs[0].run.failure == failure.reason


def test_memory_that_runs_out_in_a_worker_is_said_in_one_sentence(tmp_path: Path) -> None:
    said: list[Any] = []
    end = worker.train(tiny.recipe("model.name=tiny:insatiable"), tmp_path, said.append, wait=False)
    assert isinstance(end, Ended)
    assert end.reason.startswith("memory ran out (1152921504606846976 bytes were wanted): take a smaller")
    assert not [event for event in said if isinstance(event, Said)]


def test_a_run_that_another_process_trains_is_waited_for_and_its_result_taken(tmp_path: Path) -> None:
    shared, other = tiny.recipe("seed=1"), tiny.recipe("seed=2")
    elsewhere = pj.fit(shared, tmp_path / "elsewhere")
    run = pj.Run(tmp_path / "sweep" / shared.name)
    held = run.begun(shared)
    held.__enter__()

    class Neighbour(Quiet):
        """Finishes the run when the sweep has nothing else to do."""

        def change(self, job: Job) -> None:
            super().change(job)
            if job.elsewhere and job.state == "running":
                for name in ("metrics.jsonl", "weights.safetensors", "result.json"):
                    shutil.copy(elsewhere.path / name, run.path / name)
                held.__exit__(None, None, None)

    watcher = Neighbour()
    outcome = pj.sweep.run([shared, other], tmp_path / "sweep", workers=1, watcher=watcher)
    assert outcome.failures == ()
    assert [run.path.name for run in outcome.runs] == [shared.name, other.name]
    assert all_traces(outcome.runs[:1]) == all_traces([elsewhere])
    assert [change for change in watcher.changes if change[1] != "waiting"] == [
        *((shared.name, "running"), (other.name, "running"), (other.name, "done")),
        *((shared.name, "running"), (shared.name, "done")),
    ]
    assert watcher.jobs[0].batches is None  # never trained here


# --- Told to stop -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stopped_sweep_goes_on_from_checkpoints(tmp_path: Path, pause: Path, number: signal.Signals) -> None:
    recipes = [tiny.recipe("model.name=tiny:paused", f"seed={seed}", "training.epochs=20") for seed in range(3)]
    before = signal.getsignal(number)
    signalled: list[Job] = []

    def stop(job: Job) -> None:
        if job.epoch == 1 and not signalled:
            signalled.append(job)
            os.kill(os.getpid(), number)

    watcher = Quiet(stop)
    with pytest.raises(Interrupted, match=r"stopped with 0 of 3 runs done; the same command goes on"):
        pj.sweep.run(recipes, tmp_path / "sweep", workers=2, watcher=watcher)
    assert watcher.ended == 1
    assert signal.getsignal(number) == before
    assert left_over() == []
    stopped = pj.Run(tmp_path / "sweep" / signalled[0].recipe.name)
    kept = stopped.last_checkpoint(pytest.fail)
    assert kept is not None
    assert not stopped.finished
    pause.unlink()
    again = Quiet()
    outcome = pj.sweep.run(recipes, tmp_path / "sweep", watcher=again)
    assert all_traces(outcome.runs[:1]) == all_traces([pj.fit(recipes[0], tmp_path / "single")])
    (resumed,) = (job for job in again.jobs if job.recipe == signalled[0].recipe)
    assert resumed.inherited == pytest.approx((kept.epoch + kept.batch / tiny.BATCHES) / 20)


def test_a_second_interrupt_is_obeyed_at_once(tmp_path: Path) -> None:
    def twice(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pj.sweep.run([tiny.recipe("training.epochs=2000")], tmp_path, watcher=Quiet(twice))
    assert left_over() == []


# --- The command ------------------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "from picojoule.cli import main; main()", "sweep"]
AXES = "\n[[axes]]\nseed = [0, 1]\n"


def command(file: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(tiny.__file__).parent), str(Path(pj.__file__).parents[1])])
    return subprocess.Popen(
        [*COMMAND, str(file), *arguments, "--into", str(file.parent / "runs"), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_the_command_is_stopped_or_killed_and_the_same_command_goes_on(
    tmp_path: Path, pause: Path, number: signal.Signals
) -> None:
    file, marks = tmp_path / "sweep.toml", tmp_path / "marks"
    file.write_text(tiny.RECIPE.replace("tiny:net", "tiny:paused").replace("epochs = 3", "epochs = 20") + AXES)
    process = command(file)
    while (
        not all(list(run.glob("checkpoint-*")) for run in (tmp_path / "runs").glob("*"))
        or len(list((tmp_path / "runs").glob("*"))) < 2
    ):
        assert process.poll() is None
        time.sleep(0.01)
    if number == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, number)  # the terminal tells everybody
    out, err = process.communicate(timeout=600)
    assert out == ""
    if number == signal.SIGINT:
        assert process.returncode == 1
        assert err.splitlines()[-1] == "picojoule: stopped with 0 of 2 runs done; the same command goes on"
        assert "Traceback" not in err
    workers = [int(path.name) for path in marks.iterdir()]
    assert len(workers) == 2
    while any(map(is_running, workers)):  # a worker that nobody listens to any more ends by itself
        time.sleep(0.01)
    batches = {int(path.stem.rpartition("-")[2]) for path in (tmp_path / "runs").glob("*/checkpoint-*")}
    assert batches  # kept
    pause.unlink()
    process = command(file, "--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert [entry["varied"] for entry in json.loads(out)["runs"]] == [{"seed": 0}, {"seed": 1}]
    recipe = pj.sweep.load(file)[0]
    assert traces(pj.Run(tmp_path / "runs" / recipe.name)) == traces(pj.fit(recipe, tmp_path / "single"))
