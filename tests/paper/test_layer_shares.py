"""Shares of the energy by layer at a tenth of it, of made-up runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import synthetic
from picojoule import report
from picojoule.paper.layer_shares import by_layer


def test_shares_and_what_is_left(tmp_path: Path) -> None:
    synthetic.fill(tmp_path, synthetic.recipes(powers=[1], strengths=(0, 8, 64, 512, 1024), epochs=1))
    (group,) = report.run_groups(report.gather(tmp_path))
    found = by_layer(group, group.curves)
    (sheet,) = found.tables.values()
    *layers, whole = sheet.rows
    assert [row[0] for row in layers] == list(synthetic.LAYERS)
    assert [column.title.split(",")[1] for column in sheet.columns[2::2]] == [" Ω_syn", " Ω_total", " Ω_balance"]
    for index in (1, *range(2, len(sheet.columns), 2)):
        assert sum(float(row[index]) for row in layers) == pytest.approx(1)  # type: ignore[arg-type] # numbers
    for share in range(2, len(sheet.columns), 2):
        left = float(whole[share + 1])  # type: ignore[arg-type]
        assert 0.05 <= left <= 0.2
        for row in layers:  # share after = share before · left of the layer / left of all
            assert row[share] == pytest.approx(row[1] * row[share + 1] / left)  # type: ignore[operator]
    assert set(found.figures) == {"layers-at-10"}
    found.figures["layers-at-10"].to_dict()


def test_without_a_strength_near_a_tenth_nothing_is_shown(tmp_path: Path) -> None:
    synthetic.fill(tmp_path, synthetic.recipes(powers=[1], strengths=(0, 1), epochs=1))
    (group,) = report.run_groups(report.gather(tmp_path))
    assert not by_layer(group, group.curves).tables
