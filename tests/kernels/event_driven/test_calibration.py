"""The activity up to which events are faster: from times that are given, kept in the user's cache folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from picojoule.kernels.event_driven import calibration, measurement
from picojoule.kernels.event_driven.geometry import Geometry

SHAPE = Geometry(100, 1, 64, 64, (12, 12), (3, 3))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "_known", {})
    return tmp_path / "picojoule" / "kernels"


def times(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """What the next measurement finds: by events at both densities, then dense."""
    given: Iterator[float] = iter(seconds)
    monkeypatch.setattr(measurement, "_seconds", lambda work, x: next(given))


def measured(monkeypatch: pytest.MonkeyPatch, sparser: float, denser: float, dense: float) -> float:
    times(monkeypatch, sparser, denser, dense)
    return calibration.on_the_grid(measurement.measured_break_even(SHAPE, torch.float32))


def test_where_the_lines_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 ms + 50 ms · activity meets 13.5 ms at 25 %
    assert measured(monkeypatch, 2e-3, 7e-3, 13.6e-3) == pytest.approx(0.25)


def test_noise_seldom_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({measured(monkeypatch, 2e-3, 7e-3, dense) for dense in (14e-3, 15e-3, 16e-3, 17e-3)}) == 1


def test_never_and_always(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, 5e-3, 9e-3, 2e-3) == 0
    assert measured(monkeypatch, 5e-3, 5e-3, 9e-3) == 1
    assert measured(monkeypatch, 5e-3, 5e-3, 4e-3) == 0


def test_small_layers_are_dense_without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch)
    assert calibration.break_even(Geometry(100, 1, 64, 10, (6, 6), (1, 1)), torch.float32) == 0


def test_it_is_measured_once_for_machine_and_shape(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    times(monkeypatch, 2e-3, 7e-3, 13.6e-3)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    monkeypatch.setattr(calibration, "_known", {})  # another process
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    times(monkeypatch, 5e-3, 9e-3, 2e-3)
    assert calibration.break_even(SHAPE, torch.bfloat16) == 0
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"break_even": 7}', "\x00\xff"])
def test_a_damaged_file_is_measured_anew(damage: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    times(monkeypatch, 2e-3, 7e-3, 13.6e-3, 5e-3, 9e-3, 2e-3)
    calibration.break_even(SHAPE, torch.float32)
    (path,) = cache.iterdir()
    path.write_text(damage, encoding="utf-8")
    monkeypatch.setattr(calibration, "_known", {})
    assert calibration.break_even(SHAPE, torch.float32) == 0
    assert json.loads(path.read_text("utf-8"))["break_even"] == 0


def test_the_figures_of_another_machine_are_not_used(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    times(monkeypatch, 2e-3, 7e-3, 13.6e-3, 5e-3, 9e-3, 2e-3)
    calibration.break_even(SHAPE, torch.float32)
    monkeypatch.setattr(calibration, "_known", {})
    other = {**calibration._machine(), "processor": "another"}
    monkeypatch.setattr(calibration, "_machine", lambda: other)
    assert calibration.break_even(SHAPE, torch.float32) == 0
    assert len(list(cache.iterdir())) == 2


def test_where_nothing_can_be_written_it_is_measured_in_every_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "picojoule").write_text("in the way", encoding="utf-8")
    times(monkeypatch, 2e-3, 7e-3, 13.6e-3)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_measurement_runs(kind: torch.dtype) -> None:
    assert 0 <= calibration.break_even(Geometry(4, 2, 32, 64, (12, 12), (3, 3)), kind) <= 1
