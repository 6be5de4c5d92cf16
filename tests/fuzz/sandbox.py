"""A folder with everything that commands take, a copy of it for each case, and commands run in it.

Nothing outside the folder is read or written: the data cache lies in it, there is no network, and no tool on the path.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
import typer.main

import picojoule as pj
import synthetic
import tiny

RECIPE = tiny.RECIPE.replace("training.epochs = 3", "training.epochs = 1").replace("limit = 200", "limit = 80")
SWEEP = RECIPE + '\n[[axes]]\nkey = "penalty.strength"\nvalues = [0, 1]\n'
SECONDS = 20
"""No command on these files computes for as long, or waits for as long without computing at all."""
GLANCE = 2
"""Seconds between two looks at a command."""


_typer_reads = typer.main.get_command


class TooLong(BaseException):
    """A command was still at work when its time was over."""


@functools.cache
def original() -> Path:
    """The folder that is copied, made once: a trained network, made-up runs, recipes and pictures."""
    from PIL import Image

    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    with quiet_streams():
        pj.fit(pj.Recipe.loads(RECIPE), root / "runs")
    (run,) = (root / "runs").iterdir()
    run.rename(root / "run")
    (root / "runs").rmdir()
    synthetic.fill(root / "many", synthetic.recipes(("syn",), (1,), (0, 8, 64), (0,), epochs=2))
    (root / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    (root / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)
    for name in ("picture.png", "picture.jpg"):
        Image.fromarray(pixels).save(root / name)
    with quiet_streams():
        pj.infer(
            root / "run", [root / "picture.png"], trust=True
        )  # the engine is compiled here, not in the time of a case
    (root / "data").mkdir()
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "note.txt").write_text("mine", encoding="utf-8")
    return root


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of the folder as the current one, without network and tools; everything is put back afterwards."""
    before, environment, path, modules = os.getcwd(), dict(os.environ), list(sys.path), set(sys.modules)
    source = original()
    with tempfile.TemporaryDirectory(prefix="fuzz-case-", ignore_cleanup_errors=True) as folder:
        here = Path(folder).resolve() / "case"
        shutil.copytree(source, here)
        _add_special_files(here)
        os.chdir(here)
        os.environ.update(PICOJOULE_DATA=str(here / "data"), PATH=str(here / "no-tools"), HOME=folder, COLUMNS="120")
        try:
            with no_network():
                yield here
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if name.startswith("users_"):
                    del sys.modules[name]


def _add_special_files(here: Path) -> None:
    """A pipe that nobody writes to, a link to a folder and, where we may, a device as hungry as /dev/null."""
    os.mkfifo(here / "pipe")
    (here / "link").symlink_to("elsewhere")
    with contextlib.suppress(PermissionError):
        os.mknod(here / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise OSError("the network is not there")

    kept = {name: getattr(socket, name) for name in ("create_connection", "getaddrinfo")}
    for name in kept:
        setattr(socket, name, refused)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(socket, name, function)


@dataclass
class Ended:
    """How a command ended."""

    status: int | None
    out: str
    err: str
    raised: str | None = None
    too_long: bool = False
    arguments: list[str] = field(default_factory=list)


@functools.cache
def _read_commands(app: Any) -> Any:
    """Typer reads all signatures anew at every start, a quarter of the time of a short command."""
    return _typer_reads(app)


def run(arguments: list[str]) -> Ended:
    """A command of picojoule in this process, as the installed script calls it."""
    from picojoule.cli import main

    out, err = io.StringIO(), io.StringIO()
    argv, handler = sys.argv, signal.signal(signal.SIGALRM, _Patience())
    sys.argv = ["picojoule", *arguments]
    state = torch.get_rng_state(), torch.get_num_threads(), logging.root.manager.disable
    ended = Ended(None, "", "", arguments=arguments)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            signal.setitimer(signal.ITIMER_REAL, GLANCE, GLANCE)
            try:
                with mock.patch.object(typer.main, "get_command", _read_commands):
                    main()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except SystemExit as stop:
        ended.status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except TooLong:
        ended.too_long = True
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "picojoule" in f.filename]
        at = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].name}" if frames else "?"
        ended.raised = f"{type(error).__name__} in {at}: {str(error)[:200]}"
    finally:
        sys.argv = argv
        signal.signal(signal.SIGALRM, handler)
        torch.set_rng_state(state[0])
        torch.set_num_threads(state[1])
        logging.disable(state[2])
        torch.use_deterministic_algorithms(False)
    ended.out, ended.err = out.getvalue(), err.getvalue()
    return ended


class _Patience:
    """Ends a command that computes for too long, or that waits; never one that a busy machine slows down."""

    def __init__(self) -> None:
        self.start = self.last = time.process_time()
        self.idle = 0

    def __call__(self, number: int, frame: Any) -> None:
        now = time.process_time()
        self.idle = self.idle + GLANCE if now - self.last < 0.01 * GLANCE else 0
        self.last = now
        if now - self.start > SECONDS or self.idle >= SECONDS:
            raise TooLong


@contextlib.contextmanager
def quiet_streams() -> Iterator[None]:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def contents(root: Path) -> dict[str, tuple[Any, ...]]:
    """Every file, folder, link and pipe below a folder, with what it holds."""
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = ("link", os.readlink(path))
            elif path.is_file():
                found[key] = ("file", path.read_bytes())
            else:
                found[key] = ("folder",) if path.is_dir() else ("special", stat.S_IFMT(path.stat().st_mode))
    return found
