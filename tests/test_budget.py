from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import picojoule as pj
import tiny
from picojoule import cli, engine, training
from picojoule.budget import FLOOR, Budget, Guard, tolerance
from picojoule.evaluation import build_model
from picojoule.kept import missed, verdict
from picojoule.units import format_joules
from tiny import Watcher, signal_to_self, traces

SHORT = ("penalty.strength=0", "training.epochs=4")
LONG = ("penalty.strength=0", "training.epochs=16", "data.limit=1000", "training.batch_size=25", "optimizer.lr=0.004")
"""Enough batches, and small enough steps, to be steered."""


def share(run: pj.Run) -> float:
    return float(run.result["validation"]["joules"] / run.result["reference_joules"])


# --- The controller alone, on networks that are formulas -------------------------------------------------------------


def steered(budget: Budget, epochs: int, batches: int, *, tau: float, scale: float, joules: float) -> list[float]:
    """A make-believe network: Ω drifts towards 0.1/(1 + scale·λ·0.1), the faster the higher the learning rate."""
    omega, spent = 0.1, []
    for epoch in range(epochs):
        pace = 0.5 * (1 + math.cos(math.pi * epoch / epochs))
        for batch in range(batches):
            goal = 0.1 / (1 + max(scale * budget.strength * 0.1, -0.5))
            omega *= (goal / omega) ** (pace / tau)
            budget.step(epoch, batch, omega if budget.looks(epoch, batch) else None)
            if budget.checks(epoch, batch):
                budget.checked(omega * joules, omega)
        budget.measured(epoch, omega * joules, omega)
        spent.append(omega * joules)
    return spent


@pytest.mark.parametrize("target", [0.8, 0.5, 0.3, 0.2, 0.1, 0.05])
@pytest.mark.parametrize("scale", [0.4, 1.0, 2.5])
@pytest.mark.parametrize(("epochs", "batches"), [(5, 100), (10, 50), (150, 500)])
def test_the_target_is_met_by_any_response(target: float, scale: float, epochs: int, batches: int) -> None:
    budget = Budget(target, epochs, batches)
    spent = steered(budget, epochs, batches, tau=20, scale=scale, joules=7e-5)
    assert budget.reference == pytest.approx(7e-6)
    assert budget.target == pytest.approx(target * 7e-6)
    assert abs(spent[-1] - target * 7e-6) <= tolerance(target * 7e-6, 7e-6)


