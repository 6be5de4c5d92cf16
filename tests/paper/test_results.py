"""Tables from runs whose results are known: made up here, not trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from picojoule.paper import SCALES, find, published
from picojoule.paper.context import Context
from picojoule.paper.curves import Tradeoff
from picojoule.paper.experiments import Ablation
from picojoule.recipe import Recipe
from picojoule.runs import folder as record
from picojoule.runs.folder import Run
from picojoule.runs.result import RunResult, SplitResult
from picojoule.search import tradeoff

Make = Callable[[Recipe], dict[str, float]]
SPREAD = (-1, 0, 1)
"""Three seeds with this times d have the sample standard deviation d."""


def pretend(folder: Path, recipes: tuple[Recipe, ...], make: Make) -> Context:
    for recipe in recipes:
        run = Run(folder / recipe.name)
        run.path.mkdir(parents=True)
        run.write_text("recipe.toml", recipe.to_toml())
        measured: dict[str, Any] = tiny.figures() | make(recipe)
        run.write_text("result.json", json.dumps({"test": measured, "validation": measured}))
    return Context(SCALES["full"], folder, print)


def unchecked(path: Path) -> RunResult:
    content = json.loads(path.read_text())
    return RunResult.model_construct(**{split: SplitResult.model_construct(**content[split]) for split in content})


@pytest.mark.parametrize("name", ["ablation-vgg11-adam", "ablation-resnet18-msgd"])
def test_the_papers_own_numbers_make_the_papers_own_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As rounded in print, a spread may be wider than any three seeds can have, such as a rate of 0.001 ± 0.002 %.
    monkeypatch.setattr(record, "read_result", unchecked)
    experiment = find(name).experiment
    assert isinstance(experiment, Ablation)
    rows = {row.setting: row for row in published.ablation(experiment.label)}

    def printed(recipe: Recipe) -> dict[str, float]:
        row = rows[recipe.penalty.strength, recipe.optimizer.weight_decay, recipe.optimizer.decay_batch_norm]
        measures = {"accuracy": row.accuracy, "joules": row.energy, "dead_rate": row.dead_rate, "rate_mean": row.rate}
        return {key: mean + SPREAD[recipe.seed] * (deviation or 0) for key, (mean, deviation) in measures.items()}

    context = pretend(tmp_path, experiment.recipes(SCALES["full"]), printed)
    tables = experiment.results(context).tables
    for sheet in tables.values():
        assert len(sheet.rows) == len(rows)
        for row in sheet.rows:
            for ours, paper, difference in (row[3:6], row[6:9]):
                assert ours == pytest.approx(paper)
                assert difference == pytest.approx(0, abs=1e-12)


def test_nothing_is_compared_with_a_misprint(tmp_path: Path) -> None:
    experiment = find("ablation-cnn7-adam").experiment
    context = pretend(tmp_path, experiment.recipes(SCALES["full"]), lambda recipe: {"accuracy": 0.9, "joules": 1e-6})
    rows = experiment.results(context).tables["energy"].rows
    assert all(row[5] == row[8] == "" for row in rows)
    assert str(rows[0][4]) == "89.14 ± 0.16 †"
    assert {str(row[4])[-1:] for row in rows} == {"†", ""}  # some settings of this grid are in the misprinted one


def test_a_run_that_is_missing_leaves_a_blank(tmp_path: Path) -> None:
    experiment = find("ablation-cnn7-msgd").experiment
    recipes = experiment.recipes(SCALES["full"])
    context = pretend(tmp_path, recipes[:6], lambda recipe: {"accuracy": 0.9, "joules": 1e-6})
    rows = experiment.results(context).tables["energy"].rows
    assert rows[1][3] != ""
    assert rows[2][3] == rows[2][5] == ""
    assert rows[2][4] != ""


def test_scores_are_those_of_the_curve_and_stand_beside_the_papers(tmp_path: Path) -> None:
    experiment = find("tradeoff-cnn7-adam").experiment
    assert isinstance(experiment, Tradeoff)

    def made_up(recipe: Recipe) -> dict[str, float]:
        strength = recipe.penalty.strength
        return {"joules": 2e-6 / (1 + strength / 8) + recipe.seed * 1e-9, "accuracy": 0.9 / (1 + strength / 2000)}

    scale = SCALES["full"]
    recipes = (*experiment.baseline(scale), *experiment.curve(scale, "total", 1))
    context = pretend(tmp_path, recipes, made_up)
    found = experiment.results(context)
    base = sum(made_up(recipe)["joules"] for recipe in experiment.baseline(scale)) / 3
    points = [made_up(recipe) for recipe in experiment.curve(scale, "total", 1)]
    energy, accuracy = [point["joules"] / base for point in points], [point["accuracy"] for point in points]
    by_label = {row[0]: row for row in found.tables["auc"].rows}
    assert list(by_label) == list(published.scores(experiment.label))
    label, number, auc70, paper70, difference70, *_ = by_label["Ω_total (p = 1)"]
    assert (label, number, paper70) == ("Ω_total (p = 1)", 42, 0.6330)
    assert auc70 == pytest.approx(tradeoff.auc(energy, accuracy, 70))
    assert difference70 == pytest.approx(auc70 - 0.6330)  # type: ignore[operator] # a number, as was just seen
    assert by_label["Ω_syn (p = 1)"][:5] == ("Ω_syn (p = 1)", 0, None, 0.6802, None)
    assert len(found.tables["points"].rows) == 15
