"""Numba is needed only where an engine is made, and what is missing is said in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None  # importing them fails
import torch
import picojoule as pj
from picojoule.deploy import convert, events, export
from picojoule.deploy.events import compilation, engine, lowering
net = torch.nn.Sequential(torch.nn.Linear(4, 3), pj.Spike(), torch.nn.Linear(3, 2))
try:
    events.compile(net, torch.zeros(1, 4))
except pj.PicojouleError as missing:
    print(missing)
"""


@pytest.mark.slow
def test_the_missing_extra_is_named() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == (
        "the event engine needs the package numba: install it with `pip install 'picojoule[events]'`\n"
    )
