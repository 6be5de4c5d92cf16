"""Work in other threads that an exception from a signal's handler cannot disturb.

Python runs the handlers of signals in the main thread, between any two of its steps, and what they raise comes out
there. `Thread.start`, `Future.result` and all that is made of them do not survive that: the new thread dies before its
first step, a condition's lock is never given back, and whoever waits does so for ever. To mask signals is no remedy,
for another thread of the process receives them, and the handler runs in the main thread all the same.

So everything here that a caller does is either one step of the interpreter or can be done twice. What has a state runs
in the other thread, where no handler runs. Ctrl-C, an alarm or a timeout reaches the caller that waits, at once;
the work goes on to its end, and the next caller gets its result. The interpreter's exit waits for what is under way.
"""

from __future__ import annotations

import _thread
import atexit
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
Item = TypeVar("Item")


class Task(Generic[Value]):
    """A function that is called once, in a thread of its own, when its value is first asked for.

    Args:
        work: The function.

    >>> task = Task(lambda: print("at work") or 42)
    >>> task.result(), task.result()
    at work
    (42, 42)
    """

    def __init__(self, work: Callable[[], Value]) -> None:
        self._work = work
        self._claim = _thread.allocate_lock()
        self._waiters: list[_thread.LockType] = []
        self._over = False
        self._returned: list[Value] = []
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Start the work, if that has not happened yet, and do not wait."""
        if not self._claim.locked():  # another thread may come first, and then there is nothing left to do for this one
            _thread.start_new_thread(self._run, ())

    def result(self) -> Value:
        """Wait for what the function returns; what it raises is raised here.

        Returns:
            What the function returned.
        """
        if not self._over:
            self.start()
            self._wait()
        if self._fault is not None:
            raise self._fault
        return self._returned[0]

    def _wait(self) -> None:
        waiter = _thread.allocate_lock()  # its own, so an interruption may leave it locked
        waiter.acquire()
        self._waiters.append(waiter)
        if not self._over:
            waiter.acquire()

    # --- In the other thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):  # another thread has begun already
            return
        _under_way.append(self)
        try:
            if _exiting:
                raise SystemExit("the interpreter is about to exit")
            self._returned.append(self._work())
        except BaseException as fault:
            self._fault = fault
        finally:
            self._over = True  # later callers do not wait, and those that do are woken
            for waiter in self._waiters:
                waiter.release()
            _under_way.remove(self)


_under_way: list[Task[Any]] = []
_exiting: list[bool] = []


@atexit.register
def _wait_for_all() -> None:
    """Wait at exit for what is under way: a thread within machine code must not find the interpreter gone."""
    _exiting.append(True)
    for task in tuple(_under_way):  # from which each takes itself when it is done
        task._wait()


def run_in_thread(work: Callable[[], Value]) -> Value:
    """Call a function in another thread and wait for it.

    For what starts threads or takes locks in Python, which an exception from a signal's handler would damage.

    Args:
        work: The function.

    Returns:
        What it returned; what it raises is raised here.

    >>> run_in_thread(lambda: 6 * 7)
    42
    """
    return Task(work).result()


def share_among_threads(work: Callable[[Item], object], items: Iterable[Item], threads: int) -> None:
    """Call a function on every item, on several threads; if the caller is interrupted, the rest is left undone.

    Args:
        work: What is called with each item.
        items: The items, in any number.
        threads: How many threads there may be.

    >>> done = []
    >>> share_among_threads(done.append, range(5), threads=2)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    left = deque(items)

    def take() -> None:
        while True:
            try:
                item = left.popleft()
            except IndexError:
                return
            work(item)

    tasks = [Task(take) for _ in range(min(threads, len(left)))]
    try:
        for task in tasks:
            task.start()
        for task in tasks:
            task.result()
    except BaseException:
        left.clear()
        raise