def test_a_budget_in_joules_needs_no_reference_to_be_known() -> None:
    budget = Budget("2 µJ", 10, 50)
    assert budget.target == 2e-6
    spent = steered(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert spent[-1] == pytest.approx(2e-6, rel=0.03)


def test_a_named_reference_takes_the_place_of_the_first_stretch() -> None:
    budget = Budget(0.5, 10, 50, reference=4e-6)
    spent = steered(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert budget.reference == 4e-6
    assert spent[-1] == pytest.approx(2e-6, rel=0.03)


def test_a_budget_above_what_is_spent_anyway_adds_no_energy() -> None:
    budget = Budget("10 µJ", 10, 50)
    spent = steered(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert max(spent) <= 7e-6 * 1.0001
    assert spent[-1] > 6e-6


@pytest.mark.parametrize(("epoch", "moves"), [(1, False), (5, False), (7, False), (9, True)])
@pytest.mark.parametrize("error", [0.1, 0.3, 3.0])
def test_the_integral_rests_in_the_descent_and_moves_in_the_hold(epoch: int, moves: bool, error: float) -> None:
    budget = Budget(0.3, 10, 50)
    budget.measured(0, 7e-6, 0.1)
    wanted = budget.wanted(9)
    assert wanted is not None
    for batch in range(50):
        budget.step(epoch, batch, 0.1 * wanted / 7e-6 * math.exp(error))
    assert (budget.state_dict()["integral"] > 0) == moves


def test_a_budget_beyond_all_measure_asks_for_nothing() -> None:
    budget = Budget("1e30 J", 10, 50)
    spent = steered(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert spent[-1] == pytest.approx(7e-6, rel=0.2)


@pytest.mark.parametrize("share", [1e-29, 1e-315, 5e-324])
def test_a_budget_of_hardly_anything_asks_for_all_that_can_be_had(share: float) -> None:
    budget = Budget(share, 10, 50)
    spent = steered(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert spent[-1] < 1e-12
    assert math.isfinite(budget.strength)


def test_the_first_stretch_is_free_and_a_resumed_budget_goes_on() -> None:
    whole, first = Budget(0.3, 4, 10), Budget(0.3, 4, 10)
    steered(whole, 4, 10, tau=5, scale=1, joules=1.0)
    for batch in range(10):
        first.step(0, batch, 0.1 if first.looks(0, batch) else None)
        assert first.strength == 0
    first.measured(0, 0.1, 0.1)
    first.step(1, 0, 0.1)
    assert first.strength > 0
    again = Budget(0.3, 4, 10)
    again.load_state_dict(first.state_dict())
    for budget in (first, again):
        budget.step(1, 1, 0.09)
    assert again.strength == first.strength
    assert again.state_dict() == first.state_dict()


def test_a_short_hold_is_checked_several_times_and_a_long_one_after_its_epochs() -> None:
    def checked(epochs: int, batches: int) -> list[tuple[int, int]]:
        budget = Budget(0.3, epochs, batches, reference=1.0)
        budget.measured(0, 1.0, 0.1)
        return [(e, b) for e in range(epochs) for b in range(batches) if budget.checks(e, b)]

    assert checked(7, 100) == [(6, 20), (6, 46), (6, 72), (6, 98)]
    assert len(checked(150, 500)) <= 4


@pytest.mark.parametrize(
    ("rate", "weight"), [(0.0, -1), (FLOOR / 4, -0.25), (FLOOR, 0), (2.5 * FLOOR, 0.5), (5 * FLOOR, 1)]
)
def test_the_guard_spares_a_layer_near_the_floor_and_pays_one_below_it(rate: float, weight: float) -> None:
    guard = Guard({"a": 0.25, "b": 0.75})
    shares = {"a": torch.tensor(0.25 * rate), "b": torch.tensor(0.75 * 0.5)}
    guard.observe(guard.rates(shares))
    assert guard.weights == pytest.approx({"a": weight, "b": 1}, abs=1e-6)
    assert guard.charge(shares).item() == pytest.approx(weight * 0.25 * rate + 0.75 * 0.5, rel=1e-6)
    assert guard.holding == (["a"] if weight < 1 else [])


# --- Runs ------------------------------------------------------------------------------------------------------------


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
    reference = run.result["reference_joules"]
    assert run.result["budget"]["target_joules"] == pytest.approx(target * reference)
    assert run.result["budget"]["met"]
    assert abs(share(run) - target) <= max(0.03 * target, 0.006)
    assert run.result["validation"]["joules"] == run.metrics[run.result["budget"]["epoch"]]["joules"]
    assert pj.evaluate(run, "validation").energy.joules == run.result["validation"]["joules"]  # type: ignore[union-attr]
    assert run.metrics[0]["strength"] == 0
    assert run.metrics[0]["target_joules"] is None
    wanted = [entry["target_joules"] for entry in run.metrics if entry["target_joules"] is not None]
    assert wanted == sorted(wanted, reverse=True)
    assert wanted[-1] == pytest.approx(target * reference)


def test_the_reference_is_the_unpenalised_network_and_its_full_training_is_named_too(tmp_path: Path) -> None:
    baseline = pj.fit(tiny.recipe(*SHORT), tmp_path)
    watcher = Watcher()
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=90%"), tmp_path, reporters=[watcher])
    assert run.result["reference_joules"] == run.metrics[0]["joules"] == baseline.metrics[0]["joules"]
    assert run.result["budget"]["baseline_joules"] == baseline.result["validation"]["joules"]
    assert any("of the fully trained baseline's" in text for text in watcher.said)


def test_a_named_baseline_run_gives_the_reference(tmp_path: Path) -> None:
    baseline = pj.fit(tiny.recipe(*SHORT, "seed=5"), tmp_path)
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%", f"penalty.reference={baseline.path.name}"), tmp_path)
    assert run.result["reference_joules"] == baseline.result["validation"]["joules"]
    with pytest.raises(pj.PicojouleError, match=r"energy\.hardware"):
        pj.fit(
            tiny.recipe(
                *SHORT, "penalty.budget=50%", f"penalty.reference={baseline.path.name}", "energy.hardware=loihi"
            ),
            tmp_path,
        )


@pytest.mark.parametrize("batch", [tiny.BATCHES - 1, tiny.BATCHES + 2, 3 * tiny.BATCHES, 4 * tiny.BATCHES])
def test_a_stopped_budget_run_goes_on_to_the_same_end(tmp_path: Path, batch: int) -> None:
    recipe = tiny.recipe(*SHORT, "penalty.budget=40%")
    undisturbed = traces(pj.fit(recipe, tmp_path / "undisturbed"))
    with pytest.raises(engine.Interrupted):
        pj.fit(recipe, tmp_path, reporters=[Watcher(after_batch={batch: signal_to_self(signal.SIGTERM)})])
    assert traces(pj.fit(recipe, tmp_path)) == undisturbed


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
def test_any_network_is_steered_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    built: list[tuple[nn.Module, list[object]]] = []

    def build(recipe: pj.Recipe) -> nn.Module:
        model = build_model(recipe)
        built.append((model, settings(model)))
        return model

    monkeypatch.setattr(training, "build_model", build)
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%", *overrides), tmp_path)
    assert run.metrics[-1]["strength"] != 0
    [(model, before)] = built
    assert settings(model) == before


def settings(model: nn.Module) -> list[object]:
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return [(norm.momentum, norm.track_running_stats) for norm in norms]


def test_the_averages_of_a_budget_run_are_settled_after_every_epoch_that_is_steered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[int] = []
    settle = training.settle_averages

    def noted(model: nn.Module, batches: Iterable[Tensor]) -> None:
        batches = list(batches)
        settled.append(sum(map(len, batches)))
        settle(model, batches)

    monkeypatch.setattr(training, "settle_averages", noted)
    pj.fit(tiny.recipe(*SHORT), tmp_path)
    assert settled == []
    pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%"), tmp_path)
    assert settled == [200] * 5  # three epochs, and twice within the hold


def test_a_budget_out_of_reach_is_not_claimed(tmp_path: Path) -> None:
    """Without the guard the network is driven silent; what is kept still fires."""
    recipe = tiny.recipe(*SHORT, "training.epochs=8", "optimizer.lr=0.2", "penalty.budget=0.01%", "penalty.guard=false")
    watcher = Watcher()
    run = pj.fit(recipe, tmp_path, reporters=[watcher])
    outcome, validation = run.result["budget"], run.result["validation"]
    assert not outcome["met"]
    assert outcome["silenced"]
    first = outcome["silenced"][0]
    assert run.metrics[first["epoch"]]["joules"] == first["joules"]
    sentence = watcher.said[-1]
    for words in (
        f"the budget of {format_joules(outcome['target_joules'])} (0.0% of the unpenalised ",
        f"is missed: the nearest network, that of epoch {outcome['epoch'] + 1}, spends ",
        f"the layer {first['layer']} fell silent in epoch {first['epoch'] + 1}, at {format_joules(first['joules'])}",
        "; ask for more energy, or train with penalty.guard=true",
    ):
        assert words in sentence
    assert all(layer["rate"] > 0 for layer in validation["layers"])
    assert validation["joules"] == run.metrics[outcome["epoch"]]["joules"]
    again = Watcher()
    pj.fit(recipe, tmp_path, reporters=[again])
    assert again.said == [sentence]
    assert (again.began, again.ended) == ([], 0)


def ended(guard: bool | None = None, **outcome: object) -> dict[str, object]:
    """A result of 30 % where 20 % was asked for."""
    budget = {"target_joules": 2e-6, "met": False, "epoch": 6, "baseline_joules": None, "silenced": [], "held": []}
    recipe = {"penalty": {"guard": guard}}
    return {"reference_joules": 1e-5, "validation": {"joules": 3e-6}, "budget": budget | outcome, "recipe": recipe}


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({}, "spends 3.00 µJ (30.0%); train for more epochs, or ask for more energy"),
        ({"baseline_joules": 6e-6}, "(30.0%, and 50.0% of the fully trained baseline's 6.00 µJ); train"),
        (
            {"held": ["spike2"]},
            "(30.0%); the guard holds spike2 at the least firing rate; ask for more energy, or train with "
            "penalty.guard=false, which may silence what the guard holds",
        ),
        (
            {"silenced": [{"layer": "spike1", "epoch": 4, "joules": 1e-6}], "guard": False},
            "(30.0%); the layer spike1 fell silent in epoch 5, at 1.00 µJ; ask for more energy, or train with "
            "penalty.guard=true, which keeps layers from falling silent",
        ),
        *(  # on already, also where the recipe has nothing to say of it
            (
                {"silenced": [{"layer": "spike1", "epoch": 4, "joules": 1e-6}], "guard": guard},
                "(30.0%); the layer spike1 fell silent in epoch 5, at 1.00 µJ; train for more epochs, or ask for more",
            )
            for guard in (True, None)
        ),
    ],
)
def test_a_missed_budget_in_one_sentence(outcome: dict[str, Any], words: str) -> None:
    said = verdict(ended(**outcome))
    assert said is not None
    head = "the budget of 2.00 µJ (20.0% of the unpenalised 10.0 µJ) is missed: the nearest network, that of epoch 7, "
    assert said.startswith(head)
    assert words in said


def test_a_budget_met_in_one_sentence() -> None:
    assert verdict(ended(met=True, target_joules=3e-6, held=["spike2"])) == (
        "the budget of 3.00 µJ (30.0% of the unpenalised 10.0 µJ) is met: the network, that of epoch 7, spends 3.00 µJ "
        "(30.0%)"
    )
    assert verdict({"validation": {"joules": 3e-6}}) is None


@pytest.mark.parametrize("met", [False, True])
def test_commands_on_a_run_that_missed_its_budget_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], met: bool
) -> None:
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%"), tmp_path, reporters=[Watcher()])
    run.write_text("result.json", json.dumps(run.result | {"budget": run.result["budget"] | {"met": met}}))
    recipe = str(run.path / "recipe.toml")
    for arguments in (
        ("train", recipe, "--into", str(tmp_path)),
        ("evaluate", str(run.path)),
        ("evaluate", str(run.path), "--json"),
    ):
        monkeypatch.setattr("sys.argv", ["picojoule", *arguments])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
        captured = capsys.readouterr()
        assert ("is missed" in captured.err) == (not met)
        assert "missed" not in captured.out
    assert json.loads(captured.out)["split"] == "test"


@pytest.mark.parametrize(
    "damage",
    [
        {"budget": 3},
        {"budget": {"met": False}},
        {"reference_joules": None},
        {"reference_joules": 0},
        {"validation": {}},
        {"validation": {"joules": "few"}},
    ],
    ids=str,
)
def test_a_result_with_a_damaged_budget_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    run = pj.Run(tmp_path)
    result = ended() | {"test": {"accuracy": 0.5, "joules": 1e-6}}
    run.write_text("result.json", json.dumps(result))
    assert missed(run) == verdict(result)
    run.write_text("result.json", json.dumps(result | damage))
    with pytest.raises(pj.PicojouleError, match=r"result\.json is no result of picojoule .*: remove it and run"):
        missed(run)


def test_the_guard_keeps_every_layer_firing(tmp_path: Path) -> None:
    overrides = ("penalty.strength=1000", "training.epochs=24", "data.limit=400")
    free, guarded = (
        pj.fit(tiny.recipe(*overrides, *more), tmp_path).result["validation"]["layers"]
        for more in ((), ("penalty.guard=true",))
    )
    assert min(layer["rate"] for layer in free) == 0
    assert min(layer["rate"] for layer in guarded) > 0


def test_a_network_that_never_fires_has_nothing_to_bring_down(tmp_path: Path) -> None:
    recipe = tiny.recipe(*SHORT, "penalty.budget=30%", "neuron.threshold=1e6")
    with pytest.raises(pj.PicojouleError, match="spends nothing after 1 of 4 epochs"):
        pj.fit(recipe, tmp_path)


def test_a_budget_run_that_diverges_is_not_told_to_lower_a_strength_that_it_has_not(tmp_path: Path) -> None:
    recipe = tiny.recipe(*SHORT, "penalty.budget=50%", "model.name=tiny:breaks_down")
    with pytest.raises(pj.PicojouleError, match=r"lower optimizer\.lr or ask for more energy with penalty\.budget; "):
        pj.fit(recipe, tmp_path)


@pytest.mark.parametrize("kind", ["total", "balance"])
def test_other_penalties_are_steered_by_the_energy_too(tmp_path: Path, kind: str) -> None:
    run = pj.fit(tiny.recipe(*SHORT, "penalty.budget=50%", f"penalty.kind={kind}"), tmp_path)
    assert run.result["budget"]["target_joules"] == pytest.approx(0.5 * run.metrics[0]["joules"])
    assert run.metrics[-1]["strength"] != 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("penalty.strength=4",), "finds the strength by itself"),
        (("penalty.strength=0", "neuron.kind=relu"), "has no spikes"),
        (("penalty.strength=0", "training.epochs=2"), "3 or more"),
        (("penalty.strength=0", "penalty.schedule=constant"), "has no meaning"),
        (("penalty.strength=0", "penalty.kind=target", "penalty.target=0.5"), "its own target"),
    ],
)
def test_what_a_budget_excludes(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(pj.PicojouleError, match=words):
        tiny.recipe("penalty.budget=30%", *overrides)


def test_spellings_of_a_budget() -> None:
    def stored(text: str) -> object:
        return tiny.recipe("penalty.strength=0", f"penalty.budget={text}").penalty.budget

    assert stored("30%") == stored("0.3") == stored("30 %") == 0.3
    assert stored("2 uJ") == stored("2µJ") == stored("2000 nJ") == stored('"0.002 mJ"') == "2 µJ"
    for wrong in ("0", "130%", "2", "0 uJ", "2 kJ", "true", "-3%", "%", "nan", "[1]"):
        with pytest.raises(pj.PicojouleError, match=r"penalty\.budget = .* is not allowed: take a share"):
            stored(wrong)


def test_the_name_of_a_budget_run_says_so() -> None:
    assert "-syn1-30pct-s0-" in tiny.recipe("penalty.strength=0", "penalty.budget=30%").name
    assert "-syn1-2uJ-s0-" in tiny.recipe("penalty.strength=0", "penalty.budget=2 uJ").name
