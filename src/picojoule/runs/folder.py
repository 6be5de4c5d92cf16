"""A run on disk: its recipe, metrics, result, weights, and the checkpoints it resumes from.

Every file is complete or absent (`files`). Tensors are safetensors and everything else is TOML, JSON or text, so
nothing that is loaded can run code. A finished run is one that has `result.json`; one that failed has `failure.txt`,
which says why.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from torch import Tensor

from picojoule.errors import PicojouleError, a_path
from picojoule.io import files
from picojoule.io.signals import Interrupted
from picojoule.recipe import Recipe
from picojoule.runs.checkpoint import Checkpoint
from picojoule.runs.metrics import EpochMetrics, metrics_text, read_metrics
from picojoule.runs.result import RunResult, read_result
from picojoule.runs.stored import InvalidContent
from picojoule.runs.tensors import _Damaged, _packed, _read_tensors

KEPT_CHECKPOINTS = 2
"""The newest, and the one before it in case the newest turns out to be damaged."""
_RECIPE = "recipe.toml"
_METRICS = "metrics.jsonl"
_WEIGHTS = "weights.safetensors"
_RESULT = "result.json"
_FAILURE = "failure.txt"


class Busy(PicojouleError):
    """Another process is training the run."""


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path
    given_model: str | None = field(default=None, compare=False, repr=False)
    """The model that the caller gave to be trained here, and so trusts; None where only the folder names one."""

    @classmethod
    def of(cls, recipe: Recipe, into: str | os.PathLike[str]) -> Run:
        """The run, begun or not, of a recipe that the caller gave to be trained into a folder of runs."""
        return cls(Path(into) / recipe.name, recipe.model.name)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Run:
        """An existing run."""
        run = cls(a_path("a run", path))
        if not os.path.isfile(run.path / _RECIPE):  # pathlib's own raises where a folder may not be read
            raise PicojouleError(
                f"{os.fspath(path)} is no run folder (it has no recipe.toml): name a folder that `picojoule train` made"
            )
        return run

    def beside(self, name: str, key: str) -> Run:
        """A finished run in the same folder, which this run's recipe names under that key."""
        other = Run(self.path.parent / name)
        if not os.path.isfile(other.path / _RECIPE):
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
        return Recipe.load(self.path / _RECIPE)

    @property
    def finished(self) -> bool:
        return os.path.isfile(self.path / _RESULT)

    @property
    def result(self) -> RunResult:
        if not self.finished:
            raise PicojouleError(
                f"{self.path} is not finished: run `picojoule train` with the same recipe again, it will resume"
            )
        path = self.path / _RESULT
        remedy = "remove it and run `picojoule train` with the same recipe again"
        try:
            return read_result(path)
        except InvalidContent as fault:
            raise PicojouleError(f"{path} is not a valid result ({fault}): {remedy}") from None
        except (OSError, ValueError) as fault:
            raise PicojouleError(f"{path} cannot be read ({files.reason(fault)}): {remedy}") from None

    @property
    def failure(self) -> str | None:
        """Why the last attempt failed, if it did and the run is not finished."""
        if self.finished:
            return None
        try:
            return files.read_bytes(self.path / _FAILURE).decode(errors="replace").strip()
        except OSError:
            return None

    @property
    def metrics(self) -> list[EpochMetrics]:
        """One entry an epoch."""
        return self.thinned_metrics(None)[1]

    def thinned_metrics(self, at_most: int | None) -> tuple[int, list[EpochMetrics]]:
        """The number of epochs that are done, and the metrics of at most so many of them.

        Only these lines are parsed: each holds every layer, and a thousand runs have many.
        """
        try:
            return read_metrics(self.path / _METRICS, at_most)
        except (OSError, ValueError, InvalidContent) as fault:
            raise PicojouleError(
                f"{self.path / _METRICS} is damaged ({files.reason(fault)}): remove it, or train again in another "
                "folder"
            ) from None

    @property
    def has_weights(self) -> bool:
        return os.path.isfile(self.path / _WEIGHTS)

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
                f"cannot write in the run folder {self.path} ({files.reason(fault)}): "
                f"{files.remedy(fault).removesuffix(',')}, or choose another with --into"
            ) from None
        try:
            for left in self.path.glob(files.LEFT_BEHIND):
                files.remove(left)
            for name in (_RECIPE, _METRICS, _WEIGHTS, _RESULT):  # not found out after hours of training
                files.check_destination(self.path / name)
            if os.path.isfile(self.path / _RECIPE):
                self.check_recipe(recipe)
            else:
                self.write_text(_RECIPE, recipe.to_toml())
            with self._noting_failure():
                yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """A run that fails says why in its folder, until it is begun again; being told to stop is no failure."""
        files.remove(self.path / _FAILURE)
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
        files.write_atomically(self.path / name, text.encode(errors="backslashreplace"))  # a path may be no text

    def write_metrics(self, metrics: Iterable[EpochMetrics]) -> None:
        self.write_text(_METRICS, metrics_text(metrics))

    def write_weights(self, tensors: dict[str, Tensor]) -> None:
        files.write_atomically(self.path / _WEIGHTS, _packed(tensors, {}))

    def write_result(self, result: RunResult) -> None:
        """The last file of a run: once it is there, the checkpoints have done their duty."""
        self.write_text(_RESULT, result.to_json())
        self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        for path in self.checkpoints:
            files.remove(path)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        notes = {"epoch": checkpoint.epoch, "batch": checkpoint.batch, **checkpoint.notes}
        written = self.path / f"checkpoint-{checkpoint.epoch:06d}-{checkpoint.batch:08d}.safetensors"
        files.write_atomically(written, _packed(checkpoint.tensors, notes))
        # What is newer than the run itself was damaged, or it would have gone on from there.
        kept = [path for path in self.checkpoints if path <= written][-KEPT_CHECKPOINTS:]
        for path in self.checkpoints:
            if path not in kept:
                files.remove(path)

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
