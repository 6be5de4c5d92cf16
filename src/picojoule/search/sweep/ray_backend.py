"""The backend of a Ray cluster: each run is a task on some machine, its folder is sent back when it is finished.

A run is trained in the cache folder of that machine, so that a second attempt there goes on from the last checkpoint.
What is found in the cache belongs to the same run folder, recipe and code, or it is not used: a folder that is new, or
a model whose code has changed, is trained from the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import pickle
import secrets
import shutil
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from picojoule.data import cache_root
from picojoule.errors import PicojouleError
from picojoule.io.extras import explained
from picojoule.io.factories import is_factory
from picojoule.io.files import make_folder, read_bytes, write_atomically
from picojoule.recipe import Recipe
from picojoule.runs.folder import Busy, Run
from picojoule.search.sweep.jobs import Ended, Event, Job, Locked
from picojoule.search.sweep.worker import train

Files = Mapping[str, bytes]
_RESULT = "result.json"
_COPY_NAME = ".ticket"
"""A file in the folder of an unfinished run: the name under which machines keep copies of it."""
_COPY_NAME_BYTES = 16
_STARTS = 3
"""Attempts at starting a cluster: Ray waits for its own parts for half a minute only."""
_CONNECTING = 10.0
"""Seconds in which a cluster must answer."""
_TIDYING = 20.0
"""Seconds to wait for machines to remove their copies."""


class RayBackend:
    """A Ray cluster: the one at an address, or the one that Ray finds, or else one started on this machine.

    Args:
        places: How many runs at once; as many as the cluster holds unless given.
        address: The cluster's address.

    Raises:
        PicojouleError: If Ray is not installed, does not start, or there is no cluster at the address.
    """

    def __init__(self, places: int | None, address: str | None) -> None:
        try:
            import ray
            from ray.util.queue import Queue
        except ModuleNotFoundError as missing:
            raise explained(missing, "a sweep on Ray") from None
        self.places = places or sys.maxsize
        self._ray: Any = ray
        self._tasks: dict[Any, Job] = {}
        self._unplaced: list[tuple[Job, str, Files]] = []
        self._copies: dict[str, list[str]] = {}
        self._started = not ray.is_initialized()
        self._on_term = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL  # Ray puts its own in its place
        if self._started:
            self._init(address)
        sizes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        self._largest = max(sizes, default=0)
        self._gpus = 1 if self._ray.cluster_resources().get("GPU") else 0
        self._news: Any = Queue(actor_options={"num_cpus": 0})

    def _init(self, address: str | None) -> None:
        """Connect to the cluster, or start one."""
        _check_reachable(address or os.environ.get("RAY_ADDRESS", ""))
        for attempts_left in range(_STARTS - 1, -1, -1):
            try:
                self._ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
                return
            except (ConnectionError, ValueError) as fault:
                reason = " ".join(str(fault).split())
                raise PicojouleError(
                    f"no Ray cluster was found at {address or 'this machine'} ({reason}): start one with `ray start`, "
                    "or name another with --address"
                ) from None
            except Exception as fault:  # so Ray calls it when its parts were not there in time
                self._ray.shutdown()
                if not attempts_left:
                    raise PicojouleError(
                        f"Ray did not start ({' '.join(str(fault).split())}): run the same command again when this "
                        "machine is less busy"
                    ) from fault

    def start(self, job: Job, wait: bool) -> None:
        """Send a run to the cluster (see `Backend`)."""
        cpus = job.recipe.training.threads
        task = self._ray.remote(
            num_cpus=min(cpus, self._largest or cpus),  # a task that no machine can hold would wait for ever
            num_gpus=self._gpus,
            max_retries=0,  # the sweep tries again by itself, and says so
            max_calls=1,  # a process that has trained knows the model's code as it was then
        )(_work)
        bases = {name: _files(job.run.path.parent / name) for name in job.recipe.needs.values()}
        path = [os.getcwd(), *sys.path]  # first the folder that the sweep was started in
        self._tasks[task.remote(job.recipe, _copy_name(job.run.path), bases, path, self._news)] = job

    def listen(self, seconds: float) -> list[tuple[Job, Event]]:
        """Wait for events (see `Backend`)."""
        by_name = {job.run.path.name: job for job in self._tasks.values()}
        if self._tasks:
            ready, _ = self._ray.wait(list(self._tasks), timeout=seconds)
        else:
            time.sleep(seconds)
            ready = []
        heard: list[tuple[Job, Event]] = [(by_name[name], event) for name, event in self._hear() if name in by_name]
        for task in ready:
            job = self._tasks.pop(task)
            try:
                node, end, files = self._ray.get(task)
            except self._ray.exceptions.RayError as fault:  # its process was killed, its machine lost
                end, files = Ended(_task_error(fault)), {}
            if files:
                self._unplaced.append((job, node, files))
            else:
                heard.append((job, end))
        return heard + self._place()

    def _hear(self) -> list[tuple[str, Event]]:
        """Receive the events that tasks have sent, with the names of their runs."""
        try:
            return [pickle.loads(each) for each in self._news.get_nowait_batch(self._news.qsize())]
        except self._ray.exceptions.RayError:  # its machine was lost: the runs go on without reports
            return []

    def _place(self) -> list[tuple[Job, Event]]:
        """Put finished runs into their folders, but for those in which another process is training."""
        placed: list[tuple[Job, Event]] = []
        for job, node, files in self._unplaced:
            try:
                with job.run.begun(job.recipe):
                    if not job.run.finished:
                        _write(job.run.path, files)
                        job.run.remove_checkpoints()
                placed.append((job, Ended()))
                self._copies.setdefault(node, []).append(_copy_name(job.run.path))
                (job.run.path / _COPY_NAME).unlink(missing_ok=True)
            except Busy:
                continue
            except PicojouleError as fault:
                placed.append((job, Ended(str(fault))))
        over = [job for job, _ in placed]
        self._unplaced = [entry for entry in self._unplaced if entry[0] not in over]
        return placed

    def stop(self) -> None:
        """Ask every task to write a checkpoint and end (see `Backend`)."""
        for task in self._tasks:
            self._ray.cancel(task)  # like Ctrl-C in the task: it writes a checkpoint

    def close(self) -> None:
        """Cancel every task and remove the copies of finished runs (see `Backend`)."""
        for task in self._tasks:
            self._ray.cancel(task, force=True)
        self._remove_copies()
        self._news.shutdown()
        if self._started:
            self._ray.shutdown()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_term)

    def _remove_copies(self) -> None:
        """Remove what finished runs left on the machines that trained them."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._started:  # a cluster of this machine and of this environment, where a new process would only take time
            for names in self._copies.values():
                _remove(names)
            return
        tasks = []
        for node, names in self._copies.items():
            there = NodeAffinitySchedulingStrategy(node, soft=True)
            tasks.append(self._ray.remote(num_cpus=0, scheduling_strategy=there)(_remove).remote(names))
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=_TIDYING)


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would try for minutes, and only report a timeout.

    What is not a host and a port is left to Ray.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTING).close()
    except (OSError, OverflowError, UnicodeError) as fault:
        raise PicojouleError(
            f"no Ray cluster was found at {address} ({fault}): start one with `ray start`, or name another with "
            "--address"
        ) from None


