"""The controller alone, on networks that are formulas, and the guard."""

from __future__ import annotations

import math

import pytest
import torch

from picojoule.training.budget.control_law import ControlLaw, tolerance
from picojoule.training.budget.guard import FLOOR, LayerGuard
from picojoule.training.learning_rate import Annealing


def controlled(
    budget: ControlLaw, epochs: int, batches: int, *, tau: float, scale: float, joules: float, within: bool = False
) -> list[float]:
    """A make-believe network: Ω drifts towards 0.1/(1 + scale·λ·0.1), the faster the higher the learning rate."""
    omega, spent = 0.1, []
    for epoch in range(epochs):
        for batch in range(batches):
            share = 0.5 * (1 + math.cos(math.pi * (epoch + batch / batches * within) / epochs))
            goal = 0.1 / (1 + max(scale * budget.strength * 0.1, -0.5))
            omega *= (goal / omega) ** (share / tau)
            budget.update(epoch, batch, omega if budget.needs_estimate(epoch, batch) else None)
            if budget.needs_measurement(epoch, batch):
                budget.calibrate(omega * joules, omega)
        budget.finish_epoch(epoch, omega * joules, omega)
        spent.append(omega * joules)
    return spent


@pytest.mark.parametrize(
    ("scale", "epochs", "batches", "target"),
    [
        *((*run, target) for run in ((0.4, 5, 100), (1.0, 5, 100), (2.5, 10, 50)) for target in (0.8, 0.5, 0.2, 0.05)),
        (0.4, 10, 50, 0.3),
        (1.0, 150, 500, 0.1),
    ],
)
def test_the_target_is_met_by_any_response(scale: float, epochs: int, batches: int, target: float) -> None:
    budget = ControlLaw(target, epochs, batches)
    spent = controlled(budget, epochs, batches, tau=20, scale=scale, joules=7e-5)
    assert budget.reference == pytest.approx(7e-6)
    assert budget.target == pytest.approx(target * 7e-6)
    assert abs(spent[-1] - target * 7e-6) <= tolerance(target * 7e-6, 7e-6)


@pytest.mark.parametrize("target", [0.5, 0.1])
def test_the_target_is_met_where_the_learning_rate_falls_from_batch_to_batch(target: float) -> None:
    budget = ControlLaw(target, 10, 50, annealing=Annealing(10, 50, "batches"))
    spent = controlled(budget, 10, 50, tau=20, scale=1.0, joules=7e-5, within=True)
    assert abs(spent[-1] - target * 7e-6) <= tolerance(target * 7e-6, 7e-6)


def test_a_budget_in_joules_needs_no_reference_to_be_known() -> None:
    budget = ControlLaw("2 µJ", 10, 50)
    assert budget.target == 2e-6
    spent = controlled(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert spent[-1] == pytest.approx(2e-6, rel=0.03)


def test_a_named_reference_takes_the_place_of_the_first_stretch() -> None:
    budget = ControlLaw(0.5, 10, 50, reference=4e-6)
    spent = controlled(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert budget.reference == 4e-6
    assert spent[-1] == pytest.approx(2e-6, rel=0.03)


def test_a_budget_above_what_is_spent_anyway_adds_no_energy() -> None:
    budget = ControlLaw("10 µJ", 10, 50)
    spent = controlled(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert max(spent) <= 7e-6 * 1.0001
    assert spent[-1] > 6e-6


@pytest.mark.parametrize(("epoch", "moves"), [(1, False), (5, False), (7, False), (9, True)])
@pytest.mark.parametrize("error", [0.1, 0.3, 3.0])
def test_the_integral_rests_in_the_descent_and_moves_in_the_hold(epoch: int, moves: bool, error: float) -> None:
    budget = ControlLaw(0.3, 10, 50)
    budget.finish_epoch(0, 7e-6, 0.1)
    wanted = budget.wanted_joules(9)
    assert wanted is not None
    for batch in range(50):
        budget.update(epoch, batch, 0.1 * wanted / 7e-6 * math.exp(error))
    assert (budget.state_dict()["integral"] > 0) == moves


def test_a_budget_beyond_all_measure_asks_for_nothing() -> None:
    budget = ControlLaw("1e30 J", 10, 50)
    spent = controlled(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert spent[-1] == pytest.approx(7e-6, rel=0.2)


@pytest.mark.parametrize("share", [1e-29, 1e-315, 5e-324])
def test_a_budget_of_hardly_anything_asks_for_all_that_can_be_had(share: float) -> None:
    budget = ControlLaw(share, 10, 50)
    spent = controlled(budget, 10, 50, tau=20, scale=1, joules=7e-5)
    assert spent[-1] < 1e-12
    assert math.isfinite(budget.strength)


def test_the_first_stretch_is_free_and_a_resumed_budget_goes_on() -> None:
    whole, first = ControlLaw(0.3, 4, 10), ControlLaw(0.3, 4, 10)
    controlled(whole, 4, 10, tau=5, scale=1, joules=1.0)
    for batch in range(10):
        first.update(0, batch, 0.1 if first.needs_estimate(0, batch) else None)
        assert first.strength == 0
    first.finish_epoch(0, 0.1, 0.1)
    first.update(1, 0, 0.1)
    assert first.strength > 0
    again = ControlLaw(0.3, 4, 10)
    again.load_state_dict(first.state_dict())
    for budget in (first, again):
        budget.update(1, 1, 0.09)
    assert again.strength == first.strength
    assert again.state_dict() == first.state_dict()


def test_a_short_hold_is_checked_several_times_and_a_long_one_after_its_epochs() -> None:
    def checked(epochs: int, batches: int) -> list[tuple[int, int]]:
        budget = ControlLaw(0.3, epochs, batches, reference=1.0)
        budget.finish_epoch(0, 1.0, 0.1)
        return [(e, b) for e in range(epochs) for b in range(batches) if budget.needs_measurement(e, b)]

    assert checked(7, 100) == [(6, 20), (6, 46), (6, 72), (6, 98)]
    assert len(checked(150, 500)) <= 4


@pytest.mark.parametrize(
    ("rate", "weight"), [(0.0, -1), (FLOOR / 4, -0.25), (FLOOR, 0), (2.5 * FLOOR, 0.5), (5 * FLOOR, 1)]
)
def test_the_guard_spares_a_layer_near_the_floor_and_pays_one_below_it(rate: float, weight: float) -> None:
    guard = LayerGuard({"a": 0.25, "b": 0.75})
    shares = {"a": torch.tensor(0.25 * rate), "b": torch.tensor(0.75 * 0.5)}
    guard.observe(guard.observations(shares, 1.0))
    assert guard.weights == pytest.approx({"a": weight, "b": 1}, abs=1e-6)
    assert guard.charge(shares).item() == pytest.approx(weight * 0.25 * rate + 0.75 * 0.5, rel=1e-6)
    assert guard.holding == (["a"] if weight < 1 else [])
