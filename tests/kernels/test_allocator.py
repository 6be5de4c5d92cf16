"""Memory that a training step frees is there for the next one, and the system's again after training."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is glibc on Linux only")

MEASURING = """
import torch
from picojoule.kernels.allocator import retain_freed_memory

MIB = 1 << 20

def resident():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))

def grown_after(*sizes):
    before = resident()
    tensors = [torch.ones(size * MIB // 4) for size in sizes]
    assert resident() > before + 0.9 * sum(sizes)
    del tensors
    return resident() - before

torch.ones(8)
"""


def megabytes(script: str) -> list[int]:
    """The figures that a script prints, in a process of its own: what others have freed before would be taken first."""
    told = subprocess.run([sys.executable, "-c", MEASURING + script], capture_output=True, text=True, check=True)
    return [int(figure) for figure in told.stdout.split()]


@pytest.mark.slow
def test_freed_memory_stays_until_the_block_ends() -> None:
    inside, after = megabytes("""
before = resident()
with retain_freed_memory():
    print(grown_after(256, 48, 48))
print(resident() - before)
""")
    assert inside > 0.9 * 352
    assert after < 100


@pytest.mark.slow
def test_outside_it_goes_back_at_once_also_after_a_failure() -> None:
    before, after = megabytes("""
print(grown_after(256, 256))
try:
    with retain_freed_memory():
        raise KeyError
except KeyError:
    print(grown_after(256, 256))
""")
    assert before < 100
    assert after < 100
