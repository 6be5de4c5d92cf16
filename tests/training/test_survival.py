"""Runs that are stopped, killed, starved of disk or handed damaged files end as if undisturbed, or say why not."""

from __future__ import annotations

import dataclasses
import errno
import math
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.cli import main
from picojoule.training import fit, loop, setup
from tiny import BATCHES, Watcher, signal_to_self, traces

RECIPE = tiny.recipe("data.augment=true")
"""With every source of randomness: initial weights, order, dropout, augmentation."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return traces(pj.fit(RECIPE, tmp_path_factory.mktemp("undisturbed")))


def folder(into: Path) -> Path:
    return into / RECIPE.name


def stop_after(batch: int, into: Path, number: signal.Signals = signal.SIGTERM) -> str:
    with pytest.raises(fit.Interrupted) as stop:
        pj.fit(RECIPE, into, reporters=[Watcher(after_batch={batch: signal_to_self(number)})])
    return str(stop.value)


# --- Told to stop ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "number"),
    [
        (BATCHES + 2, signal.SIGINT),
        *(
            pytest.param(batch, number, marks=pytest.mark.slow)
            for batch, number in (
                *((1, signal.SIGTERM), (BATCHES - 1, signal.SIGINT), (BATCHES, signal.SIGTERM)),
                *((3 * BATCHES - 1, signal.SIGTERM), (3 * BATCHES, signal.SIGINT)),
            )
        ),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_end(
    undisturbed: dict[str, Any], tmp_path: Path, number: signal.Signals, batch: int
) -> None:
    before = signal.getsignal(number)
    words = stop_after(batch, tmp_path, number)
    assert words.startswith("stopped ")
    assert words.endswith("; the same command goes on from there")
    assert signal.getsignal(number) == before
    assert not (folder(tmp_path) / "result.json").exists()
    watcher = Watcher()
    assert traces(pj.fit(RECIPE, tmp_path, reporters=[watcher])) == undisturbed
    assert watcher.batches in (3 * BATCHES - batch, 3 * BATCHES - batch - 1)  # the signal is read once a batch


def test_a_run_stopped_again_and_again_ends_all_the_same(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    for _ in range(3):
        stop_after(2, tmp_path)
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


def test_a_second_interrupt_from_the_keyboard_is_obeyed_at_once(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    def twice() -> None:
        signal_to_self(signal.SIGINT)()
        signal_to_self(signal.SIGINT)()

    with pytest.raises(KeyboardInterrupt):
        pj.fit(RECIPE, tmp_path, reporters=[Watcher(after_batch={BATCHES + 2: twice})])
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


COMMAND = [sys.executable, "-c", "from picojoule.cli import main; main()", "train"]


@pytest.mark.slow
def test_the_command_is_stopped_and_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("TINY_MARKS", str(tmp_path / "marks"))
    monkeypatch.setenv("TINY_PAUSE", str(tmp_path / "pause"))
    recipe = RECIPE.override("model.name=tiny:paused")
    undisturbed = traces(pj.fit(recipe, tmp_path / "undisturbed"))
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    (tmp_path / "pause").touch()
    command = [*COMMAND, str(tmp_path / "recipe.toml"), "--into", str(tmp_path / "runs")]
    path = os.pathsep.join([str(Path(module.__file__ or "").parents[up]) for module, up in ((tiny, 0), (pj, 1))])
    environment = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stderr is not None
        assert any(line.startswith("epoch 1: loss ") for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("picojoule: stopped ")
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    (tmp_path / "pause").unlink()
    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=600)
    assert again.returncode == 0, again.stderr
    assert "epoch 1: loss " not in again.stderr  # it goes on, it does not begin again
    assert traces(pj.Run.at(again.stdout.splitlines()[-1])) == undisturbed


# --- Killed ----------------------------------------------------------------------------------------------------------


@contextmanager
def training(into: Path, count: Path, seconds: float, recipe: pj.Recipe = RECIPE) -> Iterator[Any]:
    """The recipe trained, but never to its end, in a process forked from a server that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tiny", "picojoule", "lightning_fabric"])
    count.unlink(missing_ok=True)
    arguments = (recipe.to_toml(), str(into), str(count), seconds)
    process = context.Process(target=tiny.train_slowly, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def wait_for(condition: Callable[[], bool], process: Any) -> None:
    while not condition() and process.is_alive():
        time.sleep(0.002)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_end(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    count = tmp_path / "count"
    for attempt in range(4):
        draw = random.Random(attempt)
        with training(tmp_path, count, seconds=0.02) as process:
            wait_for(count.exists, process)
            time.sleep(draw.uniform(0, 0.25))
            assert process.is_alive()
    assert not (folder(tmp_path) / "result.json").exists()
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


@pytest.mark.slow
def test_two_processes_cannot_train_one_run_and_a_killed_one_leaves_no_lock(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.to_toml())
    count = tmp_path / "count"
    with training(tmp_path, count, seconds=0) as process:
        wait_for(count.exists, process)
        monkeypatch.setattr(sys, "argv", ["picojoule", "train", f"{tmp_path}/recipe.toml", "--into", str(tmp_path)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert "is being trained by another process" in captured.err
        assert process.is_alive()
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


def test_a_run_that_another_process_has_just_finished_is_not_trained_again(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = pj.data.load

    def slow_load(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(pj.data, "load", load)
        pj.fit(RECIPE, tmp_path)
        return load(*arguments, **more)

    monkeypatch.setattr(pj.data, "load", slow_load)
    watcher = Watcher()
    assert traces(pj.fit(RECIPE, tmp_path, reporters=[watcher])) == undisturbed
    assert watcher.batches == 0


def test_a_run_killed_in_its_last_moment_is_tidied_up(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    stop_after(3 * BATCHES, tmp_path)
    left = folder(tmp_path) / "checkpoint-000003-00000000.safetensors"
    content = left.read_bytes()
    pj.fit(RECIPE, tmp_path)
    left.write_bytes(content)
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


# --- Damaged files ---------------------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-200] ^= 4
    path.write_bytes(content)


def plant_a_bomb(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb()))


DAMAGE = [cut, flip_a_bit, plant_a_bomb]


@pytest.mark.parametrize(
    "damage", [plant_a_bomb, *(pytest.param(damage, marks=pytest.mark.slow) for damage in (cut, flip_a_bit))]
)
def test_a_damaged_checkpoint_costs_an_epoch_and_no_more(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    stop_after(2 * BATCHES + 1, tmp_path)
    older, newer = sorted(folder(tmp_path).glob("checkpoint-*"))
    damage(newer)
    watcher = Watcher()
    assert traces(pj.fit(RECIPE, tmp_path, reporters=[watcher])) == undisturbed
    assert watcher.began == [(2, 0)]
    assert [f"{newer.name} is damaged" in text and f"back to {older.name}" in text for text in watcher.said] == [True]
    assert not Path("exploded").exists()


def test_a_run_whose_checkpoints_are_all_damaged_starts_afresh(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    stop_after(2 * BATCHES + 1, tmp_path)
    for path in folder(tmp_path).glob("checkpoint-*"):
        cut(path)
    (folder(tmp_path) / "metrics.jsonl").write_text("{")
    watcher = Watcher(after_epoch={1: signal_to_self(signal.SIGTERM)})
    with pytest.raises(fit.Interrupted):
        pj.fit(RECIPE, tmp_path, reporters=[watcher])
    assert watcher.began == [(0, 0)]
    assert len(watcher.said) == 2
    assert watcher.said[1].endswith("no other is left, so the run starts afresh")
    again = Watcher()
    assert traces(pj.fit(RECIPE, tmp_path, reporters=[again])) == undisturbed
    assert again.began == [(1, 0)]
    assert again.said == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("{"),
        pytest.param(Path.unlink, marks=pytest.mark.slow),
        pytest.param(lambda path: path.write_text(""), marks=pytest.mark.slow),
    ],
)
def test_metrics_are_restored_from_the_checkpoint(
    undisturbed: dict[str, Any], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    stop_after(2 * BATCHES + 1, tmp_path)
    damage(folder(tmp_path) / "metrics.jsonl")
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


def test_a_checkpoint_of_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(2, tmp_path)
    layers = dict(tiny.net(10, 1, pj.Spike).named_children()) | {"out": torch.nn.Linear(72, 10, bias=False)}
    monkeypatch.setattr(tiny, "net", lambda: tiny.Classifier(**layers))
    with pytest.raises(pj.PicojouleError, match="do not fit the model of its recipe") as caught:
        pj.fit(RECIPE, tmp_path)
    assert "\n" not in str(caught.value)
    assert len(list(folder(tmp_path).glob("checkpoint-*"))) == 1


def test_a_damaged_result(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    run = pj.fit(RECIPE, tmp_path)
    cut(run.path / "result.json")
    with pytest.raises(pj.PicojouleError, match=r"result.json cannot be read .*remove it and run"):
        pj.fit(RECIPE, tmp_path)
    (run.path / "result.json").unlink()
    assert traces(pj.fit(RECIPE, tmp_path)) == undisturbed


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_weights(tmp_path: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = pj.fit(tiny.recipe("training.epochs=1"), tmp_path)
    damage(run.path / "weights.safetensors")
    with pytest.raises(pj.PicojouleError, match=r"the weights of .* cannot be read"):
        pj.evaluate(run)
    assert not Path("exploded").exists()


def test_a_folder_of_another_recipe(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("training.epochs=1"), tmp_path)
    shutil.copytree(run.path, folder(tmp_path))
    before = {path.name: path.read_bytes() for path in folder(tmp_path).iterdir()}
    for finished in (True, False):
        if not finished:
            before.pop("result.json")
            (folder(tmp_path) / "result.json").unlink()
        with pytest.raises(pj.PicojouleError, match="belongs to another recipe"):
            pj.fit(RECIPE, tmp_path)
        assert {path.name: path.read_bytes() for path in folder(tmp_path).iterdir()} == before


# --- A full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "number"),
    [
        *(("fsync", 4), ("replace", 9)),
        *(pytest.param("fsync", n, marks=pytest.mark.slow) for n in (0, 1, 2, 3, 5, 6, 7, 8, 9)),
        pytest.param("replace", 3, marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_is_full_at_any_write(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    true_call, calls = getattr(os, call), 0

    def full(target: Any, *more: Any) -> Any:
        nonlocal calls
        is_file = not isinstance(target, int) or not os.path.isdir(f"/dev/fd/{target}")
        calls += is_file
        if is_file and calls > number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true_call(target, *more)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(
            pj.PicojouleError, match=r"No space left on device.*free some space and run the same command"
        ):
            pj.fit(RECIPE, tmp_path)
    assert not list(folder(tmp_path).glob(".*.tmp"))
    assert len(list(folder(tmp_path).glob("checkpoint-*"))) == min(max(0, number - 2) // 2, 2)
    assert not (folder(tmp_path) / "result.json").exists()
    watcher = Watcher()
    assert traces(pj.fit(RECIPE, tmp_path, reporters=[watcher])) == undisturbed
    assert watcher.began == [(min(max(0, number - 2) // 2, 3), 0)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not (sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount")):
        pytest.skip("only root can mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this root may not mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_that_is_truly_full(undisturbed: dict[str, Any], small_disk: Path) -> None:
    filler = small_disk / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    with pytest.raises(pj.PicojouleError, match="free some space"):
        pj.fit(RECIPE, small_disk, reporters=[Watcher(after_epoch={1: fill})])
    assert [path.name for path in folder(small_disk).glob("checkpoint-*")] == ["checkpoint-000001-00000000.safetensors"]
    assert not list(folder(small_disk).glob(".*.tmp"))
    with pytest.raises(pj.PicojouleError, match="free some space"):
        pj.fit(RECIPE, small_disk)
    filler.unlink()
    watcher = Watcher()
    assert traces(pj.fit(RECIPE, small_disk, reporters=[watcher])) == undisturbed
    assert watcher.began == [(1, 0)]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(pj.PicojouleError, match="choose another with --into"):
        pj.fit(RECIPE, tmp_path / "file")


# --- Numbers that are none -------------------------------------------------------------------------------------------


def files(run: pj.Run) -> set[str]:
    return {path.name for path in run.path.iterdir()} - {".lock"}


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    recipe = tiny.recipe("model.name=tiny:breaks_down")
    for _ in range(2):
        with pytest.raises(
            pj.PicojouleError, match=r"the loss became nan in epoch 2, batch 2: lower optimizer.lr"
        ) as caught:
            pj.fit(recipe, tmp_path)
        run = pj.Run(tmp_path / recipe.name)
        assert f"the last good checkpoint is kept in {run.path}" in str(caught.value)
        assert files(run) == {
            *("recipe.toml", "metrics.jsonl", "failure.txt"),
            "checkpoint-000001-00000000.safetensors",
        }
        assert run.failure == str(caught.value)
        kept = run.last_checkpoint(pytest.fail)
        assert kept is not None
        assert all(tensor.isfinite().all() for tensor in kept.tensors.values())


def test_an_absurd_learning_rate_stops_the_run(tmp_path: Path) -> None:
    recipe = tiny.recipe("optimizer.lr=1e30")
    with pytest.raises(pj.PicojouleError, match=r"became (nan|inf).*: lower optimizer.lr or penalty.strength$"):
        pj.fit(recipe, tmp_path)
    assert files(pj.Run(tmp_path / recipe.name)) == {"recipe.toml", "metrics.jsonl", "failure.txt"}


def test_a_validation_loss_that_is_infinite_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = loop.measure
    monkeypatch.setattr(loop, "measure", lambda *a: dataclasses.replace(measure(*a), loss=math.inf))
    with pytest.raises(pj.PicojouleError, match=r"the validation loss became inf: lower optimizer.lr"):
        pj.fit(RECIPE, tmp_path)
    assert files(pj.Run(folder(tmp_path))) == {"recipe.toml", "metrics.jsonl", "failure.txt"}


def test_weights_that_are_not_numbers_are_found_though_the_loss_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil() -> None:
        with torch.no_grad():
            models[0].conv1.weight[0] = torch.nan

    models: list[Any] = []
    build = setup.build_model
    monkeypatch.setattr(setup, "build_model", lambda recipe, trust: models.append(build(recipe, trust)) or models[-1])
    recipe = tiny.recipe("model.name=tiny:plain", "penalty.strength=0", "optimizer.lr=1e-9")
    with pytest.raises(pj.PicojouleError, match=r"conv1.weight became infinite or NaN in epoch 2: lower optimizer.lr"):
        pj.fit(recipe, tmp_path, reporters=[Watcher(after_batch={2 * BATCHES: spoil})])
    assert [path.name for path in pj.Run(tmp_path / recipe.name).checkpoints] == [
        "checkpoint-000001-00000000.safetensors"
    ]
