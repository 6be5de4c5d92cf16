"""A run on disk: its recipe, metrics, result, weights, and the checkpoints it resumes from.

Every file is complete or absent: it is written beside its place, flushed to the disk, and renamed. Tensors are
safetensors and everything else is TOML, JSON or text, so nothing that is loaded can run code. A finished run is one
that has `result.json`; one that failed has `failure.txt`, which says why.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from picojoule.errors import PicojouleError, a_path
from picojoule.interruption import Interrupted
from picojoule.recipe import Recipe

KEPT_CHECKPOINTS = 2
"""The newest, and the one before it in case the newest turns out to be damaged."""

_METADATA = "picojoule"
_WEIGHTS = "weights.safetensors"
_FAILURE = "failure.txt"


class Busy(PicojouleError):
    """Another process is training the run."""


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training: tensors (weights, optimiser, random numbers) and a few numbers beside them."""

    epoch: int
    """The epoch under way, or the next one."""
    batch: int
    """Batches of it that are done."""
    tensors: dict[str, Tensor]
    notes: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Run:
        """An existing run."""
        run = cls(a_path("a run", path))
        if not os.path.isfile(run.path / "recipe.toml"):  # pathlib's own raises where a folder may not be read
            raise PicojouleError(
                f"{os.fspath(path)} is no run folder (it has no recipe.toml): name a folder that `picojoule train` made"
            )
        return run

    def beside(self, name: str, key: str) -> Run:
        """A finished run in the same folder, which this run's recipe names under that key."""
        other = Run(self.path.parent / name)
        if not (other.path / "recipe.toml").is_file():
            raise PicojouleError(
                f"{key} = {name!r}, but there is no such run in {self.path.parent}: train it first, into that folder"
            )
        if not other.finished:
            raise PicojouleError(
                f"{key} = {name!r}, but that run is not finished: run `picojoule train` with its recipe again first"
            )
        return other

    @property
    def recipe(self) -> Recipe:
        return Recipe.load(self.path / "recipe.toml")

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").is_file()

    @property
    def result(self) -> dict[str, Any]:
        if not self.finished:
            raise PicojouleError(
                f"{self.path} is not finished: run `picojoule train` with the same recipe again, it will resume"
            )
        path = self.path / "result.json"
        result = _read_json(path)
        test = result.get("test") if isinstance(result, dict) else None
        if not isinstance(test, dict) or not {"accuracy", "joules"} <= test.keys():
            raise PicojouleError(
                f"{path} is no result of picojoule (it has no test object): remove it and run `picojoule train` with "
                "the same recipe again"
            )
        return dict(result)

    def figure(self, split: Literal["test", "validation"], key: str) -> float | None:
        """One figure of the result, such as the joules on the validation images; None where the network has none."""
        part = self.result.get(split)
        figure = part.get(key, math.nan) if isinstance(part, dict) else math.nan
        if figure is None:
            return None
        if isinstance(figure, bool) or not isinstance(figure, int | float) or not math.isfinite(figure):
            raise PicojouleError(
                f"{self.path / 'result.json'} is no result of picojoule (its {split} object has no number {key}): "
                "remove it and run `picojoule train` with the same recipe again"
            )
        return figure

    @property
    def failure(self) -> str | None:
        """Why the last attempt failed, if it did and the run is not finished."""
        if self.finished:
            return None
        try:
            return (self.path / _FAILURE).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry an epoch."""
        try:
            lines = (self.path / "metrics.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as fault:
            raise PicojouleError(
                f"{self.path / 'metrics.jsonl'} is damaged ({fault}): remove it, or train again in another folder"
            ) from None

    @property
    def has_weights(self) -> bool:
        return (self.path / _WEIGHTS).is_file()

    @property
    def weights(self) -> dict[str, Tensor]:
        try:
            return _read_tensors(self.path / _WEIGHTS)[0]
        except _Damaged as fault:
            remedy = "finish the run with `picojoule train`"
            if self.finished:  # as long as the result is there, training returns at once
                remedy = "bring the file back, or remove result.json too and run `picojoule train` with the same recipe"
            raise PicojouleError(f"the weights of {self.path} cannot be read ({fault}): {remedy}") from None

    # ---------------------------------------------------------------------------------------------------------- writing

    @contextlib.contextmanager
    def begun(self, recipe: Recipe, wait: bool = False) -> Iterator[None]:
        """Make the folder if need be and keep every other process out of it; `wait` for one that is in there."""
        lock = FileLock(self.path / ".lock")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=wait)
        except Timeout:
            raise Busy(
                f"{self.path} is being trained by another process: wait for it, or stop it and run this again"
            ) from None
        except OSError as fault:
            raise PicojouleError(
                f"cannot write in the run folder {self.path} ({fault.strerror}): {_remedy(fault)}, or choose another "
                "with --into"
            ) from None
        try:
            for left in self.path.glob(".*.tmp"):  # by a process that was killed while it wrote
                left.unlink(missing_ok=True)
            if (self.path / "recipe.toml").is_file():
                self.check_recipe(recipe)
            else:
                self.write_text("recipe.toml", recipe.to_toml())
            with self._noting_failure():
                yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """A run that fails says why in its folder, until it is begun again; being told to stop is no failure."""
        (self.path / _FAILURE).unlink(missing_ok=True)
        try:
            yield
        except Interrupted:
            raise
        except Exception as fault:
            with contextlib.suppress(PicojouleError):  # on a full disk the fault itself has to do
                self.write_failure(
                    str(fault) if isinstance(fault, PicojouleError) else f"{type(fault).__name__}: {fault}"
                )
            raise

    def write_failure(self, reason: str) -> None:
        """Why the run is not finished, in one sentence."""
        self.write_text(_FAILURE, " ".join(reason.split()) + "\n")

    def check_recipe(self, recipe: Recipe) -> None:
        if self.recipe != recipe:
            raise PicojouleError(
                f"{self.path} belongs to another recipe: choose another folder with --into, or move it away"
            )

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text.encode())

    def write_metrics(self, metrics: list[dict[str, Any]]) -> None:
        self.write_text("metrics.jsonl", "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in metrics))

    def write_weights(self, tensors: dict[str, Tensor]) -> None:
        write_atomically(self.path / _WEIGHTS, _packed(tensors, {}))

    def write_result(self, result: dict[str, Any]) -> None:
        """The last file of a run: once it is there, the checkpoints have done their duty."""
        self.write_text("result.json", json.dumps(result, indent=2, allow_nan=False) + "\n")
        self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        for path in self.checkpoints:
            path.unlink(missing_ok=True)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        notes = {"epoch": checkpoint.epoch, "batch": checkpoint.batch, **checkpoint.notes}
        written = self.path / f"checkpoint-{checkpoint.epoch:06d}-{checkpoint.batch:08d}.safetensors"
        write_atomically(written, _packed(checkpoint.tensors, notes))
        # What is newer than the run itself was damaged, or it would have gone on from there.
        kept = [path for path in self.checkpoints if path <= written][-KEPT_CHECKPOINTS:]
        for path in self.checkpoints:
            if path not in kept:
                path.unlink(missing_ok=True)

    def last_checkpoint(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged ones are named and left aside."""
        paths = self.checkpoints
        while paths:
            path = paths.pop()
            try:
                tensors, notes = _read_tensors(path)
                return Checkpoint(notes.pop("epoch"), notes.pop("batch"), tensors, notes)
            except _Damaged as fault:
                remedy = f"going back to {paths[-1].name}" if paths else "no other is left, so the run starts afresh"
                say(f"{path.name} is damaged ({fault}); {remedy}")
        return None

    @property
    def checkpoints(self) -> list[Path]:
        """The files to resume from, the newest last."""
        return sorted(self.path.glob("checkpoint-*.safetensors"))


