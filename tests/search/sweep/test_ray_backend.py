"""Sweeps on a Ray cluster, really started on this machine: the same bits as on local workers."""

from __future__ import annotations

import functools
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picojoule as pj
import tiny
from picojoule.io.signals import Interrupted
from picojoule.search.sweep import Job, ray_backend
from picojoule.search.sweep.ray_backend import RayBackend
from quiet_watcher import Quiet
from tiny import traces


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Ray's processes keep runs until they are sent home, and leave marks."""
    home = tmp_path_factory.mktemp("home")
    (home / "marks").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PICOJOULE_DATA", str(home))
        patch.setenv("TINY_MARKS", str(home / "marks"))
        patch.setenv("TINY_PAUSE", str(home / "pause"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # kills tasks where others have filled the memory
        yield home


def copies_on_the_machine(home: Path) -> set[Path]:
    """Runs that wait to be sent home, of whatever sweep."""
    return set((home / "sweep").glob("*"))


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Any]:
    """A cluster that is there before the sweep and is to stay after it."""
    ray = pytest.importorskip("ray")
    settings = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    for attempts_left in (2, 1, 0):
        try:
            ray.init("local", **settings)
            break
        except Exception:  # Ray waits for its own parts for half a minute, which a busy machine may exceed
            ray.shutdown()
            if not attempts_left:
                raise
    yield ray
    ray.shutdown()


@pytest.fixture
def pause(home: Path) -> Iterator[Path]:
    """While this file is there, networks named `tiny:paused` train slowly."""
    pause = home / "pause"
    pause.touch()
    yield pause
    pause.unlink(missing_ok=True)


def all_traces(runs: Sequence[pj.Run]) -> dict[str, Any]:
    return {run.path.name: traces(run) for run in runs}


@pytest.mark.slow
def test_a_sweep_on_a_cluster_of_its_own_gives_the_bits_of_local_workers(home: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    recipes = [tiny.recipe("seed=1"), tiny.recipe("training.threads=2")]
    before = signal.getsignal(signal.SIGTERM)
    watcher, kept = Quiet(), copies_on_the_machine(home)
    far = pj.sweep.run(recipes, tmp_path / "ray", on="ray", address="local", watcher=watcher)
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) == before
    assert far.failures == ()
    near = pj.sweep.run(recipes, tmp_path / "local", watcher=Quiet())
    assert all_traces(far.runs) == all_traces(near.runs)
    assert [run.path.name for run in far.runs] == [recipe.name for recipe in recipes]
    assert 1.0 in watcher.shares
    assert copies_on_the_machine(home) <= kept  # nothing is left where it was trained
    again = Quiet()
    assert pj.sweep.run(recipes, tmp_path / "ray", on="ray", watcher=again) == far  # starts no cluster
    assert {state for _, state in again.changes} == {"done"}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_what_fails_or_is_killed_is_tried_again_and_then_reported(home: Path, tmp_path: Path, pause: Path) -> None:
    doomed, lucky = (tiny.recipe("model.name=tiny:paused", "training.epochs=20", f"seed={seed}") for seed in (1, 2))
    diverging, exiting = (tiny.recipe(f"model.name=tiny:{name}") for name in ("breaks_down", "exits"))
    struck: list[str] = []

    def strike(job: Job) -> None:
        name = job.recipe.name
        if job.epoch % 20 == 0 or not (job.recipe == doomed or (job.recipe == lucky and name not in struck)):
            return
        struck.append(name)
        if name == lucky.name:
            pause.unlink()  # from here on it may be quick
        for mark in (home / "marks").iterdir():
            mark.unlink()
            os.kill(int(mark.name), signal.SIGKILL)

    recipes = [doomed, diverging, exiting, lucky]
    watcher = Quiet(strike)
    outcome = pj.sweep.run(recipes, tmp_path / "ray", on="ray", workers=1, watcher=watcher)
    assert [failure.recipe for failure in outcome.failures] == [doomed, diverging, exiting]
    killed, diverged, exited = (failure.reason for failure in outcome.failures)
    assert "died" in killed
    assert diverged.startswith("the loss became nan in epoch 2")
    assert exited.startswith("SystemExit: tiny:exits ended the process (SystemExit: enough) and returned no model")
    assert [job.run.failure for job in watcher.jobs] == [killed, diverged, exited, None]
    assert [job.attempts for job in watcher.jobs] == [2, 2, 2, 2]
    assert struck.count(lucky.name) == 1
    assert all_traces(outcome.runs) == all_traces([pj.fit(lucky, tmp_path / "single")])


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_stopped_sweep_goes_on_from_checkpoints(tmp_path: Path, pause: Path) -> None:
    recipe = tiny.recipe("model.name=tiny:paused", "seed=5", "training.epochs=20")
    signalled: list[int] = []

    def stop(job: Job) -> None:
        if job.epoch == 1 and not signalled:
            signalled.append(job.epoch)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"stopped with 0 of 1 runs done"):
        pj.sweep.run([recipe], tmp_path / "ray", on="ray", watcher=Quiet(stop))
    assert not (tmp_path / "ray" / recipe.name / "result.json").exists()
    pause.unlink()
    again = Quiet()
    outcome = pj.sweep.run([recipe], tmp_path / "ray", on="ray", watcher=again)
    assert again.jobs[0].inherited > 0
    assert all_traces(outcome.runs) == all_traces([pj.fit(recipe, tmp_path / "single")])


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_the_run_that_another_starts_from_goes_with_it(tmp_path: Path) -> None:
    first = tiny.recipe("seed=7")
    second = tiny.recipe("seed=8", f"training.start_from={first.name}")
    outcome = pj.sweep.run([second, first], tmp_path / "ray", on="ray", watcher=Quiet())
    single = [pj.fit(recipe, tmp_path / "single") for recipe in (first, second)]
    assert all_traces(outcome.runs) == all_traces(single)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_own_data_are_found_from_the_folder_of_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster was started elsewhere, so its processes stand in another folder."""
    labels = np.arange(120) % 10
    pixels = np.random.default_rng(0).integers(0, 200, (120, 1, 32, 32)) + 5 * labels[:, None, None, None]
    np.savez(tmp_path / "mine.npz", x_train=pixels.astype(np.uint8), y_train=labels)
    monkeypatch.chdir(tmp_path)
    recipe = tiny.recipe("data.name=mine.npz", "data.limit=50", "data.pad=0", "training.epochs=1")
    (far,) = pj.sweep.run([recipe], "ray", on="ray", watcher=Quiet()).runs
    assert traces(far) == traces(pj.fit(recipe, "single"))


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_folder_in_which_another_process_trains_is_left_to_it(tmp_path: Path) -> None:
    recipe = tiny.recipe("seed=11")
    run = pj.Run(tmp_path / recipe.name)
    held = run.begun(recipe)
    held.__enter__()
    calls: list[bool] = []
    place = RayBackend._place

    def release_later(self: RayBackend) -> Any:
        if self._unplaced:
            calls.append(run.finished)
        if len(calls) == 2:
            held.__exit__(None, None, None)
        return place(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayBackend, "_place", release_later)
        outcome = pj.sweep.run([recipe], tmp_path, on="ray", watcher=Quiet())
    assert calls == [False, False]
    assert all_traces(outcome.runs) == all_traces([pj.fit(recipe, tmp_path / "single")])


MODEL = """
from torch import nn

