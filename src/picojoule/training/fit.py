"""Starting a run: its folder, its device or devices, its processes. The loop itself is in `loop`."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch.multiprocessing.spawn import ProcessException

from picojoule import zoo
from picojoule.data import Data, Given
from picojoule.errors import PicojouleError, as_path
from picojoule.io.signals import Interrupted, stop_signals
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.thread_count import threads
from picojoule.kernels.torch_private import cpu_has_bfloat16
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.verdict import missed
from picojoule.training.process import RunProcess
from picojoule.training.reference import reference_figure
from picojoule.training.reporters import LogReporter, Reporter
from picojoule.training.setup import train

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def fit(
    recipe: Recipe,
    into: str | os.PathLike[str] = "runs",
    *,
    data: Given | None = None,
    reporters: Sequence[Reporter] = (),
    accelerator: str = "auto",
    devices: int = 1,
    wait: bool = False,
) -> Run:
    """Train one network; the same call resumes an interrupted run and returns a finished one at once.

    The run's folder is `into/<recipe.name>`. On CPU a resumed run ends with the same bits as one that was never
    interrupted. Remarks (a silent layer, a damaged checkpoint; a missed budget also when the run is finished) go to the
    reporters, or to the log "picojoule" where there are none.

    Args:
        recipe: What is trained.
        into: The folder of runs.
        data: With `data.name = "own"`, the data: (train, validation, test), each None, (samples, labels) or a map-style
            data set of `torch.utils.data`.
        reporters: Who is told how it goes: a progress display, TensorBoard.
        accelerator: "auto", "cpu", "cuda" or "mps".
        devices: How many devices share each batch of the recipe (DDP).
        wait: Whether to wait for another process that is training the run.

    Returns:
        The finished run.

    Raises:
        Busy: If another process is training the run, and `wait` is false.
        Interrupted: If the process was told to stop (SIGINT, SIGTERM); a checkpoint is written.
        PicojouleError: If the recipe cannot be trained here, or training diverged.

    >>> import tempfile
    >>> recipe = Recipe(
    ...     model={"name": "cnn7"},
    ...     data={"name": "digits", "limit": 10, "limit_validation": 10, "limit_test": 10},
    ...     training={"epochs": 1, "batch_size": 10},
    ... )
    >>> run = fit(recipe, into=tempfile.mkdtemp(), accelerator="cpu")
    >>> run.finished, run.path.name == recipe.name
    (True, True)
    """
    if not isinstance(recipe, Recipe):
        raise PicojouleError(f"fit needs a Recipe, not {type(recipe).__name__}: Recipe.load reads one from a file")
    recipe, loaded = with_own_data(recipe, data)  # before all else, because their content is part of the run's name
    run = Run.of(recipe, as_path("the folder of runs", into))
    if is_finished(recipe, into):
        return _returned(run, reporters)
    for key, name in recipe.needs.items():
        run.beside(name, key)
    reference = reference_figure(run, recipe)  # refused before anything is written, if it cannot be compared
    fabric = _fabric(recipe, accelerator, devices)  # so is a device that is not there
    if ":" in recipe.model.name:  # and a model
        zoo.imported.find(recipe.model.name)
    loaded = loaded or recipe.data.load()
    if loaded.streamed:
        _tell(reporters, f"{loaded.name} is larger than memory: its samples are read batch by batch")
    with (
        run.begun(recipe, wait),
        _untouched_random_state(accelerator),
        threads(recipe.training.threads),
        retain_freed_memory(),
    ):
        if is_finished(recipe, into):  # by another process, while this one loaded the data or waited
            return _returned(run, reporters)
        start = partial(_train, run=run, recipe=recipe, data=loaded, reporters=tuple(reporters), reference=reference)
        if devices > 1:
            _launch(fabric, start)
        else:
            start(fabric)
    return run


def is_finished(recipe: Recipe, into: str | os.PathLike[str] = "runs") -> bool:
    """Return whether `fit` has nothing to do: the run is finished, and its folder can be used.

    Args:
        recipe: What would be trained.
        into: The folder of runs.

    Returns:
        True for a finished run, False for one that is not there or not finished.

    Raises:
        PicojouleError: If the run is finished, but its recipe is another one or its result cannot be read.

    >>> is_finished(Recipe(model={"name": "cnn7"}, data={"name": "digits"}), "no-such-folder")
    False
    """
    run = Run.of(recipe, into)
    if not run.finished:
        return False
    run.check_recipe(recipe)
    _ = run.result  # reading it checks it
    return True


def with_own_data(recipe: Recipe, data: Given | None = None) -> tuple[Recipe, Data | None]:
    """Load the user's own data of a recipe that the caller gives to be trained, and complete the recipe with them.

    Args:
        recipe: The recipe.
        data: The data themselves, with `data.name = "own"`.

    Returns:
        The complete recipe, and the data; a recipe of a data set that picojoule knows as it is, and None.

    Raises:
        PicojouleError: If the data cannot be read, or do not go together with the recipe.
    """
    if not recipe.data.own:
        if data is not None:
            raise PicojouleError(
                f"data.name = {recipe.data.name!r} is a data set that picojoule knows: give your own data with "
                "data.name = 'own'"
            )
        return recipe, None
    loaded = recipe.data.load(trust=True, given=data)
    return recipe.completed(loaded), loaded


def _tell(reporters: Sequence[Reporter], text: str) -> None:
    for reporter in reporters or (LogReporter(),):
        reporter.say(text)


def _returned(run: Run, reporters: Sequence[Reporter]) -> Run:
    """Return a finished run, with a remark if it missed its budget."""
    shortfall = missed(run)
    if shortfall is not None:
        _tell(reporters, shortfall)
    run.remove_checkpoints()  # left by a process that was killed in its last moment
    return run


def _train(
    fabric: Fabric, run: Run, recipe: Recipe, data: Data, reporters: tuple[Reporter, ...], reference: float | None
) -> None:
    """Train in this process, of which only the first one reports."""
    told = (reporters or (LogReporter(),)) if fabric.global_rank == 0 else ()
    train(RunProcess(fabric, run, recipe, data, told, reference))


@contextmanager
def _untouched_random_state(accelerator: str) -> Iterator[None]:
    """Give the caller's random state back after the block."""
    devices = range(torch.cuda.device_count()) if accelerator != "cpu" else ()
    with torch.random.fork_rng(devices):
        yield


