"""Memory that a training step frees is there for the next one, and the system's again after training."""

from __future__ import annotations

import ctypes
import sys

import pytest
import torch

from picojoule.memory import kept_memory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is glibc on Linux only")

MIB = 1 << 20


@pytest.fixture(autouse=True)
def without_leftovers() -> None:
    """What tests before this one freed, and the process still holds, would be taken first."""
    ctypes.CDLL(None).malloc_trim(0)


def resident() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def held_after(*sizes: int) -> int:
    """Bytes by which the process has grown once tensors of so many MiB are filled and freed."""
    before = resident()
    tensors = [torch.ones(size * MIB // 4) for size in sizes]
    assert resident() > before + 0.9 * sum(sizes) * MIB
    del tensors
    return resident() - before


def test_freed_memory_stays_until_the_block_ends() -> None:
    before = resident()
    with kept_memory():
        assert held_after(256, 48, 48) > 0.9 * 352 * MIB
    assert resident() < before + 100 * MIB


def test_outside_it_goes_back_at_once() -> None:
    assert held_after(256, 256) < 100 * MIB


def test_also_after_a_failure() -> None:
    with pytest.raises(KeyError), kept_memory():
        raise KeyError
    assert held_after(256, 256) < 100 * MIB
