"""A layer's choice between dense and events: with hysteresis, and the same again from the same numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from picojoule.kernels.event_driven import costs
from picojoule.kernels.event_driven.choice import LOOK_EVERY, Choice
from picojoule.kernels.event_driven.geometry import Geometry

SHAPE = Geometry(1, 1, 1, 1, (1, 1), (1, 1))
pytestmark = pytest.mark.usefixtures("known_costs")


def told(choice: Choice, active: int) -> bool:
    """One call with so many of 100 inputs active, as a layer makes it."""
    x = torch.zeros(100)
    x[:active] = 1
    taken = choice.take_call(x, SHAPE)
    if taken:
        choice.decide(active / 100, x, SHAPE)
    return taken


def test_a_choice_with_hysteresis() -> None:
    choice = Choice()
    assert [told(choice, 60)] + [told(choice, 1) for _ in range(LOOK_EVERY)] == [False] * LOOK_EVERY + [True]
    assert told(choice, 45)  # above the break-even, not clearly
    assert told(choice, 50)  # clearly: but that is known only afterwards
    assert not told(choice, 1)
    assert (choice.calls, choice.event_calls) == (LOOK_EVERY + 4, 3)


def test_a_layer_without_silence_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "break_even", lambda shape, kind, valued: 1 / 0)
    choice = Choice()
    assert not told(choice, 100)
    assert choice.break_even is None


def test_the_same_again_from_the_same_numbers() -> None:
    first, again = Choice(), Choice()
    history = [60, 30, 10, 44, 46, 49, 3, 90, 2] * 5
    for active in history[:20]:
        told(first, active)
    again.set_numbers(torch.tensor(first.to_numbers(), dtype=torch.float64).tolist())
    assert again == first
    assert [told(again, active) for active in history[20:]] == [told(first, active) for active in history[20:]]
    again.set_numbers(Choice().to_numbers())
    assert again == Choice()


def test_pooled_spikes_and_sums_are_measured_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(costs, "break_even", lambda shape, kind, valued: asked.append(valued) or 0.4)
    for values in ([0, 1, 0, 1], [0, 2.5, 2.5, 0], [0, 0, 0, 0], [0, 1, 2, 0], [0, -1, 0, 0, 1]):
        Choice().take_call(torch.tensor(values), SHAPE)
    assert asked == [False, False, False, True, True]


def test_a_tiny_first_batch_does_not_settle_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def measured(shape: Geometry, kind: torch.dtype, valued: bool) -> float:
        asked.append(shape.images)
        return 0.0 if shape.images < 10 else 0.4

    monkeypatch.setattr(costs, "break_even", measured)
    choice = Choice()
    for images in (1, 2, 3, 64, 64, 100, 8):
        choice.decide(0.1, torch.ones(1), replace(SHAPE, images=images))
        assert choice.by_events is (len(asked) > 1)
    assert asked == [1, 64]
    again = Choice()
    again.set_numbers(choice.to_numbers())
    again.decide(0.1, torch.ones(1), replace(SHAPE, images=200))
    assert asked == [1, 64]
    again.set_numbers(choice.to_numbers()[:5])  # of a checkpoint before what was measured was kept
    assert again.measured_products is None


def test_a_layer_that_is_never_faster_by_events_stays_dense_in_silence() -> None:
    choice = Choice(break_even=0.0)
    assert not told(choice, 0)
    choice.by_events = True
    choice.decide(0.0, torch.zeros(1), SHAPE)
    assert not choice.by_events
