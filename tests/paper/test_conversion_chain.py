"""Runs that begin with the weights of another, and the chain whose budget is lowered stage by stage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.io.signals import Interrupted
from picojoule.paper.conversion_chain import stages

QUANTISED = ("neuron.kind=qrelu", "penalty.schedule=constant")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe(*QUANTISED, "penalty.strength=0"), tmp_path_factory.mktemp("runs"))


def after(run: pj.Run, *overrides: str) -> pj.Recipe:
    return tiny.recipe(*QUANTISED, "training.epochs=1", f"training.start_from={run.path.name}", *overrides)


def test_a_run_begins_with_the_weights_of_the_one_it_names(first: pj.Run) -> None:
    """With a learning rate near nothing it ends with them too, but for the statistics of batch norm."""
    run = pj.fit(after(first, "optimizer.lr=1e-30"), first.path.parent)
    parameters = dict(pj.load_model(run).named_parameters())
    for name, parameter in pj.load_model(first).named_parameters():
        torch.testing.assert_close(parameters[name], parameter, rtol=1e-6, atol=0)
    assert run.result.recipe["training"]["start_from"] == first.path.name
    fresh = pj.fit(tiny.recipe(*QUANTISED, "training.epochs=1", "optimizer.lr=1e-30"), first.path.parent)
    assert not torch.equal(fresh.weights["conv1.weight"], run.weights["conv1.weight"])


def test_an_interrupted_run_goes_on_from_its_own_checkpoint(first: pj.Run, tmp_path: Path) -> None:
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    for folder in (whole, halved):
        shutil.copytree(first.path, folder / first.path.name)
    recipe = after(first, "training.epochs=2")
    undisturbed = pj.fit(recipe, whole)
    stop = tiny.Watcher(after_batch={7: tiny.signal_to_self(tiny.signal.SIGTERM)})
    with pytest.raises(Interrupted):
        pj.fit(recipe, halved, reporters=[stop])
    assert tiny.traces(pj.fit(recipe, halved)) == tiny.traces(undisturbed)


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    recipe = tiny.recipe("training.start_from=nowhere")
    with pytest.raises(
        pj.PicojouleError, match=r"training.start_from = 'nowhere', but there is no such run in .*train"
    ):
        pj.fit(recipe, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_finished_is_named(first: pj.Run, tmp_path: Path) -> None:
    shutil.copytree(first.path, tmp_path / first.path.name)
    (tmp_path / first.path.name / "result.json").unlink()
    with pytest.raises(pj.PicojouleError, match=r"training.start_from = .* is not finished"):
        pj.fit(after(first), tmp_path)


def test_weights_of_another_model_are_refused(first: pj.Run) -> None:
    recipe = after(first, "model.name=tiny:pooled")
    with pytest.raises(
        pj.PicojouleError, match=r"training.start_from names, do not fit .*: name a run of the same mod"
    ):
        pj.fit(recipe, first.path.parent)


# --- Stages ----------------------------------------------------------------------------------------------------------


def test_every_stage_follows_the_one_before_towards_a_lower_budget() -> None:
    base = tiny.recipe(*QUANTISED, "penalty.strength=3")
    chain = stages(base, 0.7, 28)
    assert len({recipe.name for recipe in chain}) == 28
    assert chain[0] == base.override("penalty.strength=0")
    assert chain[0].needs == {}
    for k in range(1, 28):
        assert chain[k].penalty.target == pytest.approx(0.7**k, rel=1e-12)
        assert chain[k].penalty.strength == 3
        assert chain[k].needs == {"training.start_from": chain[k - 1].name, "penalty.reference": chain[0].name}
        assert chain[k].neuron == base.neuron


@pytest.mark.parametrize(("ratio", "count"), [(0, 3), (1.0, 3), (float("nan"), 3), (0.5, 0), (0.5, 2.0)])
def test_stages_that_lower_nothing_are_refused(ratio: float, count: int) -> None:
    with pytest.raises(pj.PicojouleError, match=r"ratio=|count="):
        stages(tiny.recipe(*QUANTISED), ratio, count)
    with pytest.raises(pj.PicojouleError, match=r"penalty.strength .* above 0"):
        stages(tiny.recipe(*QUANTISED, "penalty.strength=0"), 0.5, 2)


@pytest.mark.slow
def test_the_chain_spends_less_and_less(tmp_path: Path) -> None:
    base = tiny.recipe(*QUANTISED, "penalty.strength=10", "training.epochs=4")
    spent = [pj.fit(recipe, tmp_path).result.validation.synops for recipe in stages(base, 0.5, 4)]
    for k in range(1, 4):
        assert spent[k] == pytest.approx(0.5**k * spent[0], rel=0.25), spent


# --- The budget ------------------------------------------------------------------------------------------------------


def test_the_target_is_in_units_of_the_reference(first: pj.Run, tmp_path: Path) -> None:
    """The first batch of a warm-started epoch: its penalty against the formula, with the reference's own figure."""
    shutil.copytree(first.path, tmp_path / first.path.name)
    path = tmp_path / first.path.name / "result.json"
    result = json.loads(path.read_text())
    result["validation"]["synops"] = 5000.0
    path.write_text(json.dumps(result))
    target = ("penalty.kind=target", "penalty.strength=0", "optimizer.lr=1e-30")
    relative = after(first, *target, "penalty.target=2", f"penalty.reference={first.path.name}")
    absolute = after(first, *target, "penalty.target=10000")
    measured = [pj.fit(recipe, tmp_path).metrics[0].train_penalty for recipe in (relative, absolute)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-6)
    assert measured[0] > 0
