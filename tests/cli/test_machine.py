"""`picojoule doctor` names what is there and gives, for everything that is missing, the command that gets it."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch

import picojoule as pj
from command_line import Command
from picojoule import data
from picojoule.io.extras import EXTRA_OF


def test_every_extra_and_every_data_set_is_named(command: Command) -> None:
    status, out, _ = command("doctor", "--json")
    found = json.loads(out)
    assert status == 0
    assert set(found["extras"]) == set(EXTRA_OF.values())
    assert set(found["data"]) == set(data.DATASETS)
    assert found["versions"]["picojoule"] == pj.__version__
    assert found["versions"]["PyTorch"] == torch.__version__


def test_a_missing_package_comes_with_the_command_that_installs_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nir" else known(name))
    assert json.loads(command("doctor", "--json")[1])["extras"]["nir"] == ["nir"]
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = command("doctor")
    assert "lacks nir" in out
    assert "pip install 'picojoule[nir]'" in out


def test_at_80_columns_nothing_is_cut(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = command("doctor")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
