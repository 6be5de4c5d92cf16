"""The demonstration, also where nothing can be downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
from picojoule.cli import demo


@pytest.mark.slow
def test_without_a_network_it_takes_the_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise pj.PicojouleError("fashion-mnist could not be fetched: go online")

    def in_seconds(recipe: pj.Recipe, folder: Path, reporters: Any) -> pj.Run:
        assert len(recipe.data.load().train) == recipe.data.limit
        return pj.fit(recipe.with_values(data={"limit": 20, "limit_test": 20}, training={"epochs": 1}), folder)

    monkeypatch.setattr(demo.datasets, "fetch", unreachable)
    monkeypatch.setattr(demo, "fit", in_seconds)
    said: list[str] = []
    compared = demo.demo(tmp_path, progress=lambda *_: None, say=said.append)
    assert said[0] == "fashion-mnist could not be fetched: go online; taking scikit-learn's digits instead"
    assert "digits" in compared.title
    assert (tmp_path / "report.html").exists()
