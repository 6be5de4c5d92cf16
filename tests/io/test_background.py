"""Threads under exceptions from a signal's handler: before every single step of the interpreter, and in a storm."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from picojoule.io import background
from picojoule.io.background import Task, run_in_thread, share_among_threads
from picojoule.kernels import jit

LIMIT = 120.0
"""Seconds after which a test gives up that waits for ever."""


class Rang(Exception):
    """What a handler raises."""


def interrupted_before_step(number: int, work: Callable[[], object]) -> bool:
    """Call it and raise before that step of the interpreter, in the calling thread, as a handler would.

    Whether it came so far.
    """
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            steps += 1
            if steps == number:
                sys.settrace(None)
                raise Rang
        return trace

    gc.disable()  # what is raised in a callback of the collector, such as hypothesis's, is lost for everyone
    sys.settrace(trace)
    try:
        work()
    except Rang:
        return True
    finally:
        sys.settrace(None)
        gc.enable()
    return False


def within_the_limit(work: Callable[[], object]) -> None:
    """In a thread that may hang without the tests doing so."""
    faults: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "it waits for ever"
    if faults:
        raise faults[0]


@pytest.fixture(autouse=True)
def no_thread_dies(capfd: pytest.CaptureFixture[str]) -> Any:
    yield
    assert "ignored in thread" not in capfd.readouterr().err


def every_step(make: Callable[[], tuple[Callable[[], object], object]]) -> None:
    """Interrupt work at each of its steps; called again, it must return what is expected."""
    number = 1
    while True:
        work, expected = make()
        came_so_far = interrupted_before_step(number, work)
        assert work() == expected
        if not came_so_far:
            assert number > 20  # there were some
            return
        number += 1


def test_a_task_is_done_once_whenever_its_caller_is_interrupted() -> None:
    def make() -> tuple[Callable[[], object], object]:
        calls: list[int] = []
        task = Task(lambda: calls.append(1) or len(calls))
        return task.result, 1

    within_the_limit(lambda: every_step(make))
    assert background._under_way == []


def test_a_compilation_is_done_once_whenever_its_caller_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        address = 42

    compiled: list[Callable[..., None]] = []

    def compile(function: Callable[..., None], signature: object) -> Compiled:
        compiled.append(function)
        return Compiled()

    monkeypatch.setattr(jit, "_compile", compile)
    monkeypatch.setattr(jit, "_compilations", {})

    def make() -> tuple[Callable[[], object], object]:
        function = lambda: None  # noqa: E731  # a new one each time
        return lambda: jit.entry(function, None), 42

    within_the_limit(lambda: every_step(make))
    assert len(set(compiled)) == len(compiled) > 20


def test_shared_work_is_done_whenever_its_caller_is_interrupted() -> None:
    def make() -> tuple[Callable[[], object], object]:
        def work() -> list[int]:
            done: list[int] = []
            share_among_threads(done.append, range(6), 3)
            return sorted(done)

        return work, list(range(6))

    within_the_limit(lambda: every_step(make))


def test_what_the_work_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("x")

    task = Task(fail)
    for _ in range(2):
        with pytest.raises(KeyError):
            task.result()
    with pytest.raises(KeyError):
        run_in_thread(fail)
    left: list[int] = []

    def fail_at_two(item: int) -> None:
        if item == 2:
            raise KeyError(item)
        left.append(item)

    with pytest.raises(KeyError):
        share_among_threads(fail_at_two, range(1000), 1)
    assert left == [0, 1]


def test_many_callers_get_one_result() -> None:
    calls: list[int] = []
    gate = threading.Event()

    def work() -> int:
        calls.append(1)
        gate.wait(LIMIT)
        return 7

    task = Task(work)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(task.result())) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(LIMIT)
    assert results == [7] * 8
    assert calls == [1]


# --- A storm of alarms, as the main thread of a process sees it ------------------------------------------------------

STORM = """
import random, signal, sys
import torch
from alarm import Alarm, Rang
from picojoule.kernels import jit

class Compiled:
    address = 42

jit._compile = lambda function, signature: Compiled()
torch.ones(1 << 20).sum()  # threads of PyTorch's that may receive the signals
alarm, caught, delays = Alarm(), 0, random.Random(0)
signal.signal(signal.SIGALRM, alarm)
while caught < 3000:
    function, done = (lambda: None), None
    while done is None:
        signal.setitimer(signal.ITIMER_REAL, delays.uniform(5e-6, 2e-4))
        try:
            alarm.armed = True
            done = jit.entry(function, None)
            alarm.armed = False
        except Rang:
            caught += 1
    assert done == 42
signal.setitimer(signal.ITIMER_REAL, 0)
print(alarm.rung, caught)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such timer")
@pytest.mark.slow
def test_in_a_storm_of_alarms_none_is_lost_and_nobody_waits_for_ever() -> None:
    finished = python(STORM)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    rung, caught = map(int, finished.stdout.split())
    assert rung == caught >= 3000


@pytest.mark.slow
def test_the_interpreter_waits_for_what_is_under_way_and_starts_nothing_more() -> None:
    code = """
import sys, time
from picojoule.io.background import Task

def late():
    time.sleep(0.5)
    print("to its end", flush=True)

Task(late).start()
while True:
    from picojoule.io import background
    if background._under_way:
        break
"""
    finished = python(code)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "to its end\n", "")


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
