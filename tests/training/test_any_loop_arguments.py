"""Loops of one's own: the network comes back as it was, and what is not valid is refused at once in one sentence."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.errors import PicojouleError

SAMPLE = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 2


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), pj.Spike(), nn.Linear(8, 8), nn.BatchNorm1d(8), pj.Spike(), nn.Linear(8, 2)
    )


def watched(net: nn.Module) -> pj.Activity:
    with pj.watch(net) as activity:
        net(SAMPLE)
    return activity


@pytest.mark.parametrize("training", [False, True])
def test_a_measurement_leaves_every_mode_as_it_was(training: bool) -> None:
    net = network().train(training)
    budget = pj.Budget(net, SAMPLE, 0.5, 60)
    net[1].eval()
    modes, state = [module.training for module in net.modules()], copy.deepcopy(net.state_dict())
    for measure in (budget.joules, lambda: budget.met, *[budget.step] * 4):
        measure()
        assert [module.training for module in net.modules()] == modes
    assert budget.reference is not None or budget.state_dict()["law"]["omega"] is not None
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    net.forward = lambda x: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        budget.joules()
    assert [module.training for module in net.modules()] == modes


def test_a_frozen_batch_norm_is_looked_at_by_its_running_averages() -> None:
    omegas = []
    for mean in (-50.0, 50.0):  # all neurons fire, or none
        net = network()
        net[1].eval()
        net[1].running_mean.fill_(mean)
        budget = pj.Budget(net, SAMPLE, 0.5, 60)
        omegas.append(budget._omega())
    assert omegas[0] > omegas[1]


def test_a_suggestion_leaves_the_network_as_it_was() -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    assert pj.suggest_strength(net, (SAMPLE, LABELS)) > 0
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.training
    assert all(weight.grad is None for weight in net.parameters())


WRONG_BUDGETS: list[tuple[dict[str, Any], str]] = [
    *[({"budget": wrong}, "is not a budget: give a share") for wrong in (None, [], True, float("nan"))],
    ({"hardware": "foo"}, "foo"),
    ({"hardware": None}, "hardware is a name or a PriceList"),
    ({"sample": None}, "sample is a NoneType, not a tensor: give the inputs alone"),
    ({"sample": (SAMPLE, LABELS)}, "sample is a tuple, not a tensor"),
    ({"sample": SAMPLE[:0]}, "holds no input"),
    ({"sample": SAMPLE * float("nan")}, "sample has values that are NaN or infinite"),
    ({"steps": "4"}, "steps='4' is not a number of time steps"),
    ({"steps": 0}, "steps=0 is not a number of time steps"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG_BUDGETS)
def test_what_is_no_argument_of_a_budget_is_refused(wrong: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {"sample": SAMPLE, "budget": 0.5, "updates": 100} | wrong
    with pytest.raises(PicojouleError, match=said) as refusal:
        pj.Budget(network(), **arguments)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("floor", [0.0, -1, 1.0, float("nan"), None, "0.1", True])
def test_what_is_no_floor_is_refused(floor: Any) -> None:
    with pytest.raises(PicojouleError, match=r"floor=.* is not a firing rate: give a number above 0 and below 1"):
        pj.Guard(pj.trace(network(), SAMPLE[:1]), floor=floor)


def test_what_is_no_cross_entropy_is_refused() -> None:
    net = network()
    guard = pj.Guard(pj.trace(net, SAMPLE[:1]), classes=2)
    wrong: Any = 0.5
    with pytest.raises(PicojouleError, match=r"the cross-entropy is 0\.5, not a tensor of one number"):
        guard(watched(net), wrong)
    with pytest.raises(PicojouleError, match=r"the cross-entropy has the shape \[40\], not one number"):
        guard(watched(net), torch.ones(40))


def test_what_gives_no_suggestion_is_refused() -> None:
    net, pair = network(), (SAMPLE, LABELS)
    wrong: Any
    for wrong in (0, -1.0, float("nan"), float("inf"), None, True):
        with pytest.raises(PicojouleError, match=r"share=.* is not a share of the loss's gradient"):
            pj.suggest_strength(net, pair, share=wrong)
    for wrong in (SAMPLE, None, (SAMPLE,), {"x": SAMPLE, "y": LABELS}):
        with pytest.raises(PicojouleError, match="not a pair: give"):
            pj.suggest_strength(net, wrong)
    with pytest.raises(PicojouleError, match="the input of the batch has values that are NaN"):
        pj.suggest_strength(net, (SAMPLE * float("nan"), LABELS))
    with torch.no_grad(), pytest.raises(PicojouleError, match="call it outside no_grad"):
        pj.suggest_strength(net, pair)
    with pytest.raises(PicojouleError, match=r"the loss has the shape \[40\], not one number"):
        pj.suggest_strength(net, pair, lambda y, t: nn.functional.cross_entropy(y, t, reduction="none"))
    with pytest.raises(PicojouleError, match="the loss has no gradient"):
        pj.suggest_strength(net, pair, lambda y, t: y.detach().mean())
    net.requires_grad_(False)
    with pytest.raises(PicojouleError, match="all weights of the network are frozen"):
        pj.suggest_strength(net, pair)
    net[6].requires_grad_(True)  # behind all spikes
    with pytest.raises(PicojouleError, match="the penalty has no gradient"):
        pj.suggest_strength(net, pair)


def test_a_state_of_something_else_is_refused() -> None:
    net = network()
    budget = pj.Budget(net, SAMPLE, 0.5, 60)
    budget(watched(net))
    budget.step()
    state = budget.state_dict()
    wrong: Any
    for wrong in ({}, None, [1], {"update": 3}, {**state, "law": {}}):
        with pytest.raises(PicojouleError, match="this is not the state of a budget: give what"):
            budget.load_state_dict(wrong)
    with pytest.raises(PicojouleError, match=r"of a budget with budget=0\.5, and this one has 0\.3"):
        pj.Budget(net, SAMPLE, 0.3, 60).load_state_dict(state)
    with pytest.raises(PicojouleError, match="of a budget with updates=60, and this one has 80"):
        pj.Budget(net, SAMPLE, 0.5, 80).load_state_dict(state)
    other = nn.Sequential(nn.Linear(6, 8), pj.Spike(), nn.Linear(8, 2))
    with pytest.raises(PicojouleError, match="this state guards 2 layers and the network has 1"):
        pj.Budget(other, SAMPLE, 0.5, 60).load_state_dict(state)
    with pytest.raises(PicojouleError, match="this is not the state of a guard"):
        pj.Guard(pj.trace(net, SAMPLE[:1])).load_state_dict({"rates": [0.1]})
    of_an_earlier_version = {key: state[key] for key in ("update", "law", "guard")}
    again = pj.Budget(net, SAMPLE, 0.5, 60)
    again.load_state_dict(of_an_earlier_version)
    assert again.state_dict() == state


class OverTime(nn.Module):
    """A network that takes [T, B, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.neuron, self.last = nn.Linear(6, 8), pj.LIF(steps=4), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.neuron(self.first(x.flatten(0, 1)))).unflatten(0, x.shape[:2])
        return outputs


def test_samples_over_time_are_taken_with_all_their_steps() -> None:
    torch.manual_seed(0)
    net, sample = OverTime(), 4 * torch.rand(4, 10, 6)
    budget = pj.Budget(net, sample, 0.5, 60, steps=4)
    synapses = pj.trace(net, sample[:, :1], steps=4)
    assert (budget.synapses.encoder_macs, budget.synapses.steps) == (synapses.encoder_macs, 4)
    meter = pj.EnergyMeter(synapses)
    net.eval()
    with torch.no_grad(), pj.watch(net, 4) as activity:
        net(sample)
    meter.update(activity)
    assert budget.joules() == meter.compute().joules > 0
    assert pj.suggest_strength(net, (sample, torch.arange(10) % 2), steps=4) > 0
