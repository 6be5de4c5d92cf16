"""Curves, their baseline and their scores, recomputed from the files themselves."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picojoule as pj
import synthetic
from picojoule.io.tables import Estimate
from picojoule.report import Curve, Point, curves, gather, mean_table, run_groups, score, score_table, seed_table
from picojoule.report.scores import score_names
from picojoule.search.frontier import Plan, recipes

STRENGTHS = (0, 1, 16, 256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("runs")
    synthetic.fill(into, synthetic.recipes(strengths=STRENGTHS, seeds=(0, 1, 2), epochs=2))
    synthetic.fill(
        into / "sgd",
        synthetic.recipes(powers=[1], strengths=STRENGTHS, seeds=[0], epochs=2, overrides=["optimizer.name=sgd"]),
    )
    return into


def stored(folder: Path) -> list[tuple[pj.Recipe, dict[str, Any]]]:
    return [
        (pj.Recipe.load(path.with_name("recipe.toml")), json.loads(path.read_text())["test"])
        for path in sorted(folder.glob("*/result.json"))
    ]


def test_a_curve_is_relative_to_the_mean_of_the_baseline_over_seeds(folder: Path) -> None:
    runs = stored(folder)
    baseline = np.mean([test["joules"] for recipe, test in runs if recipe.penalty.strength == 0])
    expected = defaultdict(list)
    for recipe, test in runs:
        if recipe.penalty.strength:
            label = f"Ω_{recipe.penalty.kind} (p = {recipe.penalty.p:g})"
            expected[label].append((test["joules"] / baseline, test["accuracy"], recipe.penalty.strength, recipe.seed))
    found = curves(gather(folder))["cnn7 · fashion-mnist · adam"]
    assert [curve.label for curve in found] == [
        f"Ω_{kind} (p = {p})" for kind in ("syn", "total", "balance") for p in (1, 2)
    ]
    for curve in found:
        points = [(point.energy, point.accuracy, point.strength, point.seed) for point in curve.points]
        assert len(points) == 9
        assert np.array(sorted(points)) == pytest.approx(np.array(sorted(expected[curve.label])))
        assert [point.seed for point in curve.baseline] == [0, 1, 2]
        assert np.mean([point.energy for point in curve.baseline]) == pytest.approx(1)
        assert [point.strength for point in curve.points] == sorted(point.strength for point in curve.points)


def test_a_setting_is_all_but_penalty_and_seed(folder: Path) -> None:
    adam, sgd = run_groups(gather(folder))
    assert (adam.label, adam.slug) == ("cnn7 · fashion-mnist · adam", "cnn7-fashion-mnist-adam")
    assert (len(adam.entries), len(sgd.entries)) == (57, 10)
    differing = {key for key in adam.recipe if adam.recipe[key] != sgd.recipe[key]}
    assert differing == {"optimizer.name"}
    assert not {"seed", "penalty.kind", "penalty.p", "penalty.strength"} & adam.recipe.keys()
    assert adam.recipe["penalty.schedule"] == "linear"


def test_budgets_and_frontiers_are_curves_beside_that_of_fixed_strengths(tmp_path: Path) -> None:
    plain = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0], seeds=[0, 1], epochs=4)
    fixed = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[8], seeds=[0, 1], epochs=4)
    budgets = [recipe.override(f"penalty.budget={b}") for b in ("10%", "50%", "1uJ") for recipe in plain]
    walks = [recipes(recipe, Plan(points=4, stretch=1)) for recipe in plain]
    synthetic.fill(tmp_path, [*fixed, *budgets, *(point for walk in walks for point in walk)])
    (group,) = run_groups(gather(tmp_path))
    assert len(group.baseline) == 2
    curves = {curve.kind: curve for curve in group.curves}
    assert list(curves) == ["Ω_syn", "Ω_syn budget", "Ω_syn frontier"]
    assert [curve.kind for curve in group.curves if curve.continued] == ["Ω_syn frontier"]
    assert {point.strength for point in curves["Ω_syn"].points} == {8}
    assert [point.strength for point in curves["Ω_syn frontier"].points] == [2, 2, 4, 4, 8, 8]
    told = [point.budget for point in curves["Ω_syn budget"].points]
    assert sorted(told) == sorted(2 * ["10 %", "50 %", "1 µJ"])
    assert told.index("50 %") < told.index("10 %")
    rows = list(csv.DictReader(io.StringIO(mean_table(group.curves).csv())))
    assert [row["strength"] for row in rows if row["penalty"] == "Ω_syn budget (p = 1)"] == list(dict.fromkeys(told))
    assert {row["seeds"] for row in rows} == {"2"}


def test_a_point_whose_frontier_is_not_there_is_a_setting_of_its_own(tmp_path: Path) -> None:
    (plain,) = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0], seeds=[0], epochs=2)
    chain = recipes(plain, Plan(points=3, stretch=1))
    synthetic.fill(tmp_path, [chain[0], chain[2]])
    assert len(run_groups(gather(tmp_path))) == 2


def test_frontiers_in_several_folders_are_several_curves(tmp_path: Path) -> None:
    (plain,) = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0], seeds=[0], epochs=2)
    for folder, schedule in (("frontier-steps", "steps"), ("ramp", "ramp")):
        synthetic.fill(tmp_path / folder, recipes(plain, Plan(points=3, stretch=1, schedule=schedule)))
    (group,) = run_groups(gather(tmp_path))
    assert [curve.kind for curve in group.curves] == ["Ω_syn frontier ramp", "Ω_syn frontier-steps"]
    assert all(curve.continued for curve in group.curves)


def test_a_baseline_counts_once_a_seed_whatever_its_idle_penalty(tmp_path: Path) -> None:
    baseline, penalised = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0, 8], seeds=[0], epochs=1)
    others = [baseline.override("seed=1"), baseline.override("penalty.kind=total")]
    runs = synthetic.fill(tmp_path, [baseline, penalised, *others])
    shutil.copytree(runs[1].path, tmp_path / "copy" / runs[1].path.name)
    (group,) = run_groups(gather(tmp_path))
    by_seed = defaultdict(list)
    for recipe, test in stored(tmp_path):
        if recipe.penalty.strength == 0:
            by_seed[recipe.seed].append(test["joules"])
    assert {seed: len(joules) for seed, joules in by_seed.items()} == {0: 2, 1: 1}
    assert group.baseline_joules == pytest.approx(np.mean([np.mean(joules) for joules in by_seed.values()]))
    (curve,) = group.curves
    assert len(curve.points) == 1  # the copy is the same run
    assert [point.seed for point in curve.baseline] == [0, 1]


def test_without_a_baseline_there_is_no_curve_unless_it_is_given(tmp_path: Path) -> None:
    synthetic.fill(tmp_path, synthetic.recipes(kinds=["syn"], powers=[1], strengths=[1, 8], seeds=[0], epochs=1))
    (group,) = run_groups(gather(tmp_path))
    assert (group.baseline_joules, group.curves, group.baseline) == (None, (), ())
    ((curve,),) = curves(gather(tmp_path), {group.label: 2e-6}).values()
    assert [point.energy for point in curve.points] == pytest.approx(
        [(point.joules or 0) / 2e-6 for point in curve.points]
    )


def test_a_baseline_that_never_fires_is_none(tmp_path: Path) -> None:
    recipes = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0, 8], seeds=[0], epochs=1)
    run, _ = synthetic.fill(tmp_path, recipes)
    result = json.loads((run.path / "result.json").read_text())
    result["test"]["joules"] = 0.0
    (run.path / "result.json").write_text(json.dumps(result))
    (group,) = run_groups(gather(tmp_path))
    assert group.baseline_joules is None


def test_networks_without_spikes_have_no_curve(tmp_path: Path) -> None:
    recipe = synthetic.recipes(strengths=[0], seeds=[0], epochs=1, overrides=["neuron.kind=relu"])[0]
    run = synthetic.write(tmp_path, recipe)
    result = json.loads((run.path / "result.json").read_text())
    for split in ("test", "validation"):
        result[split] |= dict.fromkeys(("joules", "synops", "rate_mean", "dead_rate")) | {"layers": []}
    (run.path / "result.json").write_text(json.dumps(result))
    (group,) = run_groups(gather(tmp_path))
    assert gather(tmp_path).counts["finished"] == 1
    assert (group.baseline_joules, group.curves) == (None, ())


def test_means_and_sample_deviations(folder: Path) -> None:
    (found,) = [c for label, c in curves(gather(folder)).items() if "adam" in label]
    rows = list(csv.DictReader(io.StringIO(mean_table(found).csv())))
    assert len(rows) == 1 + 6 * 3
    assert (rows[0]["penalty"], rows[0]["strength"], rows[0]["seeds"]) == ("none", "0", "3")
    for curve in found:
        for row in rows:
            if row["penalty"] == curve.label:
                same = [point for point in curve.points if point.strength == float(row["strength"])]
                for title, key in (("accuracy [%]", "accuracy"), ("energy / baseline [%]", "energy")):
                    values = 100 * np.array([getattr(point, key) for point in same])
                    assert float(row[title]) == pytest.approx(values.mean())
                    assert float(row[f"{title} ±"]) == pytest.approx(values.std(ddof=1))


def test_the_score_table_says_what_the_scores_are(folder: Path) -> None:
    (found,) = [c for label, c in curves(gather(folder)).items() if "adam" in label]
    sheet = score_table(found, cutoffs=(70, 99))
    rows = list(csv.DictReader(io.StringIO(sheet.csv())))
    assert [row["curve"] for row in rows] == [curve.label for curve in found]
    for row, curve in zip(rows, found, strict=True):
        energy, accuracy = curve.energies, curve.accuracies
        area, rank = pj.tradeoff.auc(energy, accuracy, 70), pj.tradeoff.spearman(energy, accuracy, 70)
        assert area is not None
        assert float(row["AUC(70) [%]"]) == pytest.approx(100 * area)
        assert float(row["Spearman(70)"]) == pytest.approx(rank)
        assert float(row["MI(70)"]) == pytest.approx(pj.tradeoff.mutual_information(energy, accuracy, 70))
        assert float(row["kNN MI(70)"]) == pytest.approx(pj.tradeoff.mutual_information_knn(energy, accuracy, 70))
        assert row["Spearman(99)"] == row["MI(99)"] == row["kNN MI(99)"] == "not defined"
        assert float(row["AUC(99) [%]"]) == 0
        assert list(score(curve, (70, 99))) == score_names((70, 99))


def test_reference_scores_stand_beside_ours() -> None:
    ours = [
        Curve("Ω_syn", "p = 1", (Point(0.25, 0.85), Point(0.5, 0.85))),
        Curve("conversion", "T = 1", (Point(0.5, 0.8), Point(0.6, 0.8))),
    ]
    sheet = score_table(ours, (70,), {"Ω_syn (p = 1)": {"AUC(70)": 0.3, "Spearman(70)": 0.9}})
    first, second = csv.DictReader(io.StringIO(sheet.csv()))
    assert float(first["AUC(70) [%]"]) == pytest.approx(37.5)
    assert (first["AUC(70) paper [%]"], first["AUC(70) difference [%]"]) == ("30", "7.5")
    assert (first["Spearman(70) paper"], first["Spearman(70) difference"]) == ("0.9", "not defined")
    assert (second["AUC(70) paper [%]"], second["AUC(70) difference [%]"]) == ("", "")
    assert "MI(70) paper" not in sheet.titles


def test_a_single_point_is_no_curve() -> None:
    assert set(score(Curve("Ω_syn", "p = 1", (Point(0.25, 0.85), Point(0.25, 0.8)))).values()) == {None}


def test_the_areas_of_single_seeds() -> None:
    """Of two seeds, by hand: 0.9 from 0.5 on is 0.2/0.3 of the half, 0.85 from 0.2 on is 0.15/0.3 of 0.8."""
    one = [Point(0.5, 0.9, seed=0), Point(0.6, 0.6, seed=0)]
    other = [Point(0.2, 0.85, seed=3), Point(0.9, 0.2, seed=3)]
    lonely = Point(0.1, 0.99, seed=7)
    sheet = seed_table([Curve("a", "", (*one, *other, lonely)), Curve("b", "", (lonely,))], (70,))
    assert sheet.titles == ["curve", *(f"AUC(70) {which} [%]" for which in ("mean", "seed 0", "seed 3", "seed 7"))]
    (label, mean, *alone), unknown = sheet.rows
    assert label == "a"
    assert alone == [pytest.approx(1 / 3), pytest.approx(0.4), None]
    assert mean == Estimate(pytest.approx(11 / 30), pytest.approx(0.4 / 6 / 2**0.5))
    assert unknown == ("b", None, None, None, None)