def made(folder: Path) -> Path:
    """The folder, which is there now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise PicojouleError(
            f"the folder {folder} cannot be made ({fault.strerror}): choose another place, or make this one writable"
        ) from None
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """All of the file or none of it, on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as fault:
        raise PicojouleError(
            f"cannot write {path} ({fault.strerror}): {_remedy(fault)} and run the same command again, nothing that "
            "was finished is lost"
        ) from fault
    with contextlib.suppress(OSError):  # not every file system can; the file itself is whole in any case
        _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Make a renaming outlast a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remedy(fault: OSError) -> str:
    return "free some space" if fault.errno in (errno.ENOSPC, errno.EDQUOT) else "make the folder writable"


def _packed(tensors: dict[str, Tensor], notes: dict[str, Any]) -> bytes:
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(notes, allow_nan=False)
    # One entry only: safetensors writes several in any order, and equal runs are to have equal files.
    content: bytes = save(plain, metadata={_METADATA: f"{_digest(plain, text)} {text}"})
    return content


class _Damaged(Exception):
    """A file of tensors that cannot be read or is not what was written."""


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — not a mapping
    except (OSError, SafetensorError, ValueError) as fault:
        raise _Damaged(fault) from None
    digest, _, text = metadata.get(_METADATA, "").partition(" ")
    if digest != _digest(tensors, text):
        raise _Damaged("its content does not match its checksum")
    notes: dict[str, Any] = json.loads(text)
    return tensors, notes


def _digest(tensors: dict[str, Tensor], notes: str) -> str:
    digest = hashlib.blake2b(notes.encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as fault:
        raise PicojouleError(
            f"{path} cannot be read ({fault}): remove it and run `picojoule train` with the same recipe again"
        ) from None
