"""Processes of one run agree on numbers."""

from __future__ import annotations

import pytest
from lightning_fabric import Fabric

import processes
from picojoule.training.distributed import all_reduced


def test_one_process_keeps_its_numbers() -> None:
    values = [True, 0.1 + 0.2]
    assert all_reduced(Fabric(accelerator="cpu", devices=1), *values) == values


@pytest.mark.slow
def test_two_processes_get_the_sums_of_both() -> None:
    stop, total, large = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn").launch(processes.sums)
    assert (stop, total) == (1, 2.0)
    assert large == pytest.approx(1e30)