def _fabric(recipe: Recipe, accelerator: str, devices: int) -> Fabric:
    """Choose devices and precision, or refuse what this machine does not have."""
    most = max(2, os.cpu_count() or 1)  # two processes on one core are for trying things out
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.accelerator.is_available())
    if on_cpu and devices > most:
        raise PicojouleError(
            f"{devices} × {accelerator!r} cannot be used here (there is one process for each, and this machine runs "
            f"{most} at most): choose another accelerator or number of devices"
        )
    from lightning_fabric import Fabric  # takes a second to import, and only training needs it
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    try:
        with _quiet("lightning_fabric"):  # it announces the precision, once for every run of a sweep
            return Fabric(
                accelerator=accelerator,
                devices=devices,
                strategy="ddp_spawn" if devices > 1 else "auto",
                precision=_precision(recipe, accelerator),  # type: ignore[arg-type]  # a str where Fabric lists literals
            )
    except (MisconfigurationException, ImportError, TypeError, ValueError, RuntimeError) as fault:
        reason = " ".join(str(fault).split())
        raise PicojouleError(
            f"{devices} × {accelerator!r} cannot be used here ({reason}): choose another accelerator (auto, cpu, "
            "cuda, mps) or number of devices"
        ) from None


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a logger at warnings and above, as long as the block lasts."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---------------------------------------------------------------------------------------------------- several processes


def _launch(fabric: Fabric, train: Callable[[Fabric], None]) -> None:
    """Train in one process per device, and raise the error that ended one of them."""
    problems = multiprocessing.get_context("spawn").SimpleQueue()
    others = set(multiprocessing.active_children())

    def stop_processes() -> None:
        """Send every process of the run the signal on which it writes a checkpoint."""
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()

    with stop_signals(stop_processes) as stop:
        try:
            fabric.launch(partial(_in_process, train=train, problems=problems))
        except ProcessException:
            if not problems.empty():
                raise problems.get() from None
            if stop.requested:
                raise Interrupted("stopped before the first batch; the same command starts again") from None
            raise


def _in_process(fabric: Fabric, train: Callable[[Fabric], None], problems: Any) -> None:
    """Train in a process of its own, and send the error that ended it to the first."""
    try:
        train(fabric)
    except (PicojouleError, Interrupted) as problem:
        problems.put(problem)
        raise
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # its threads would abort a process that ends before them


def _precision(recipe: Recipe, accelerator: str) -> str:
    """Return Fabric's name of the precision that the recipe asks for."""
    if recipe.training.precision == "bf16-mixed":
        return "bf16-mixed"
    return "bf16-mixed" if recipe.training.precision == "auto" and _native_bfloat16(accelerator) else "32-true"


def _native_bfloat16(accelerator: str) -> bool:
    """Return whether the device computes in bfloat16 by itself."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return False
    return cpu_has_bfloat16()
