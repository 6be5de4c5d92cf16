"""Run folders: what is written is whole or absent, and what is read back is what was written."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.io.signals import Interrupted
from picojoule.runs.checkpoint import Checkpoint
from picojoule.runs.folder import Run, find_runs
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.result import RunResult


def checkpoint(epoch: int, batch: int = 0) -> Checkpoint:
    tensors = {
        "half": torch.full((3,), epoch, dtype=torch.bfloat16),
        "count": torch.tensor(7 * epoch),
        "kernel": torch.arange(16.0).reshape(2, 2, 2, 2).to(memory_format=torch.channels_last),
        "none": torch.empty(0),
    }
    return Checkpoint(epoch, batch, tensors, {"sums": [0.1, epoch], "metrics": [{"x": 1 / 3}]})


def same(a: Checkpoint | None, b: Checkpoint) -> bool:
    return (
        a is not None
        and (a.epoch, a.batch, a.notes) == (b.epoch, b.batch, b.notes)
        and a.tensors.keys() == b.tensors.keys()
        and all(torch.equal(a.tensors[k], b.tensors[k]) and a.tensors[k].dtype == b.tensors[k].dtype for k in a.tensors)
    )


def refuse(text: str) -> None:
    raise AssertionError(f"nothing was to be said, but: {text}")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


# --- Checkpoints -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was(run: Run) -> None:
    assert run.last_checkpoint(refuse) is None
    run.write_checkpoint(checkpoint(3, 17))
    assert same(run.last_checkpoint(refuse), checkpoint(3, 17))


def test_the_newest_of_two_is_kept(run: Run) -> None:
    for epoch, batch in ((1, 0), (2, 0), (9, 5), (9, 40), (10, 0), (100, 0)):
        run.write_checkpoint(checkpoint(epoch, batch))
        assert same(run.last_checkpoint(refuse), checkpoint(epoch, batch))
        assert len(run.checkpoints) <= 2
    assert [path.name for path in run.checkpoints] == [
        "checkpoint-000010-00000000.safetensors",
        "checkpoint-000100-00000000.safetensors",
    ]


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[:-1],
    "cut in half": lambda content: content[: len(content) // 2],
    "cut in the header": lambda content: content[:30],
    "too long": lambda content: content + b"\0",
    "a flipped bit at the end": lambda content: flip(len(content) - 1)(content),
    "zeros": lambda content: bytes(len(content)),
    "a pickle bomb": lambda content: pickle.dumps(Bomb()),
    "text": lambda content: b"this is no checkpoint",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    run: Run, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path)
    run.write_checkpoint(checkpoint(1))
    run.write_checkpoint(checkpoint(2))
    newest = run.checkpoints[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    said: list[str] = []
    assert same(run.last_checkpoint(said.append), checkpoint(1))
    assert len(said) == 1
    assert said[0].startswith(f"{newest.name} is damaged (")
    assert said[0].endswith(f"going back to {run.checkpoints[0].name}")
    assert not (run.path / "exploded").exists()


def test_no_flipped_bit_goes_unnoticed(run: Run) -> None:
    run.write_checkpoint(checkpoint(1))
    (path,) = run.checkpoints
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(flip(position)(whole))
        said: list[str] = []
        found = run.last_checkpoint(said.append)
        # A flip between two spellings of the same content, such as a blank, is no damage.
        assert (found is None and len(said) == 1) or (not said and same(found, checkpoint(1))), position


def test_where_every_checkpoint_is_damaged_the_run_starts_afresh_and_can_be_stopped_again(run: Run) -> None:
    for epoch in (5, 6):
        run.write_checkpoint(checkpoint(epoch))
    for path in run.checkpoints:
        path.write_bytes(b"?")
    said: list[str] = []
    assert run.last_checkpoint(said.append) is None
    assert len(said) == 2
    assert said[1].endswith("so the run starts afresh")
    run.write_checkpoint(checkpoint(1))  # older by name than the damaged ones
    assert same(run.last_checkpoint(refuse), checkpoint(1))


# --- Writing ---------------------------------------------------------------------------------------------------------


def test_beginning_again_sweeps_up_what_a_killed_process_left(run: Run) -> None:
    left = run.path / ".result.json.0123abcd.tmp"
    left.write_text("half a res")
    with run.begun(tiny.recipe()):
        pass
    assert not left.exists()


# --- Folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "noted"),
    [
        (pj.PicojouleError("the loss became nan"), "the loss became nan"),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (MemoryError(), "MemoryError:"),
        (Interrupted("stopped"), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_run_that_fails_says_why_until_it_is_begun_again(run: Run, fault: BaseException, noted: str | None) -> None:
    with pytest.raises(type(fault)), run.begun(tiny.recipe()):
        raise fault
    assert run.failure == noted
    with run.begun(tiny.recipe()):
        assert run.failure is None


def test_a_finished_run_has_not_failed(run: Run) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    run.write_failure("killed")
    assert run.failure == "killed"
    run.write_result(RunResult.parse({"test": tiny.figures(), "validation": tiny.figures()}))
    assert run.failure is None


def test_a_folder_is_one_process_s_at_a_time(run: Run) -> None:
    with (
        run.begun(tiny.recipe()),
        pytest.raises(pj.PicojouleError, match="is being trained by another process: wait for it, or stop it"),
        Run(run.path).begun(tiny.recipe()),
    ):
        pass
    with Run(run.path).begun(tiny.recipe()):
        assert run.recipe == tiny.recipe()


def test_a_folder_of_another_recipe_is_left_alone(run: Run) -> None:
    with run.begun(tiny.recipe()):
        pass
    with pytest.raises(pj.PicojouleError, match="belongs to another recipe"), run.begun(tiny.recipe("seed=1")):
        pass
    assert run.recipe == tiny.recipe()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(pj.PicojouleError, match=r"cannot write in the run folder .*choose another with --into"),
        Run(tmp_path / "file" / "run").begun(tiny.recipe()),
    ):
        pass


def test_a_folder_that_cannot_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    true_open = os.open

    def opened(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith(".lock"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return true_open(path, *arguments, **more)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(pj.PicojouleError, match="make the folder writable"), run.begun(tiny.recipe()):
        pass


@pytest.mark.parametrize("name", [".", "nowhere", "a" * 300])
def test_a_folder_that_is_no_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(pj.PicojouleError, match="is not a run folder"):
        Run.at(tmp_path / name)


def test_a_recipe_that_is_no_file_is_named_for_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.toml")
    with pytest.raises(pj.PicojouleError, match=r"\(its recipe.toml cannot be read: it is a pipe, not a file\)"):
        Run.at(tmp_path)
    (tmp_path / "other" / "recipe.toml").mkdir(parents=True)
    with pytest.raises(pj.PicojouleError, match="it is a folder"):
        Run.at(tmp_path / "other")


def test_an_unfinished_run_says_so(run: Run) -> None:
    assert run.metrics == []
    for attribute, word in (("result", "is not finished"), ("weights", "finish the run")):
        with pytest.raises(pj.PicojouleError, match=word):
            getattr(run, attribute)


@pytest.mark.parametrize("content", ["null", "[]", "{}", '{"test": 3}', '{"test": {"accuracy": 1}}'])
def test_a_result_that_is_none_is_refused(run: Run, content: str) -> None:
    run.write_text("result.json", content)
    with pytest.raises(pj.PicojouleError, match="is not a valid result"):
        _ = run.result


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_weights_are_refused(run: Run, damage: Callable[[bytes], bytes]) -> None:
    path = run.path / "weights.safetensors"
    run.write_weights(checkpoint(1).tensors)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(pj.PicojouleError, match=r"cannot be read .*: finish the run"):
        _ = run.weights
    run.write_text("result.json", "{}")
    with pytest.raises(pj.PicojouleError, match=r"cannot be read .*: bring the file back, or remove result\.json too"):
        _ = run.weights


@pytest.mark.parametrize("damage", ["cut", "nested"])
def test_damaged_metrics_are_refused(run: Run, damage: str) -> None:
    run.write_metrics([EpochMetrics.parse(tiny.epoch(number)) for number in (0, 1)])
    assert [entry.epoch for entry in run.metrics] == [0, 1]
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": ' if damage == "cut" else "[" * 200_000)
    with pytest.raises(pj.PicojouleError, match=r"metrics.jsonl is damaged"):
        _ = run.metrics


def test_numbers_that_are_none_are_never_stored(run: Run) -> None:
    odd = {"of_somebody_else": float("nan")}
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_metrics([EpochMetrics.parse(tiny.epoch() | odd)])
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_result(RunResult.parse({"test": tiny.figures(), "validation": tiny.figures(), **odd}))
    assert list(run.path.iterdir()) == []


def test_runs_are_found_at_any_depth_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name, file in (("b", "recipe.toml"), ("a/deeper", "result.json"), ("c", "notes.txt")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / file).write_text("")
    assert [run.path for run in find_runs(tmp_path)] == [tmp_path / "a" / "deeper", tmp_path / "b"]
    assert [run.path for run in find_runs(tmp_path / "b")] == [tmp_path / "b"]
    assert find_runs(tmp_path / "nowhere") == []