def net(classes, in_channels, neuron):
    model = nn.Sequential(nn.Flatten(), nn.Linear(1024 * in_channels, {width}), neuron(), nn.Linear({width}, classes))
    model.input_shape = (1, 32, 32)
    return model
"""


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_what_a_killed_driver_left_on_a_machine_is_not_taken_for_another_model(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    recipe = tiny.recipe("model.name=of_ones_own:net", "training.epochs=1")
    code = tmp_path / "of_ones_own.py"

    def widths(into: str) -> set[int]:
        outcome = pj.sweep.run([recipe], tmp_path / into, on="ray", watcher=Quiet())
        assert outcome.failures == ()
        return {tensor.shape[0] for name, tensor in outcome.runs[0].weights.items() if name == "1.weight"}

    class Killed(BaseException):
        """The end of the driver, when a run is finished on its machine and has not come home yet."""

    def die(self: RayBackend) -> Any:
        if self._unplaced:
            raise Killed
        return []

    code.write_text(MODEL.format(width=7))
    with monkeypatch.context() as patch:
        patch.setattr(RayBackend, "_place", die)
        with pytest.raises(Killed):
            widths("first")
    left = copies_on_the_machine(home)
    assert len(left) >= 1
    code.write_text(MODEL.format(width=11))
    assert widths("second") == {11}  # a new folder
    assert widths("first") == {11}  # the one that the driver was killed in
    assert copies_on_the_machine(home) < left
    assert not list(tmp_path.glob("*/*/.ticket"))


def test_a_run_folder_keeps_the_name_of_its_copies_until_it_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    first = ray_backend._copy_name(folder)
    assert ray_backend._copy_name(folder) == first != ray_backend._copy_name(tmp_path / "runs" / "b")
    (folder / ".ticket").write_text("../../elsewhere")
    second = ray_backend._copy_name(folder)
    assert second.isalnum()
    assert second not in ("", first)
    (folder / ".ticket").unlink()
    assert ray_backend._copy_name(folder) not in (first, second)


@pytest.mark.slow
def test_a_cluster_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        ray.shutdown()
    # Ray would find any other cluster of this machine, such as that of the tests that run beside this one.
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", functools.cache(set))  # Ray clears its cache
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda _: None)
    with pytest.raises(pj.PicojouleError, match=r"no Ray cluster was found at auto .*--address"):
        pj.sweep.run([tiny.recipe()], tmp_path, on="ray", address="auto", watcher=Quiet())
    assert not ray.is_initialized()


@pytest.mark.parametrize("failures", [2, 3])
def test_a_machine_too_busy_for_ray_to_start_is_tried_again(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    ray = pytest.importorskip("ray")
    calls: list[str] = []

    def init(*_: object, **__: object) -> None:
        calls.append("init")
        if calls.count("init") <= failures:
            raise Exception("The current node\ntimed out")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("shutdown"))
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr("ray.util.queue.Queue", lambda **_: None)
    if failures == 2:
        RayBackend(1, "local")
        assert calls == ["init", "shutdown", "init", "shutdown", "init"]
    else:
        with pytest.raises(pj.PicojouleError, match=r"Ray did not start \(The current node timed out\)"):
            RayBackend(1, "local")


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}", "nowhere.invalid:{}"])
@pytest.mark.parametrize("by_environment", [False, True])
def test_an_address_at_which_nobody_listens_is_told_without_waiting_for_ray(
    monkeypatch: pytest.MonkeyPatch, form: str, by_environment: bool
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("it would look for minutes"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        address = form.format(closed.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address if by_environment else "")
        with pytest.raises(pj.PicojouleError, match=rf"no Ray cluster was found at {re.escape(address)} .*--address"):
            RayBackend(1, None if by_environment else address)


def test_ray_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        pj.PicojouleError, match=r"needs the package ray: install it with `pip install 'picojoule\[ray\]'`"
    ):
        pj.sweep.run([tiny.recipe()], tmp_path, on="ray", watcher=Quiet())
