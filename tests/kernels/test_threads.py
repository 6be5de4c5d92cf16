"""The threads of PyTorch's OpenMP library: the bits of one, whoever interrupts, forks or calls at the same time."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from numba import cfunc, types
from torch import Tensor

from alarm import Alarm, Rang
from picojoule.kernels import fused, fused_loops, jit
from picojoule.kernels import threads as openmp
from picojoule.kernels.thread_count import threads
from picojoule.neurons.spike import spike
from picojoule.neurons.surrogate import S3NN

PASSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "s3nn": lambda grad, u: fused.times_s3nn(grad, u, 1.0, 0.25, 0.6),
    "sigmoid": lambda grad, u: fused.times_sigmoid(grad, u, 1.0, 0.25),
    "triangle": lambda grad, u: fused.times_triangle(grad, u, 1.0),
    "drop": lambda grad, u: fused.drop(grad, 5, 1 << 30, 1.25),
}
BLOCK = openmp.BLOCK
SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 17)

with_openmp = pytest.mark.skipif(openmp._parallel() is None, reason="PyTorch has no OpenMP library that can be asked")
every_pass = pytest.mark.parametrize("name", PASSES)
both_kinds = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Tensor]], Tensor]:
    """Takes a pass on the calling thread, as where there is no OpenMP library."""

    def take(work: Callable[[], Tensor]) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(openmp, "_parallel", lambda: None)
            return work()

    return take


def drawn(size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(size)
    return tuple(torch.randn(size, generator=source).add(k).to(dtype) for k in (0.0, 0.5))  # type: ignore[return-value]


def bits(x: Tensor) -> bytes:
    """In the order of the memory."""
    return fused_loops._flat(x).tobytes()


# --- The same bits ---------------------------------------------------------------------------------------------------


@both_kinds
@every_pass
def test_the_bits_are_those_of_one_thread(
    name: str, dtype: torch.dtype, alone: Callable[[Callable[[], Tensor]], Tensor]
) -> None:
    for size in SIZES:
        grad, u = drawn(size, dtype)
        expected = alone(lambda: PASSES[name](grad, u))  # noqa: B023  # called at once
        for count in (1, 2, 3):
            with threads(count):
                assert bits(PASSES[name](grad, u)) == bits(expected), (size, count)


@both_kinds
@every_pass
def test_in_channels_last(name: str, dtype: torch.dtype, alone: Callable[[Callable[[], Tensor]], Tensor]) -> None:
    grad, u = (
        x.view(2, 40, 45, 64).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        for x in drawn(2 * 64 * 40 * 45, dtype)
    )
    with threads(2):
        shared = PASSES[name](grad, u)
    assert shared.stride() == grad.stride()
    assert bits(shared) == bits(alone(lambda: PASSES[name](grad, u)))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_written_around_the_result(count: int) -> None:
    for size in SIZES:
        x = np.full(size, 3, dtype=np.float32)
        out = np.full(size + 2 * 64, 7, dtype=np.float32)
        with threads(count):
            arrays = (x.ctypes.data, out[64:].ctypes.data)
            openmp.run_on_threads(fused_loops.drop, types.float32, arrays, (5, 0, 0, 2), size)
        assert out.tolist() == [7] * 64 + [6] * size + [7] * 64


@with_openmp
def test_as_many_threads_are_asked_as_pytorch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = openmp._parallel(), []
    assert found is not None

    def noted(function: int, task: object, count: int, flags: int) -> None:
        asked.append(count)
        found(function, task, count, flags)

    monkeypatch.setattr(openmp, "_parallel", lambda: noted)
    for size in SIZES:
        grad, u = drawn(size)
        for count in (1, 2, 3):
            with threads(count):
                PASSES["triangle"](grad, u)
    assert asked == [2, 3] * sum(size > BLOCK for size in SIZES)


@pytest.mark.skipif(
    not (sys.platform.startswith("linux") and torch.backends.openmp.is_available()), reason="another OpenMP library"
)
def test_the_library_of_pytorch_is_found() -> None:
    assert openmp._parallel() is not None


def test_where_there_is_no_library_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str | None) -> object:
        if name is None:
            raise TypeError  # as on Windows
        return object()

    monkeypatch.setattr(ctypes, "CDLL", nothing)
    assert openmp._parallel.__wrapped__() is None
    monkeypatch.setattr(torch.backends.openmp, "is_available", lambda: False)
    assert openmp._parallel.__wrapped__() is None


# --- Many callers ----------------------------------------------------------------------------------------------------


def test_from_several_python_threads_at_once() -> None:
    tasks = [(name, drawn(2 * BLOCK + k)) for k in range(4) for name in PASSES]
    expected = [bits(PASSES[name](*inputs)) for name, inputs in tasks]

    def work(start: int) -> bool:
        order = [(start + k) % len(tasks) for k in range(2 * len(tasks))]
        return all(bits(PASSES[tasks[k][0]](*tasks[k][1])) == expected[k] for k in order)

    with threads(2), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_a_backward_pass_in_another_thread(alone: Callable[[Callable[[], Tensor]], Tensor]) -> None:
    grad, u = drawn(2 * BLOCK + 5)

    def backward() -> Tensor:
        potential = u.clone().requires_grad_()
        (slope,) = torch.autograd.grad(spike(potential, 1.0, S3NN()), potential, grad)
        return slope

    expected = bits(alone(backward))
    with threads(2), ThreadPoolExecutor(1) as pool:
        assert bits(pool.submit(backward).result()) == expected


# --- Interruptions ---------------------------------------------------------------------------------------------------

with_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such timer")


@with_timers
@pytest.mark.slow
def test_no_interruption_is_lost_and_what_returns_is_complete() -> None:
    delays, alarm, caught = random.Random(0), Alarm(), 0
    grad, u = drawn(3 * BLOCK + 17)
    expected = {name: bits(work(grad, u)) for name, work in PASSES.items()}
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        with threads(2):
            enough = time.monotonic() + 5  # thousands of calls on an idle machine, and always some
            for turn in range(20_000):
                for name, work in PASSES.items():
                    result = None
                    signal.setitimer(signal.ITIMER_REAL, delays.uniform(1e-5, 2e-3))
                    try:
                        alarm.armed = True
                        result = work(grad, u)
                        alarm.armed = False
                    except Rang:
                        caught += 1
                    assert result is None or bits(result) == expected[name]
                assert caught == alarm.rung
                if caught >= 20 and (turn >= 1000 or time.monotonic() > enough):
                    break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught >= 20


WHILE_COMPILING = """
import signal
import torch
from alarm import Alarm, Rang
from picojoule.kernels import fused

