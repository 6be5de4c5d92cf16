"""Memory that a training step frees is there for the next one, and the system's again after training."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from picojoule.memory import kept_memory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is glibc on Linux only")

MIB = 1 << 20
PAGES = 256 * MIB // resource.getpagesize()


def faults() -> int:
    """Pages that come in while some hundred MiB are filled and freed, in pieces large and small, after a few times of the same."""

    def step() -> None:
        tensors = [torch.ones(size * MIB // 4) for size in (256, 48, 48, 24, 24, 24, 24)]
        del tensors

    for _ in range(3):  # until the heap has found its shape
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_a_second_step_costs_no_page() -> None:
    with kept_memory():
        kept = faults()
    assert kept < PAGES / 20 < PAGES / 4 < faults()


def test_memory_goes_back_when_the_block_ends() -> None:
    with kept_memory():
        faults()
        held = resident()
    assert resident() < held - 64 * MIB


def test_also_when_it_fails() -> None:
    with pytest.raises(KeyError), kept_memory():
        raise KeyError
    assert faults() > PAGES / 4
