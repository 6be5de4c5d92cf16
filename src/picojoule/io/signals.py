"""Signals: SIGINT and SIGTERM as a flag that is read between batches, and Ctrl-C while the command starts."""

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
    """The end of a run that was told to stop and has written a checkpoint."""


class Stop:
    """A handler of signals that notes a request to stop; `requested` is read between two batches.

    Args:
        tell: Called at each signal, to tell the user that it was heard.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.requested = False
        self._tell = tell

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Note the request; raise KeyboardInterrupt at the second Ctrl-C."""
        if self.requested and signum == signal.SIGINT:
            raise KeyboardInterrupt  # Ctrl-C for the second time: stop at once
        self.requested = True
        self._tell()


@contextmanager
def stop_signals(tell: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    """Note SIGINT and SIGTERM instead of stopping while the block runs; in other threads than the main one, do nothing.

    Args:
        tell: Called at each signal, to tell the user that it was heard.

    Yields:
        The flag that the signals set.

    >>> with stop_signals() as stop:
    ...     signal.raise_signal(signal.SIGINT)
    ...     stop.requested
    True
    """
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
"""The exit status of a command that Ctrl-C has ended: 128 and the number of SIGINT, as shells have it."""


def go_quietly_while_starting() -> None:
    """Let Ctrl-C end the command without a message for as long as it imports libraries, which takes seconds.

    An exception would end in a traceback through a half-imported module, or be lost there. Does nothing where picojoule
    is imported by another program, which has its own way with Ctrl-C. `started` ends it.
    """
    if _runs_as_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_at_once)


def started() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _runs_as_command() -> bool:
    """Return whether this process is `picojoule` or `python -m picojoule`, not another program or a worker."""
    if multiprocessing.parent_process() is not None or threading.current_thread() is not threading.main_thread():
        return False
    program = sys.argv[0] if sys.argv else ""  # absent where Python is embedded
    if program == "-m":  # so it is until Python has found the module
        return "picojoule" in sys.orig_argv[1:] and sys.orig_argv[sys.orig_argv.index("picojoule") - 1] == "-m"
    return Path(program).stem in ("picojoule", "picojoule-script")  # the latter on Windows


def _exit_at_once(signum: int, frame: FrameType | None) -> None:
    os._exit(CTRL_C)
