"""Being told to stop: SIGINT and SIGTERM as a flag that is read between batches; Ctrl-C while the command starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class Interrupted(Exception):
    """The run was told to stop and has written a checkpoint."""


class Stop:
    """Set by a signal, read between two batches."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.requested = False
        self._tell = tell

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.requested and signum == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice from the keyboard: at once, then
        self.requested = True
        self._tell()


@contextmanager
def stop_signals(tell: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    stop = Stop(tell)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- While the command starts -----------------------------------------------------------------------------------------

CTRL_C = 130
"""The status of a command that Ctrl-C has ended, as shells have it."""


def go_quietly_while_starting() -> None:
    """Let Ctrl-C end the command without a word for as long as it imports libraries, which takes seconds.

    An exception would end in a traceback through somebody's half-imported module, or be lost there. Does nothing where
    picojoule is imported by a program, whose Ctrl-C is its own. `started` ends it.
    """
    if _is_the_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _go)


def started() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _go:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_the_command() -> bool:
    """Whether this process is `picojoule` or `python -m picojoule`, rather than a program or one of its workers."""
    if multiprocessing.parent_process() is not None or threading.current_thread() is not threading.main_thread():
        return False
    program = sys.argv[0] if sys.argv else ""  # absent where Python is embedded
    if program == "-m":  # which is what it is until the module was found
        return "picojoule" in sys.orig_argv[1:] and sys.orig_argv[sys.orig_argv.index("picojoule") - 1] == "-m"
    return Path(program).stem in ("picojoule", "picojoule-script")  # the latter on Windows


def _go(signum: int, frame: FrameType | None) -> None:
    os._exit(CTRL_C)
