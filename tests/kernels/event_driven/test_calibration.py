"""The activity up to which events are faster: from times that are given, kept in the user's cache folder."""

from __future__ import annotations

import json
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


def times(monkeypatch: pytest.MonkeyPatch, fixed: float, by_activity: float, dense: float = 1.0) -> None:
    """What measurements find: both ways' times, by events with a part that grows with the activity."""
    monkeypatch.setattr(measurement, "_seconds", lambda layer, density: (dense, fixed + by_activity * density))


def measured(valued: bool = False) -> float:
    return measurement.measured_break_even(SHAPE, torch.float32, valued=valued)


def test_where_the_lines_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, 0.1, 3.5)  # at 25.7 %
    assert measured() == pytest.approx(0.25)


def test_noise_seldom_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for dense in (1.0, 1.1, 1.2, 1.3):
        times(monkeypatch, 0.1, 3.5, dense)
        found.add(measured())
    assert len(found) == 1


def test_never_and_as_often_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    for fixed, by_activity, expected in ((1.2, 3.0, 0.0), (1.2, 0.0, 0.0), (0.5, 0.0, 0.5), (0.1, 0.1, 0.5)):
        times(monkeypatch, fixed, by_activity)
        assert measured() == expected


def test_what_is_found_is_tried_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A curve that bends upwards, or a disturbance, lets the line promise too much."""
    monkeypatch.setattr(measurement, "_seconds", lambda layer, density: (1.0, 0.1 + 20 * density**2))
    assert measured() == pytest.approx(0.125 * 2**0.5)
    assert 0.1 + 20 * measured() ** 2 <= 1


def test_small_layers_are_dense_without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_seconds", lambda layer, density: 1 / 0)
    assert calibration.break_even(Geometry(100, 1, 64, 10, (6, 6), (1, 1)), torch.float32) == 0


def test_it_is_measured_once_for_machine_and_shape(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    times(monkeypatch, 0.1, 3.5)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    monkeypatch.setattr(calibration, "_known", {})  # another process
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    times(monkeypatch, 1.2, 3.5)
    assert calibration.break_even(SHAPE, torch.bfloat16) == 0
    assert calibration.break_even(SHAPE, torch.float32, valued=True) == 0
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"break_even": 7}', "\x00\xff"])
def test_a_damaged_file_is_measured_anew(damage: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    times(monkeypatch, 0.1, 3.5)
    calibration.break_even(SHAPE, torch.float32)
    times(monkeypatch, 1.2, 3.5)
    (path,) = cache.iterdir()
    path.write_text(damage, encoding="utf-8")
    monkeypatch.setattr(calibration, "_known", {})
    assert calibration.break_even(SHAPE, torch.float32) == 0
    assert json.loads(path.read_text("utf-8"))["break_even"] == 0


def test_the_figures_of_another_machine_are_not_used(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    times(monkeypatch, 0.1, 3.5)
    calibration.break_even(SHAPE, torch.float32)
    times(monkeypatch, 1.2, 3.5)
    monkeypatch.setattr(calibration, "_known", {})
    other = {**calibration._machine(), "processor": "another"}
    monkeypatch.setattr(calibration, "_machine", lambda: other)
    assert calibration.break_even(SHAPE, torch.float32) == 0
    assert len(list(cache.iterdir())) == 2


def test_where_nothing_can_be_written_it_is_measured_in_every_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "picojoule").write_text("in the way", encoding="utf-8")
    times(monkeypatch, 0.1, 3.5)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)
    assert calibration.break_even(SHAPE, torch.float32) == pytest.approx(0.25)


@pytest.mark.parametrize(("kind", "valued"), [(torch.float32, False), (torch.bfloat16, True)])
@pytest.mark.slow
def test_the_measurement_runs(kind: torch.dtype, valued: bool) -> None:
    assert 0 <= calibration.break_even(Geometry(4, 2, 32, 64, (12, 12), (3, 3)), kind, valued=valued) <= 0.5
