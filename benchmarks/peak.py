"""Peak memory, each contestant in a fresh process (Linux)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

M_MMAP_THRESHOLD = -3
"""The number in glibc's <malloc.h>."""
Build = Callable[..., Callable[[], object]]


def growth(build: Build, *arguments: Any, warmup: int = 0) -> int:
    """Bytes by which one run raises the memory of a process that has built the contestant already, and warmed it up."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_growth, build, arguments, warmup).result()


def _growth(build: Build, arguments: tuple[Any, ...], warmup: int) -> int:
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)  # each large piece goes back as soon as it is freed
    run = build(*arguments)
    for _ in range(warmup):
        run()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of everything before
    before = memory("VmRSS")
    run()
    return memory("VmHWM") - before


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
