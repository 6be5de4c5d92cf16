"""The demonstration, also where nothing can be downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
from picojoule.cli import demo
from picojoule.search.sweep import Failure, Outcome


@pytest.mark.slow
def test_without_a_network_it_takes_the_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise pj.PicojouleError("fashion-mnist could not be fetched: go online")

    def in_seconds(name: str, strength: float) -> pj.Recipe:
        recipe = asked_for(name, strength)
        assert len(recipe.data.load().train) == recipe.data.limit
        return recipe.with_values(data={"limit": 20, "limit_test": 20}, training={"epochs": 1})

    asked_for = demo._recipe
    monkeypatch.setattr(demo.datasets, "fetch", unreachable)
    monkeypatch.setattr(demo, "_recipe", in_seconds)
    said: list[str] = []
    compared = demo.demo(tmp_path, progress=lambda *_: None, say=said.append)
    assert said[0] == "fashion-mnist could not be fetched: go online; taking scikit-learn's digits instead"
    assert "digits" in compared.title
    assert (tmp_path / "report.html").exists()
    assert sorted(run.recipe.penalty.strength for run in map(pj.Run.at, (tmp_path / "runs").iterdir())) == [0, 16]


def test_a_failure_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(recipes: list[pj.Recipe], into: Path) -> Outcome:
        return Outcome((), (Failure(recipes[0], "the disk is full"),))

    monkeypatch.setattr(demo, "_data_set", lambda *_: "digits")
    monkeypatch.setattr(demo.sweep, "run", failing)
    with pytest.raises(pj.PicojouleError, match="the demonstration could not be finished: the disk is full"):
        demo.demo(tmp_path, progress=lambda *_: None, say=lambda _: None)
