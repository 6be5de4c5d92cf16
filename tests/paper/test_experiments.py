"""The registry: every table and figure, with the right runs at each scale."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from picojoule.errors import PicojouleError
from picojoule.paper import EXPERIMENTS, SCALES, SIZES, Size, find, find_scale, published
from picojoule.paper.context import Context
from picojoule.paper.curves import SIX, STRENGTHS, Tradeoff
from picojoule.paper.experiments import Conversion
from picojoule.paper.settings import settings

NAMES = sorted(EXPERIMENTS)
FULL_RUNS = {  # (14 strengths × 6 penalties + baseline) × 3 seeds; rows × 3 seeds; stages × 3 seeds beside two curves
    **dict.fromkeys((name for name in NAMES if name.startswith("tradeoff")), 255),
    "ablation-cnn7-adam": 69,
    "ablation-cnn7-msgd": 69,
    "ablation-vgg11-adam": 66,
    "ablation-vgg11-msgd": 69,
    "ablation-resnet18-adam": 78,
    "ablation-resnet18-msgd": 75,
    "conversion": 87 + 2 * 84,
    "auc": 45,
}


def test_every_table_and_figure_of_the_paper_has_an_experiment() -> None:
    made = Counter(label for experiment in EXPERIMENTS.values() for label in experiment.labels)
    assert set(made) == set(published.places())
    assert {label for label, times in made.items() if times > 1} == {  # figures of several panels
        *("fig:comparison-scaling-curves", "fig:comparison-scaling-factor-merged"),
        "fig:comparison-scaling-factor-vgg11-resnet18-flops",
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_full_scale_is_the_papers(name: str) -> None:
    recipes = find(name).experiment.recipes(SCALES["full"])
    assert len(recipes) == len(set(recipes)) == FULL_RUNS.get(name, 0)
    for recipe in recipes:
        shared_out = recipe.neuron.kind == "qrelu" and recipe.training.epochs == 150 // 28  # over the stages of a chain
        assert recipe.training.epochs == 150 or shared_out
        assert recipe.training.batch_size == 100
        assert (recipe.data.limit, recipe.data.limit_test, recipe.data.augment) == (None, None, True)
    assert {recipe.seed for recipe in recipes} in ({0, 1, 2}, set())


@pytest.mark.parametrize("size", ["small", "mini", "quick", "smoke"])
@pytest.mark.parametrize("name", NAMES)
def test_smaller_scales_are_smaller_and_keep_the_papers_convention(name: str, size: str) -> None:
    recipes = find(name).experiment.recipes(find_scale(size))
    assert len(recipes) == len(set(recipes))
    assert len(recipes) <= FULL_RUNS.get(name, 0)
    assert bool(recipes) == (name in FULL_RUNS)
    for recipe in recipes:
        assert recipe.energy.psi == "paper"
        assert recipe.data.limit is not None
    if size == "smoke" and recipes:
        assert len(recipes) == (6 if name == "conversion" else 2)
        assert {recipe.data.limit // recipe.training.batch_size for recipe in recipes if recipe.data.limit} == {2}


def test_the_small_trade_off_of_cnn7() -> None:
    recipes = find("tradeoff-cnn7-adam").experiment.recipes(SCALES["small"])
    strengths = {p: {r.penalty.strength for r in recipes if r.penalty.p == p} - {0} for p in (1, 2)}
    assert len(recipes) == 37
    assert strengths[1] | strengths[2] <= set(STRENGTHS)
    assert (len(strengths[1]), min(strengths[1]), max(strengths[1])) == (7, 1, 8192)
    assert {2 * strength for strength in strengths[2]} < strengths[1]  # where the gradient on firing neurons is alike
    assert len({(recipe.penalty.kind, recipe.penalty.p) for recipe in recipes}) == 6


def test_the_first_runs_tell_most() -> None:
    """Baselines, then p = 1 before p = 2: all penalties and seeds at the middle strength, then outwards."""
    recipes = find("tradeoff-cnn7-adam").experiment.recipes(SCALES["small"].with_seeds(3))
    assert [(recipe.seed, recipe.penalty.strength) for recipe in recipes[:3]] == [(0, 0), (1, 0), (2, 0)]
    assert [recipe.penalty.p for recipe in recipes] == sorted(recipe.penalty.p for recipe in recipes)
    first = recipes[3:12]
    assert {(recipe.penalty.kind, recipe.seed) for recipe in first} == {
        (kind, seed) for kind, p in SIX if p == 1 for seed in (0, 1, 2)
    }
    assert {recipe.penalty.strength for recipe in first} == {64}
    linear = [r.penalty.strength for r in recipes if (r.penalty.kind, r.penalty.p, r.seed) == ("syn", 1, 0)]
    assert linear == [0, 64, 256, 16, 1024, 4, 8192, 1]


@pytest.mark.parametrize("size", SIZES)
def test_a_chain_within_one_run_takes_the_epochs_of_one(size: Size) -> None:
    experiment = find("conversion").experiment
    assert isinstance(experiment, Conversion)
    within, longer = (chains[0] for chains in experiment.chains(SCALES[size]).values())
    epochs = longer[0].training.epochs
    assert {stage.training.epochs for stage in longer} == {epochs}
    assert sum(stage.training.epochs for stage in within) <= max(epochs, 2)  # of one epoch, no stage can be less
    assert within[-1].penalty.target == pytest.approx(longer[-1].penalty.target)
    assert {stage.data for stage in within} == {stage.data for stage in longer}


@pytest.mark.parametrize("name", NAMES)
def test_more_seeds_add_runs_and_keep_those_there_are(name: str) -> None:
    one, three = (set(find(name).experiment.recipes(SCALES["small"].with_seeds(count))) for count in (1, 3))
    assert one <= three
    assert len(three) == 3 * len(one)


@pytest.mark.parametrize("count", [0, -1, 1001, 2.0, True, "3"])
def test_seeds_are_counted_in_whole_numbers(count: Any) -> None:
    with pytest.raises(PicojouleError, match=f"{count!r} seeds are not possible: take a whole number from 1 to 1000"):
        SCALES["small"].with_seeds(count)


def test_the_small_rates() -> None:
    def rates(name: str) -> set[float]:
        return {recipe.optimizer.lr for recipe in find(name).experiment.recipes(SCALES["small"])}

    assert rates("tradeoff-cnn7-adam") == {2e-3}
    assert rates("tradeoff-vgg11-adam") == {3e-4}
    assert rates("tradeoff-resnet18-adam") == {1e-3}
    assert rates("tradeoff-vgg11-msgd") == rates("tradeoff-cnn7-msgd") == {1e-2}  # the paper's


def test_experiments_share_runs() -> None:
    for size in SCALES:
        small = size in ("small", "mini", "quick")
        shared = set(find("auc").experiment.recipes(SCALES[size]))
        assert shared < set(
            find("tradeoff-cnn7-adam" if small else "tradeoff-resnet18-msgd").experiment.recipes(SCALES[size])
        ) or (size == "smoke")
        conversion = set(find("conversion").experiment.recipes(SCALES[size]))
        assert conversion & set(find("tradeoff-cnn7-adam").experiment.recipes(SCALES[size]))


def test_the_misprinted_ablation_takes_the_grid_of_the_other_optimiser() -> None:
    def grid(name: str) -> set[tuple[float, float, bool]]:
        recipes = find(name).experiment.recipes(SCALES["full"])
        return {(r.penalty.strength, r.optimizer.weight_decay, r.optimizer.decay_batch_norm) for r in recipes}

    assert grid("ablation-cnn7-adam") == grid("ablation-cnn7-msgd") != grid("ablation-vgg11-msgd")
    assert not any(r.penalty.normalized for r in find("ablation-cnn7-adam").experiment.recipes(SCALES["full"]))


def test_cifar_100_is_a_setting_of_its_own() -> None:
    recipes = find("tradeoff-resnet18-cifar100-adam").experiment.recipes(SCALES["full"])
    assert {(recipe.data.name, recipe.model.name, recipe.optimizer.name) for recipe in recipes} == {
        ("cifar-100", "resnet18", "adam")
    }


def test_every_recipe_of_the_paper_is_used() -> None:
    used = {e.experiment.base for e in EXPERIMENTS.values() if isinstance(e.experiment, Tradeoff)}
    assert used == set(settings())


@pytest.mark.parametrize("name", sorted(FULL_RUNS))
def test_without_any_run_the_papers_numbers_still_stand_there(name: str, tmp_path: Path) -> None:
    named = find(name)
    found = named.experiment.results(Context(SCALES["full"], tmp_path, print))
    for sheet in found.tables.values():
        sheet.text(), sheet.csv(), sheet.latex()
    for label in named.labels:
        if label.startswith("tbl:quantitative"):
            (auc,) = (sheet for key, sheet in found.tables.items() if key == "auc")
            assert len(auc.rows) == len(published.scores(label))
        if label.startswith("tbl:ablation"):
            assert len(found.tables["energy"].rows) == FULL_RUNS[name] // 3


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(PicojouleError, match="unknown experiment 'total': did you mean 'totals'"):
        find("total")
    with pytest.raises(PicojouleError, match="unknown --scale 'big': choose one of full, small, mini, quick, smoke"):
        find_scale("big")
