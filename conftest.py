"""What every test, doctest and README example runs under."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# Several workers share the cores, and sums over threads would depend on how many there are.
torch.set_num_threads(1)

# A busy machine must not fail a test: no deadlines, no complaint about slow generation.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"]).pytest()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same random state, whichever worker runs it and in whatever order."""
    torch.manual_seed(0)
