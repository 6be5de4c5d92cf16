"""A run's folder: its recipe, metrics, result, weights, and the checkpoints it resumes from; and finding such folders.

The folder may lie in a pack (`io.packs`), which is only read and holds neither weights nor checkpoints.

Every file is complete or absent (`io.files`). Tensors are safetensors and everything else is TOML, JSON or text, so
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

from picojoule.errors import PicojouleError, as_path
from picojoule.io import files, packs
from picojoule.io.signals import Interrupted
from picojoule.io.tensors import DamagedTensors, pack_tensors, read_tensors
from picojoule.recipe import Recipe
from picojoule.runs.checkpoint import Checkpoint
from picojoule.runs.metrics import EpochMetrics, metrics_text, read_metrics
from picojoule.runs.result import RunResult, read_result
from picojoule.runs.stored import InvalidContent
from picojoule.zoo import pretrained

KEPT_CHECKPOINTS = 2
"""How many are kept: the newest, and the one before it in case the newest turns out to be damaged."""
RECIPE = "recipe.toml"
METRICS = "metrics.jsonl"
_WEIGHTS = "weights.safetensors"
RESULT = "result.json"
FAILURE = "failure.txt"


class Busy(PicojouleError):
    """The error of a run that another process is training."""


@dataclass(frozen=True)
class Run:
    r"""A run's folder; nothing is read before it is asked for.

    Example:
        >>> import tempfile
        >>> recipe = Recipe.loads('model.name = "cnn7"\ndata.name = "digits"')
        >>> run = Run.of(recipe, tempfile.gettempdir() + "/no-such-folder")
        >>> run.exists, run.finished, run.metrics
        (False, False, [])
    """

    path: Path
    """The folder; a string or another `Run` will do."""
    given_model: str | None = field(default=None, compare=False, repr=False)
    """The model that the caller gave to be trained here, and so trusts; None where only the folder names one."""

    given_data: str | None = field(default=None, compare=False, repr=False)
    """The same for its data."""

    def __post_init__(self) -> None:
        given: object = self.path
        if isinstance(given, Run):  # a run will do as well as its path
            object.__setattr__(self, "given_model", given.given_model)
            object.__setattr__(self, "given_data", given.given_data)
            given = given.path
        object.__setattr__(self, "path", as_path("a run", given))

    @classmethod
    def opened(cls, run: Run | str | os.PathLike[str]) -> Run:
        """Take a run, or open the folder of one.

        Args:
            run: The run, or the path of its folder.

        Returns:
            The run.

        Raises:
            PicojouleError: If it is not a run's folder.
        """
        return run if isinstance(run, Run) else cls.at(run)

    @classmethod
    def of(cls, recipe: Recipe, into: str | os.PathLike[str]) -> Run:
        """Name the run, begun or not, of a recipe that the caller gives to be trained.

        Args:
            recipe: What is to be trained; its digest is part of the folder's name.
            into: The folder of run folders.

        Returns:
            The run in `into/<recipe.name>`, whose model is trusted because the caller named it; where it is not
            finished there and a pack in `into` has it finished, that one.
        """
        return cls(_place(into, recipe.name), recipe.model.name, recipe.data.name)

    @classmethod
    def named(cls, name: str, folder: str | os.PathLike[str]) -> Run:
        """Name the run of a folder of runs by its name alone.

        Args:
            name: The name of its folder.
            folder: The folder of run folders, or a pack.

        Returns:
            The run, begun or not; where it is not finished there and a pack in the folder has it finished, that one.
        """
        return cls(_place(folder, name))

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Run:
        """Open the folder of a run that was begun, or a trained network that ships with picojoule.

        Args:
            path: The run's folder; where there is none, a name such as "cnn7/fashion-mnist-baseline".

        Returns:
            The run.

        Raises:
            PicojouleError: If it is not a run's folder.
        """
        given = as_path("a run", path)
        run = cls(given if os.path.exists(given) else pretrained.folder(given.as_posix()) or given)
        missing = "it has no recipe.toml"
        if files.is_file(run.path / RECIPE):
            return run
        try:
            files.check_regular(run.path / RECIPE)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as fault:
            missing = f"its recipe.toml cannot be read: {files.reason(fault)}"
        raise PicojouleError(f"{os.fspath(path)} is not a run folder ({missing}): name one that `picojoule train` made")

    def beside(self, name: str, key: str) -> Run:
        """Open a finished run in the same folder of runs.

        Args:
            name: The name of its folder.
            key: The key of this run's recipe that names it, for the error.

        Returns:
            The other run.

        Raises:
            PicojouleError: If it is not there, or not finished.
        """
        other = Run.named(name, self.path.parent)
        if not other.exists:
            raise PicojouleError(
                f"{key} = {name!r}, but there is no such run in {self.path.parent}: train it first, into that folder"
            )
        if not other.finished:
            raise PicojouleError(
                f"{key} = {name!r}, but that run is not finished: run `picojoule train` with its recipe again first"
            )
        return other

    @property
    def exists(self) -> bool:
        """Whether the folder holds a recipe: the run was begun, finished or not."""
        return files.is_file(self.path / RECIPE)

    @property
    def recipe(self) -> Recipe:
        """The recipe; a PicojouleError where it cannot be read."""
        return Recipe.load(self.path / RECIPE)

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return files.is_file(self.path / RESULT)

    @property
    def result(self) -> RunResult:
        """The result; a PicojouleError where the run is not finished, or its result cannot be read."""
        if not self.finished:
            raise PicojouleError(
                f"{self.path} is not finished: run `picojoule train` with the same recipe again, it will resume"
            )
        path = self.path / RESULT
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
            return files.read_bytes(self.path / FAILURE).decode(errors="replace").strip()
        except OSError:
            return None

    @property
    def metrics(self) -> list[EpochMetrics]:
        """What was measured, epoch by epoch; a PicojouleError where the file is damaged."""
        return self.thinned_metrics(None)[1]

    def thinned_metrics(self, at_most: int | None) -> tuple[int, list[EpochMetrics]]:
        """Read the metrics of some epochs: each line holds every layer, and a thousand runs have many.

        Args:
            at_most: Read no more than so many, evenly spaced, the first and the last among them; None reads all.

        Returns:
            The number of epochs that are done, and the metrics that were read.

        Raises:
            PicojouleError: If one of these lines is damaged.
        """
        try:
            return read_metrics(self.path / METRICS, at_most)
        except (OSError, ValueError, InvalidContent) as fault:
            raise PicojouleError(
                f"{self.path / METRICS} is damaged ({files.reason(fault)}): remove it, or train again in another folder"
            ) from None

    @property
    def has_weights(self) -> bool:
        """Whether the folder holds the trained weights."""
        return files.is_file(self.path / _WEIGHTS)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The trained weights, by the names of the model's state; a PicojouleError where they cannot be read."""
        try:
            return read_tensors(self.path / _WEIGHTS)[0]
        except DamagedTensors as fault:
            remedy = "finish the run with `picojoule train`"
            if packs.split(self.path) is not None:
                raise PicojouleError(
                    f"{self.path} is in a pack, which keeps no weights: train it again with `picojoule train "
                    f"{self.path / RECIPE} --into ANOTHER_FOLDER`"
                ) from None
            if self.finished:  # as long as the result is there, training returns at once
                remedy = "bring the file back, or remove result.json too and run `picojoule train` with the same recipe"
            raise PicojouleError(f"the weights of {self.path} cannot be read ({fault}): {remedy}") from None

    # ---------------------------------------------------------------------------------------------------------- writing

    @contextlib.contextmanager
    def begun(self, recipe: Recipe, wait: bool = False) -> Iterator[None]:
        """Make the folder if need be and keep every other process out of it, as a context.

        What ends the block with an error is noted in the folder as the run's failure.

        Args:
            recipe: The run's recipe, which is written, or must be the one that is there.
            wait: Wait for a process that is in there.

        Yields:
            Nothing.

        Raises:
            Busy: If another process is in there and `wait` is False.
            PicojouleError: If the folder cannot be written, or belongs to another recipe.
        """
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
            for name in (RECIPE, METRICS, _WEIGHTS, RESULT):  # not found out after hours of training
                files.check_destination(self.path / name)
            if self.exists:
                self.check_recipe(recipe)
            else:
                self.write_text(RECIPE, recipe.to_toml())
            with self._noting_failure():
                yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Leave the reason of a failure in the folder, until the run is begun again; being told to stop is none."""
        files.remove(self.path / FAILURE)
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
        """Leave the reason why the run is not finished.

        Args:
            reason: One sentence.
        """
        self.write_text(FAILURE, " ".join(reason.split()) + "\n")

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse a folder that belongs to another recipe.

        Args:
            recipe: The recipe that it should have.

        Raises:
            PicojouleError: If it has another.
        """
        if self.recipe != recipe:
            raise PicojouleError(
                f"{self.path} belongs to another recipe: choose another folder with --into, or move it away"
            )

    def write_text(self, name: str, text: str) -> None:
        """Write a file of the folder, all of it or nothing.

        Args:
            name: The file's name.
            text: Its content; what no encoding has is escaped.
        """
        files.write_atomically(self.path / name, text.encode(errors="backslashreplace"))  # a path may be no text

    def write_metrics(self, metrics: Iterable[EpochMetrics]) -> None:
        """Write `metrics.jsonl`.

        Args:
            metrics: All epochs that are done.
        """
        self.write_text(METRICS, metrics_text(metrics))

    def write_weights(self, tensors: dict[str, Tensor]) -> None:
        """Write `weights.safetensors`.

        Args:
            tensors: The model's state.
        """
        files.write_atomically(self.path / _WEIGHTS, pack_tensors(tensors, {}))

    def write_result(self, result: RunResult) -> None:
        """Write `result.json`, the last file of a run, and remove the checkpoints.

        Args:
            result: The result.
        """
        self.write_text(RESULT, result.to_json())
        self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        """Remove all checkpoints."""
        for path in self.checkpoints:
            files.remove(path)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and remove those that it makes superfluous.

        Args:
            checkpoint: The moment of training.
        """
        notes = {"epoch": checkpoint.epoch, "batch": checkpoint.batch, **checkpoint.notes}
        written = self.path / f"checkpoint-{checkpoint.epoch:06d}-{checkpoint.batch:08d}.safetensors"
        files.write_atomically(written, pack_tensors(checkpoint.tensors, notes))
        # What is newer than the run itself was damaged, or it would have gone on from there.
        kept = [path for path in self.checkpoints if path <= written][-KEPT_CHECKPOINTS:]
        for path in self.checkpoints:
            if path not in kept:
                files.remove(path)

    def last_checkpoint(self, say: Callable[[str], None]) -> Checkpoint | None:
        """Read the newest checkpoint that is whole.

        Args:
            say: Told of each damaged one that is left aside.

        Returns:
            The checkpoint, or None where there is none to go on from.
        """
        paths = self.checkpoints
        while paths:
            path = paths.pop()
            try:
                tensors, notes = read_tensors(path)
                return Checkpoint(notes.pop("epoch"), notes.pop("batch"), tensors, notes)
            except DamagedTensors as fault:
                remedy = f"going back to {paths[-1].name}" if paths else "no other is left, so the run starts afresh"
                say(f"{path.name} is damaged ({fault}); {remedy}")
        return None

    @property
    def checkpoints(self) -> list[Path]:
        """The files to resume from, the newest last."""
        return sorted(self.path.glob("checkpoint-*.safetensors"))


def _place(folder: str | os.PathLike[str], name: str) -> Path:
    """Find the folder of a run, where it is finished if it is."""
    return packs.locate(folder, f"{name}/{RESULT}").parent


def find_runs(folder: str | os.PathLike[str]) -> list[Run]:
    """Find every run in or below a folder, also those in packs.

    Args:
        folder: Where to look, at any depth, or a pack; one that does not exist holds none.

    Returns:
        The runs, in the order of their paths: finished or not, and also those of which only the result is left.

    Raises:
        PicojouleError: If a pack cannot be read.
    """
    found = _packed_runs(Path(folder)) if packs.is_pack(folder) else set()
    for root, _, names in os.walk(folder):
        if RECIPE in names or RESULT in names:
            found.add(Path(root))
        for pack in (Path(root, name) for name in names):
            if packs.is_pack(pack):
                found |= _packed_runs(pack)
    return [Run(path) for path in sorted(found)]


def _packed_runs(pack: Path) -> set[Path]:
    try:
        names = packs.members(pack)
    except OSError as fault:
        raise PicojouleError(f"{pack} cannot be read ({files.reason(fault)}): make it anew, or move it away") from None
    return {(pack / name).parent for name in names if name.rpartition("/")[2] in (RECIPE, RESULT)}
