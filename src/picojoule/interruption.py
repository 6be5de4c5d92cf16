"""Being told to stop: SIGINT and SIGTERM as a flag that is read between two batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
