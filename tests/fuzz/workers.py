"""Processes that run cases, so that a case that hangs or dies takes only its own process with it.

A worker reads requests from standard input, a JSON object per line, and answers with a line each.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from fuzz.cases import Case
from fuzz.outcome import Outcome

SECONDS = 900
"""No case waits as long without computing."""
COMPUTING = 120
"""Nor does one compute for so many seconds. A command is stopped by the sandbox much sooner."""
CASES = 500
"""A worker is replaced after so many, so that what a case leaves in memory does not pile up."""


def serve() -> None:
    """Answer requests until there are no more. What cases print goes nowhere."""
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, COMPUTING)  # its signal ends the process
        case = Case(request["kind"], request["seed"])
        if "failure" in request:
            answer: Any = case.smallest(request["failure"])
        else:
            outcome = case.run()
            answer = {"notes": outcome.notes, "failures": outcome.failures}
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """A process that runs cases, started when the first is asked for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0

    def run(self, case: Case) -> Outcome:
        try:
            answer = self._ask({"kind": case.kind, "seed": case.seed})
        except TimeoutError:
            return Outcome(failures=[("takes for ever", case.described)])
        except ConnectionError as error:
            return Outcome(failures=[("ends the process", str(error))])
        return Outcome(answer["notes"], [(name, details) for name, details in answer["failures"]])

    def smallest(self, case: Case, failure: str) -> str:
        try:
            return str(self._ask({"kind": case.kind, "seed": case.seed, "failure": failure}))
        except (TimeoutError, ConnectionError):
            return case.described

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()
            self._process = None

    def _ask(self, request: dict[str, Any]) -> Any:
        if self._asked >= CASES:
            self.close()
        if self._process is None:
            self._process, self._asked = _started(), 0
        self._asked += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(SECONDS):
                if not _waits_for_a_core(self._process.pid):
                    self.close()
                    raise TimeoutError
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self.close()
            if status == -signal.SIGPROF:
                raise TimeoutError
            raise ConnectionError(f"with {status}")
        return json.loads(line)


def _waits_for_a_core(pid: int) -> bool:
    """Whether a process would compute if the machine let it, which ends at `COMPUTING`; False where nobody can say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].startswith("R")
    except OSError:
        return False


def _started() -> subprocess.Popen[bytes]:
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(tests), str(tests / "helpers")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "fuzz", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def run_all(cases: Iterable[Case], count: int, done: Callable[[Case, Outcome], None]) -> None:
    """Run the cases in `count` processes at a time, and say of each how it ended, one after another."""
    waiting: Iterator[Case] = iter(cases)
    lock, stopped = threading.Lock(), threading.Event()

    def work() -> None:
        worker = Worker()
        try:
            while not stopped.is_set():
                with lock:
                    case = next(waiting, None)
                if case is None:
                    return
                outcome = worker.run(case)
                with lock:
                    if not stopped.is_set():
                        done(case, outcome)
        finally:
            worker.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