alarm, caught, result = Alarm(), 0, None
signal.signal(signal.SIGALRM, alarm)
x = torch.ones(1 << 18)
while result is None:
    signal.setitimer(signal.ITIMER_REAL, 0.005 * 1.1**caught)  # ever later, so that an end is reached on any machine
    try:
        alarm.armed = True
        result = fused.drop(x, 5, 0, 2.0)
        alarm.armed = False
    except Rang:
        caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert result.unique().tolist() == [2.0]
print(alarm.rung, caught)
"""


@pytest.mark.slow
@with_timers
def test_no_interruption_is_lost_while_the_compiler_is_at_work(tmp_path: Path) -> None:
    finished = python(WHILE_COMPILING, NUMBA_CACHE_DIR=str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    assert "Exception ignored" not in finished.stderr
    rung, caught = map(int, finished.stdout.split())
    assert rung == caught > 0


@pytest.mark.slow
def test_no_machine_code_knows_of_python() -> None:
    kernels = [getattr(fused_loops, name) for name in ("times_s3nn", "times_sigmoid", "times_triangle", "drop")]
    signatures = [openmp._signature(element) for element in (types.float32, types.uint16)]
    functions = [(kernel, signature) for kernel in kernels for signature in signatures]
    for function, signature in [(openmp._take_blocks, openmp._TASK), *functions]:
        code = cfunc(signature, **jit._FOR_MACHINE_CODE)(function).inspect_llvm()
        called = set(re.findall(r"@([\w.]+)\(", code))
        assert all(function.__name__ in name or name.startswith("llvm.") for name in called), called


# --- Forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_goes_on_alone() -> None:
    grad, u = drawn(3 * BLOCK + 17)
    with threads(2):
        expected = {name: bits(work(grad, u)) for name, work in PASSES.items()}  # with its threads alive
        child = os.fork()
        if child == 0:  # where PyTorch's own operators would wait for ever for threads that are not there
            same = False
            try:
                same = all(bits(work(grad, u)) == expected[name] for name, work in PASSES.items())
            finally:
                os._exit(0 if same else 1)
        assert ended(child) == 0
        assert {name: bits(work(grad, u)) for name, work in PASSES.items()} == expected


def ended(child: int, limit: float = 120) -> int:
    """The child's exit status, negative if it had to be killed."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_a_sweep_forks_its_workers_before_they_could_be_told_to_go_on_alone() -> None:
    """The server that the workers are forked from imports the backend, and with it everything else but `threads`."""
    finished = python(
        "import sys, picojoule.search.sweep.local_backend; print('picojoule.kernels.threads' in sys.modules)"
    )
    assert finished.stdout.strip() == "False", finished.stderr


# --- Machine code on disk --------------------------------------------------------------------------------------------


def test_machine_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    first, second = (jit._compile(openmp._take_blocks, openmp._TASK) for _ in range(2))
    assert (first.cache_hits, second.cache_hits) == (0, 1)


def test_machine_code_that_cannot_be_kept_is_made_all_the_same() -> None:
    names: dict[str, Callable[..., None]] = {}
    exec("def increase(counter):\n    counter[0] += 1", names)  # of no file, beside which it could be kept
    counter = ctypes.c_int64(41)
    address = jit.entry(names["increase"], types.void(types.CPointer(types.int64)))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(counter))
    assert counter.value == 42


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