def _task_error(fault: Exception) -> str:
    """Say what ended a task, without the traceback that Ray puts around it."""
    cause = getattr(fault, "cause", None) or fault
    first_line = str(cause).strip().partition("\n")[0]
    return f"{type(cause).__name__}: {first_line}"


def _copy_name(folder: Path) -> str:
    """Return the unique name of a run folder's copies; a folder that is removed and made anew gets another."""
    path = make_folder(folder) / _COPY_NAME
    try:
        name = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        name = ""
    if len(name) != 2 * _COPY_NAME_BYTES or not name.isalnum():  # it becomes part of a path
        name = secrets.token_hex(_COPY_NAME_BYTES)
        write_atomically(path, name.encode())
    return name


def _files(folder: Path) -> Files:
    """Read the files of a finished run; nothing of one that is not finished."""
    if not (folder / _RESULT).is_file():
        return {}
    kept = (path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "checkpoint-")))
    return {path.name: read_bytes(path) for path in kept}


def _write(folder: Path, files: Files) -> None:
    """Write the files of a finished run, the result last, because it is what makes a run finished."""
    make_folder(folder)
    for name in sorted(files, key=lambda name: name == _RESULT):
        write_atomically(folder / name, files[name])


# --- On the machine that trains ---------------------------------------------------------------------------------------


def _work(
    recipe: Recipe, copy_name: str, bases: Mapping[str, Files], path: Sequence[str], news: Any
) -> tuple[str, Ended | Locked, Files]:
    """Train a run in a task of the cluster, and return its machine, how it ended, and its files."""
    import ray

    sys.path.extend(place for place in path if place not in sys.path)  # a model of the user's own is found there
    into = (_copies(copy_name) / _code_digest(recipe)).absolute()
    with contextlib.suppress(OSError):  # on another machine the folder may not be there
        os.chdir(path[0])  # that of the sweep: relative paths of data start from it
    for name, files in bases.items():
        if files and not Run.named(name, into).finished:
            _write(into / name, files)

    def tell(event: Event) -> None:
        """Send an event to the sweep; where it is gone, the run goes on."""
        with contextlib.suppress(ray.exceptions.RayError):
            news.put(pickle.dumps((recipe.name, event)))  # as bytes, which the queue need not understand

    end = train(recipe, into, tell, wait=True)
    return ray.get_runtime_context().get_node_id(), end, _files(into / recipe.name)


def _copies(name: str) -> Path:
    """Return the folder of copies: always the same on one machine, so that a second attempt finds its checkpoints."""
    return cache_root() / "sweep" / name


def _remove(names: Sequence[str]) -> None:
    """Remove copies on the machine where this is called."""
    for name in names:
        shutil.rmtree(_copies(name), ignore_errors=True)


def _code_digest(recipe: Recipe) -> str:
    """Hash the code that trains: picojoule's, the model's package, and what else is not an installed library."""
    named = [name for name in (recipe.model.name, recipe.data.name) if is_factory(name)]
    modules = [name.partition(":")[0] for name in named]
    for module in modules:
        with contextlib.suppress(Exception, SystemExit):  # training says what is wrong with it
            importlib.import_module(module)
    own = ("picojoule", *(module.partition(".")[0] for module in modules))
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    digest = hashlib.sha256()
    for name, loaded in sorted(sys.modules.items()):
        source = getattr(loaded, "__file__", None)
        if source is None or (source.startswith(installed) and name.partition(".")[0] not in own):
            continue
        with contextlib.suppress(OSError):  # a module from an archive, or one that is gone
            digest.update(f"{name}\0{hashlib.sha256(Path(source).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
