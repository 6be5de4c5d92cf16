"""Runs with a budget end where they should, whatever the network, and leave it as it was."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import picojoule as pj
import tiny
from picojoule.energy.units import format_joules
from picojoule.runs.model import build_model
from picojoule.training import fit, setup
from picojoule.training.budget import controller
from tiny import Watcher, signal_to_self, traces

SHORT = ("penalty.strength=0", "training.epochs=4")
LONG = ("penalty.strength=0", "training.epochs=16", "data.limit=1000", "training.batch_size=25", "optimizer.lr=0.004")
"""Enough batches, and small enough steps, to be controlled."""


def share(run: pj.Run) -> float:
    return float(run.result.validation.joules / run.result.reference_joules)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "overrides"),
    [
        (0.6, ()),
        (0.3, ()),
        (0.15, ()),
        (0.4, ("energy.hardware=loihi", "energy.psi=uniform")),
        (0.4, ("optimizer.name=sgd", "optimizer.lr=0.05")),
    ],
    ids=str,
)
def test_a_run_ends_at_its_budget(tmp_path: Path, target: float, overrides: tuple[str, ...]) -> None:
    run = pj.fit(tiny.recipe(*LONG, f"penalty.budget={target}", *overrides), tmp_path)
    reference = run.result.reference_joules
    assert run.result.budget.target_joules == pytest.approx(target * reference)
    assert run.result.budget.met
    assert abs(share(run) - target) <= max(0.03 * target, 0.006)
    assert run.result.validation.joules == run.metrics[run.result.budget.epoch].joules
    assert pj.evaluate(run, "validation").energy.joules == run.result.validation.joules  # type: ignore[union-attr]
    assert run.metrics[0].strength == 0
    assert run.metrics[0].target_joules is None
    wanted = [entry.target_joules for entry in run.metrics if entry.target_joules is not None]
    assert wanted == sorted(wanted, reverse=True)
    assert wanted[-1] == pytest.approx(target * reference)


def test_the_reference_is_the_unpenalised_network_and_its_full_training_is_named_too(tmp_path: Path) -> None:
    baseline = pj.fit(tiny.recipe(*SHORT), tmp_path)
    watcher = Watcher()
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=90%"), tmp_path, reporters=[watcher])
    assert run.result.reference_joules == run.metrics[0].joules == baseline.metrics[0].joules
    assert run.result.budget.baseline_joules == baseline.result.validation.joules
    assert any("of the fully trained baseline's" in text for text in watcher.said)


def test_a_named_baseline_run_gives_the_reference(tmp_path: Path) -> None:
    baseline = pj.fit(tiny.recipe(*SHORT, "seed=5"), tmp_path)
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%", f"penalty.reference={baseline.path.name}"), tmp_path)
    assert run.result.reference_joules == baseline.result.validation.joules
    with pytest.raises(pj.PicojouleError, match=r"energy\.hardware"):
        pj.fit(
            tiny.recipe(
                *SHORT, "penalty.budget=50%", f"penalty.reference={baseline.path.name}", "energy.hardware=loihi"
            ),
            tmp_path,
        )


STOPPED = tiny.recipe(*SHORT, "penalty.budget=40%")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return traces(pj.fit(STOPPED, tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize(
    "batch",
    [
        tiny.BATCHES + 2,
        *(
            pytest.param(batch, marks=pytest.mark.slow)
            for batch in (tiny.BATCHES - 1, 3 * tiny.BATCHES, 4 * tiny.BATCHES)
        ),
    ],
)
def test_a_stopped_budget_run_goes_on_to_the_same_end(undisturbed: dict[str, Any], tmp_path: Path, batch: int) -> None:
    with pytest.raises(fit.Interrupted):
        pj.fit(STOPPED, tmp_path, reporters=[Watcher(after_batch={batch: signal_to_self(signal.SIGTERM)})])
    assert traces(pj.fit(STOPPED, tmp_path)) == undisturbed


@pytest.mark.parametrize(
    "overrides",
    [
        ("model.name=tiny:plain",),
        ("model.name=tiny:cumulative",),
        ("model.name=tiny:untracked",),
        ("model.name=tiny:over_time", "neuron.kind=lif", "neuron.steps=3"),
        ("model.name=tiny:without_maps", "data.limit=201", "training.batch_size=50"),  # a sample of 101 images
        ("training.batch_size=300",),  # more than there are
    ],
    ids=lambda overrides: overrides[0],
)
def test_any_network_is_controlled_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    built: list[tuple[nn.Module, list[object]]] = []

    def build(recipe: pj.Recipe, trust: bool) -> nn.Module:
        model = build_model(recipe, trust)
        built.append((model, settings(model)))
        return model

    monkeypatch.setattr(setup, "build_model", build)
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%", *overrides), tmp_path)
    assert run.metrics[-1].strength != 0
    [(model, before)] = built
    assert settings(model) == before


def settings(model: nn.Module) -> list[object]:
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return [(norm.momentum, norm.track_running_stats) for norm in norms]


def test_the_averages_of_a_budget_run_are_recomputed_after_every_epoch_that_is_controlled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[int] = []
    settle = controller.recompute_running_averages

    def noted(model: nn.Module, batches: Iterable[Tensor]) -> None:
        batches = list(batches)
        settled.append(sum(map(len, batches)))
        settle(model, batches)

    monkeypatch.setattr(controller, "recompute_running_averages", noted)
    pj.fit(tiny.recipe(*SHORT), tmp_path)
    assert settled == []
    pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%"), tmp_path)
    assert settled == [200] * 5  # three epochs, and twice within the hold


def test_a_budget_out_of_reach_is_not_claimed(tmp_path: Path) -> None:
    """Without the guard the network is driven silent; what is kept still fires."""
    recipe = tiny.recipe(*SHORT, "training.epochs=8", "optimizer.lr=0.2", "penalty.budget=0.01%", "penalty.guard=false")
    watcher = Watcher()
    run = pj.fit(recipe, tmp_path, reporters=[watcher])
    outcome, validation = run.result.budget, run.result.validation
    assert not outcome.met
    assert outcome.silenced
    first = outcome.silenced[0]
    assert run.metrics[first.epoch].joules == first.joules
    sentence = watcher.said[-1]
    for words in (
        f"the budget of {format_joules(outcome.target_joules)} (0.0% of the unpenalised ",
        f"is missed: the nearest network, that of epoch {outcome.epoch + 1}, spends ",
        f"the layer {first.layer} fell silent in epoch {first.epoch + 1}, at {format_joules(first.joules)}",
        "; ask for more energy, or train with penalty.guard=true",
    ):
        assert words in sentence
    assert all(layer.rate > 0 for layer in validation.layers)
    assert validation.joules == run.metrics[outcome.epoch].joules
    again = Watcher()
    pj.fit(recipe, tmp_path, reporters=[again])
    assert again.said == [sentence]
    assert (again.began, again.ended) == ([], 0)


@pytest.mark.slow
def test_the_guard_keeps_every_layer_firing(tmp_path: Path) -> None:
    overrides = ("penalty.strength=1000", "training.epochs=24", "data.limit=400")
    free, guarded = (
        pj.fit(tiny.recipe(*overrides, *more), tmp_path).result.validation.layers
        for more in ((), ("penalty.guard=true",))
    )
    assert min(layer.rate for layer in free) == 0
    assert min(layer.rate for layer in guarded) > 0


def test_a_network_that_never_fires_has_nothing_to_bring_down(tmp_path: Path) -> None:
    recipe = tiny.recipe(*SHORT, "penalty.budget=30%", "neuron.threshold=1e6")
    with pytest.raises(pj.PicojouleError, match="spends nothing after 1 of 4 epochs"):
        pj.fit(recipe, tmp_path)


def test_a_budget_run_that_diverges_is_not_told_to_lower_a_strength_that_it_has_not(tmp_path: Path) -> None:
    recipe = tiny.recipe(*SHORT, "penalty.budget=50%", "model.name=tiny:breaks_down")
    with pytest.raises(pj.PicojouleError, match=r"lower optimizer\.lr or ask for more energy with penalty\.budget; "):
        pj.fit(recipe, tmp_path)


@pytest.mark.parametrize("kind", ["total", "balance"])
def test_other_penalties_are_controlled_by_the_energy_too(tmp_path: Path, kind: str) -> None:
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%", f"penalty.kind={kind}"), tmp_path)
    assert run.result.budget.target_joules == pytest.approx(0.5 * run.metrics[0].joules)
    assert run.metrics[-1].strength != 0
