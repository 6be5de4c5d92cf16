"""The share of active inputs up to which events should be faster: from constants, the same every time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from picojoule.kernels.event_driven import costs
from picojoule.kernels.event_driven.costs import break_even
from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.thread_count import threads

LARGE = Geometry(100, 1, 128, 256, (13, 13), (6, 6))
KINDS = (torch.float32, torch.bfloat16)


@pytest.fixture(autouse=True)
def _a_machine_with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions for bfloat16, but no tiles, whatever this machine has."""
    monkeypatch.setattr(costs, "cpu_has_bfloat16", lambda: True)
    monkeypatch.setattr(costs, "cpu_has_bfloat16_tiles", lambda: False)


@pytest.mark.parametrize("kind", KINDS)
def test_more_work_is_easier_to_save(kind: torch.dtype) -> None:
    shares = [break_even(replace(LARGE, images=images), kind) for images in (1, 4, 16, 100)]
    assert shares == sorted(shares)
    assert 0.2 < shares[-1] < 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_with_little_work_is_dense(kind: torch.dtype) -> None:
    for shape in (replace(LARGE, outputs=10, kernel=(1, 1)), Geometry(1, 1, 512, 512, (1, 1), (1, 1))):
        assert break_even(shape, kind) == 0


def test_products_cost_more_than_sums_and_a_block_that_is_half_empty_costs_like_a_full_one() -> None:
    assert break_even(LARGE, torch.float32, valued=True) < break_even(LARGE, torch.float32)
    assert break_even(replace(LARGE, outputs=257), torch.float32) < break_even(LARGE, torch.float32)


def test_fast_dense_products_are_hard_to_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for native, tiles in ((False, False), (True, False), (True, True)):
        monkeypatch.setattr(costs, "cpu_has_bfloat16", lambda native=native: native)
        monkeypatch.setattr(costs, "cpu_has_bfloat16_tiles", lambda tiles=tiles: tiles)
        shares.append(break_even(LARGE, torch.bfloat16))
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.1


def test_threads_share_the_work_but_not_the_call() -> None:
    small = replace(LARGE, images=1, outputs=64, kernel=(3, 3))
    shares = []
    for count in (1, 2, 8):
        with threads(count):
            shares.append(break_even(small, torch.float32))
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]
