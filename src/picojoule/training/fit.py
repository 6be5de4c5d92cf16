"""Starting a run: its folder, its device or devices, its processes. The loop itself is in `training`."""

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

from picojoule.errors import PicojouleError, a_path
from picojoule.io.signals import Interrupted, stop_signals
from picojoule.kernels.allocator import kept_memory
from picojoule.kernels.thread_count import threads
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.verdict import missed
from picojoule.training.reference import reference_figure
from picojoule.training.reporters import Log, Reporter
from picojoule.training.setup import train

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def fit(
    recipe: Recipe,
    into: str | os.PathLike[str] = "runs",
    *,
    reporters: Sequence[Reporter] = (),
    accelerator: str = "auto",
    devices: int = 1,
    wait: bool = False,
) -> Run:
    """Train one network; resumes if interrupted, returns at once if finished.

    The run's folder is `into/<recipe.name>`. With several devices the batch of the recipe is shared out among them
    (DDP). What a run has to say (a silent layer, a damaged checkpoint; a missed budget also when it is finished) goes
    to the reporters, or to the log where there are none. A run that another process is training is refused
    (`record.Busy`), or with `wait` waited for.
    """
    if not isinstance(recipe, Recipe):
        raise PicojouleError(f"fit needs a Recipe, not {type(recipe).__name__}: Recipe.load reads one from a file")
    run = Run.of(recipe, a_path("the folder of runs", into))
    if _is_done(run, recipe, reporters):
        return run
    for key, name in recipe.needs.items():
        run.beside(name, key)
    reference_figure(run, recipe)  # refused before anything is written, if it cannot be compared
    fabric = _fabric(recipe, accelerator, devices)  # so is a device that is not there
    data = recipe.data.load()
    with (
        run.begun(recipe, wait),
        _untouched_random_state(accelerator),
        threads(recipe.training.threads),
        kept_memory(),
    ):
        if _is_done(run, recipe, reporters):  # by another process, while this one loaded the data or waited
            return run
        start = partial(train, run=run, recipe=recipe, data=data, reporters=tuple(reporters))
        if devices > 1:
            _launch(fabric, start)
        else:
            start(fabric)
    return run


def _is_done(run: Run, recipe: Recipe, reporters: Sequence[Reporter]) -> bool:
    if not run.finished:
        return False
    run.check_recipe(recipe)
    shortfall = missed(run)  # the result must be readable
    if shortfall is not None:
        for reporter in reporters or (Log(),):
            reporter.say(shortfall)
    run.remove_checkpoints()  # left by a process that was killed in its last moment
    return True


@contextmanager
def _untouched_random_state(accelerator: str) -> Iterator[None]:
    devices = range(torch.cuda.device_count()) if accelerator != "cpu" else ()
    with torch.random.fork_rng(devices):
        yield


def _fabric(recipe: Recipe, accelerator: str, devices: int) -> Fabric:
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
    """Warnings of that logger and what is worse, for a while."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---------------------------------------------------------------------------------------------------- several processes


def _launch(fabric: Fabric, train: Callable[[Fabric], None]) -> None:
    """Train in one process a device; what ends one of them is raised here as what it was."""
    problems = multiprocessing.get_context("spawn").SimpleQueue()
    others = set(multiprocessing.active_children())

    def tell_them() -> None:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()  # a signal like any other to them: they write a checkpoint

    with stop_signals(tell_them) as stop:
        try:
            fabric.launch(partial(_in_process, train=train, problems=problems))
        except ProcessException:
            if not problems.empty():
                raise problems.get() from None
            if stop.requested:
                raise Interrupted("stopped before the first batch; the same command starts again") from None
            raise


def _in_process(fabric: Fabric, train: Callable[[Fabric], None], problems: Any) -> None:
    try:
        train(fabric)
    except (PicojouleError, Interrupted) as problem:
        problems.put(problem)
        raise
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # its threads would abort a process that ends before them


def _precision(recipe: Recipe, accelerator: str) -> str:
    if recipe.training.precision == "bf16-mixed":
        return "bf16-mixed"
    return "bf16-mixed" if recipe.training.precision == "auto" and _native_bfloat16(accelerator) else "32-true"


def _native_bfloat16(accelerator: str) -> bool:
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return False
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
