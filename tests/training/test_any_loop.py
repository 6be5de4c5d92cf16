"""Budgets, guards and first strengths in training loops of one's own, and what keeps a guarded run alive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj
import tiny
from picojoule.errors import PicojouleError
from picojoule.training.budget.controller import few_updates
from picojoule.training.budget.guard import LayerGuard
from picojoule.training.budget.recovery import Recovery
from picojoule.training.loop import Training
from plain_loop import trained, updates

EPOCHS = 8


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Original 8×8 pixels, normalised."""
    data = pj.data.load("digits")
    shown = [data.normalization(part.images.float() / 255)[:, :, ::4, ::4] for part in (data.train, data.test)]
    return shown[0], data.train.labels, shown[1], data.test.labels


def mlp(norm: bool, width: int = 64) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for size in (64, width):
        layers += [nn.Linear(size, width), *([nn.BatchNorm1d(width)] if norm else []), pj.Spike()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def cnn(norm: bool) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        return [conv, *([nn.BatchNorm2d(outputs)] if norm else []), pj.Spike()]

    return nn.Sequential(*block(1, 8), *block(8, 16), nn.Flatten(), nn.Linear(64, 10))


class OverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.neuron, self.last = nn.Linear(64, 48), pj.LIF(steps=4), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        currents = self.first(x.flatten(1)).repeat(4, 1)
        return self.last(self.neuron(currents)).unflatten(0, (4, -1)).mean(0)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mlp": (lambda: mlp(True), 1),
    "mlp without norm": (lambda: mlp(False), 1),
    "cnn": (lambda: cnn(True), 1),
    "cnn without norm": (lambda: cnn(False), 1),
    "lif": (OverTime, 4),
}
OF_EACH_KIND = ("mlp without norm", "cnn", "lif")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if number else ()) for number, name in enumerate(NETWORKS)]
)
def test_a_budget_in_a_loop_of_ones_own_is_met(name: str, digits: Any) -> None:
    build, steps = NETWORKS[name]
    net = build()
    budget = pj.Budget(net, digits[0][::4], "50%", EPOCHS * updates(digits[0]), steps=steps, classes=10)
    accuracy = trained(net, digits, lambda a, ce, _: budget(a, ce), steps, EPOCHS, budget.step)
    assert budget.target is not None
    assert budget.joules() == pytest.approx(budget.target, rel=0.03)
    assert accuracy > 0.65


@pytest.mark.slow
@pytest.mark.parametrize("norm", [True, False])
def test_a_budget_that_is_missed_is_told_after_the_last_update(
    norm: bool, digits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The learning rate is constant, so the network may end anywhere near the budget."""
    torch.manual_seed(0)
    net, count = mlp(norm), 300
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    budget = pj.Budget(net, digits[0][::4], "50%", count, classes=10)
    for _ in range(count):
        assert "of the budget" not in caplog.text
        rows = torch.randint(len(digits[0]), (25,))
        with pj.watch(net) as activity:
            entropy = F.cross_entropy(net(digits[0][rows]), digits[1][rows])
        optimizer.zero_grad()
        (entropy + budget(activity, entropy)).backward()
        optimizer.step()
        budget.step()
    assert budget.target is not None
    missed = abs(budget.joules() / budget.target - 1) > 0.03
    assert ("let the learning rate fall to zero at the end" in caplog.text) is missed


def test_few_updates_of_a_loop_are_told(digits: Any, caplog: pytest.LogCaptureFixture) -> None:
    pj.Budget(mlp(True), digits[0][:50], "50%", 100)
    assert "needs about 250 updates to be met, and this loop has 100" in caplog.text
    caplog.clear()
    pj.Budget(mlp(True), digits[0][:50], "50%", 250)
    assert not caplog.text


def test_a_budget_leaves_frozen_batch_norms_and_modes_as_they_are(digits: Any) -> None:
    """Averages of norms that train are those of the sample whenever the energy is measured; frozen ones stay."""
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 8), nn.BatchNorm1d(8), pj.Spike())
    net.append(nn.Linear(8, 10)).train()
    net[1].eval()
    frozen = {name: value.clone() for name, value in net[1].state_dict().items()}
    sample = digits[0][:80]
    budget = pj.Budget(net, sample, "50%", 60)
    for _ in range(9):  # the first measurement after the reference is known
        with pj.watch(net) as activity:
            entropy = F.cross_entropy(net(sample[:20]), digits[1][:20])
        (entropy + budget(activity)).backward()
        budget.step()
    assert budget.reference is not None
    assert all(torch.equal(value, frozen[name]) for name, value in net[1].state_dict().items())
    assert (net[1].training, net[3].training, net[3].momentum) == (False, True, 0.1)
    with torch.no_grad():
        currents = net[2]((sample.flatten(1) - net[1].running_mean) / (net[1].running_var + 1e-5).sqrt())
    torch.testing.assert_close(net[3].running_mean, currents.mean(0), rtol=1e-4, atol=1e-5)


def test_a_budget_goes_on_from_its_state(digits: Any) -> None:
    def three(budget: pj.Budget, net: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for number in range(first, last):
            rows = slice(10 * (number % 50), 10 * (number % 50) + 10)
            with pj.watch(net) as activity:
                entropy = F.cross_entropy(net(digits[0][rows]), digits[1][rows])
            optimizer.zero_grad()
            (entropy + budget(activity)).backward()
            optimizer.step()
            budget.step()

    strengths = []
    for stop in (False, True):
        torch.manual_seed(0)
        net = mlp(True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        budget = pj.Budget(net, digits[0][:50], 0.5, 100)
        three(budget, net, optimizer, 0, 50)
        if stop:
            state = budget.state_dict()
            budget = pj.Budget(net, digits[0][:50], 0.5, 100)
            budget.load_state_dict(state)
        three(budget, net, optimizer, 50, 80)
        strengths.append(budget.strength)
    assert strengths[0] == strengths[1] != 0


@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.slow
def test_a_suggested_strength_leaves_the_accuracy(name: str, digits: Any) -> None:
    """Charged in full from the first batch."""
    build, steps = NETWORKS[name]
    accuracies = []
    for charged in (False, True):
        torch.manual_seed(0)
        net = build()
        strength = pj.suggest_strength(net, (digits[0][:200], digits[1][:200]), steps=steps)
        assert strength > 0
        penalty = pj.Penalty(pj.trace(net, digits[0][:1], steps=steps))

        def charge(
            activity: pj.Activity, entropy: Tensor, epoch: int, s: float = strength * charged, p: Any = penalty
        ) -> Tensor:
            return s * p(activity)

        torch.manual_seed(1)
        accuracies.append(trained(net, digits, charge, steps, EPOCHS))
    print(f"{name}: strength {strength:.3g}, {accuracies[1]:.1%} right, baseline {accuracies[0]:.1%}")
    assert accuracies[1] > accuracies[0] - 0.03


@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.slow
def test_a_guard_keeps_a_network_alive_that_the_penalty_alone_kills(name: str, digits: Any) -> None:
    build, steps = NETWORKS[name]
    accuracies = {}
    for guarded in (False, True):
        torch.manual_seed(2)
        net = build()
        synapses = pj.trace(net, digits[0][:1], steps=steps)
        guard, penalty = pj.Guard(synapses, classes=10), pj.Penalty(synapses)

        def charge(
            activity: pj.Activity, entropy: Tensor, epoch: int, on: bool = guarded, g: Any = guard, p: Any = penalty
        ) -> Tensor:
            return 30.0 * (g(activity, entropy) if on else p(activity))

        accuracies[guarded] = trained(net, digits, charge, steps, 4, guard.step)
    assert accuracies[True] > 0.25
    assert accuracies[True] > accuracies[False] - 0.05


def test_what_is_no_budget_is_refused(digits: Any) -> None:
    net, sample = mlp(True), digits[0][:50]
    for wrong in (0.0, 1.5, "a lot", "-3 uJ"):
        with pytest.raises(PicojouleError, match="is not a budget"):
            pj.Budget(net, sample, wrong, 100)
    with pytest.raises(PicojouleError, match="updates=10 are too few"):
        pj.Budget(net, sample, 0.5, 10)
    guard = pj.Guard(pj.trace(net, sample[:1]), classes=10)
    with pj.watch(net) as activity:
        net(sample)
    with pytest.raises(PicojouleError, match="needs the cross-entropy"):
        guard(activity)
    silent = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), pj.Spike(surrogate=pj.surrogate.Triangle()), nn.Linear(4, 2))
    with torch.no_grad():
        silent[1].bias.fill_(-50.0)
    with pytest.raises(PicojouleError, match="the penalty has no gradient on this batch"):
        pj.suggest_strength(silent, (sample, torch.arange(50) % 2))


def test_the_charge_waits_for_learning_and_rests_when_it_is_lost() -> None:
    guard = LayerGuard({"spike": 1.0}, classes=10)
    shares = {"spike": torch.tensor(0.5)}
    assert guard.charge(shares) == 0  # nothing is learned yet
    for _ in range(40):
        guard.observe([0.5, 0.2])
    assert guard.charge(shares) == 0.5
    for _ in range(40):
        guard.observe([0.5, math.log(10)])
    assert guard.charge(shares) == 0
    guard.observe([0.0, math.log(10)])
    assert guard.charge(shares) == -0.5  # a silent layer is rewarded all the same
    again = LayerGuard({"spike": 1.0}, classes=10)
    again.load_state_dict(guard.state_dict())
    assert again.charge(shares) == guard.charge(shares)
    again.load_state_dict([0.5])  # a checkpoint of an earlier version
    assert again.charge(shares) == 0.5


@pytest.mark.parametrize(
    ("model", "strength", "least"),
    [
        *(("tiny:fragile", 1, 0.5), ("tiny:fragile", 256, 0.15)),
        ("dying:deep", 1000, 0.15),
        *(("dying:Residual", 64, 0.5), ("dying:Residual", 1000, 0.25)),
        ("dying:OverTime", 1000, 0.15),
    ],
)
@pytest.mark.slow
def test_a_guarded_run_of_a_network_without_norms_ends_alive(
    model: str, strength: int, least: float, tmp_path: Path
) -> None:
    few = ("training.epochs=10", "data.limit=1200", "optimizer.lr=0.003", f"penalty.strength={strength}")
    time = ("neuron.kind=lif", "neuron.steps=4") if model == "dying:OverTime" else ()
    run = pj.fit(tiny.recipe(f"model.name={model}", "penalty.guard=true", *few, *time), tmp_path)
    test = run.result.test
    print(f"{model}, strength {strength}: {test.accuracy:.1%} right, rates {[layer.rate for layer in test.layers]}")
    assert test.accuracy > least
    assert all(layer.rate for layer in test.layers)


def test_a_layer_that_is_silent_from_the_start_is_woken_gently_whatever_the_strength() -> None:
    guard = LayerGuard({"spike": 1.0}, classes=10)
    shares = {"spike": torch.tensor(0.5)}
    guard.observe([0.0, math.log(10)])
    rewards = [strength * guard.charge(shares, strength).item() for strength in (8.0, 16.0, 64.0, 1000.0)]
    assert rewards == pytest.approx([-4.0, -8.0, -8.0, -8.0])
    for _ in range(40):
        guard.observe([0.0, 0.2])
    assert guard.charge(shares, 1000.0) == -0.5  # now there is a charge that holds it down


def test_the_way_back_keeps_the_last_good_weights_and_its_state() -> None:
    good, bad = {"w": torch.ones(2)}, {"w": torch.zeros(2)}
    recovery = Recovery()
    assert not recovery.after_epoch(["spike1"], 0.0, bad)
    assert not recovery.after_epoch(["spike1"], 0.0, bad)  # nothing to go back to
    assert not recovery.after_epoch([], 1.0, good)
    assert not recovery.after_epoch([], 0.2, bad)  # still alive, but worse
    assert not recovery.after_epoch([], 0.0, bad)
    again = Recovery()
    again.load_state_dict(recovery.state_dict(), recovery.weights)
    for each in (recovery, again):
        assert each.to_be_taken
        assert each.after_epoch(["spike1"], 0.0, bad)
        assert torch.equal(each.weights["w"], good["w"])
        assert each.factor == 0.25
        assert not each.to_be_taken


def test_few_updates_are_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recipe = tiny.recipe("penalty.strength=0", "penalty.budget=0.5", "training.epochs=3")
    said = few_updates(recipe, tiny.BATCHES)
    assert said is not None
    assert "needs about 250 updates to be met, and this run has 15" in said
    assert "training.epochs=50 or training.batch_size=2" in said
    pj.fit(recipe, tmp_path)
    assert said in caplog.text
    assert few_updates(recipe.override("training.epochs=50"), tiny.BATCHES) is None


def budgeted(*overrides: str) -> pj.Recipe:
    few = ("penalty.strength=0", "penalty.budget=0.5", "training.epochs=20", "data.limit=600")
    return tiny.recipe("model.name=tiny:normed", *few, *overrides)


@pytest.mark.slow
def test_a_strict_budget_is_never_exceeded(tmp_path: Path) -> None:
    result = pj.fit(budgeted("penalty.strict=true"), tmp_path).result
    assert result.budget is not None
    assert result.budget.met
    assert result.validation.joules is not None
    assert 0.9 * result.budget.target_joules < result.validation.joules <= result.budget.target_joules
    with pytest.raises(PicojouleError, match=r"no network of this run stays within .* penalty\.strict demands"):
        pj.fit(budgeted("penalty.strict=true", "penalty.budget=0.001", "training.epochs=3"), tmp_path)
    with pytest.raises(PicojouleError, match=r"penalty\.strict = true is not allowed without penalty\.budget"):
        tiny.recipe("penalty.strict=true")


@pytest.mark.slow
def test_a_budget_counts_everything_if_it_is_told_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = pj.fit(budgeted("penalty.budget_on=total", "penalty.budget=0.98"), tmp_path).result
    validation, reference = result.validation, result.reference_joules
    assert validation.joules is not None
    assert validation.total_joules is not None
    assert reference is not None
    fixed = validation.total_joules - validation.joules
    assert fixed > 0
    assert validation.total_joules == pytest.approx(0.98 * (reference + fixed), rel=0.01)
    assert validation.joules < 0.95 * reference
    assert "encoder and neuron updates cost" in caplog.text
    with pytest.raises(PicojouleError, match=r"is less than the .* that encoder and neuron updates cost"):
        pj.fit(budgeted("penalty.budget_on=total", "penalty.budget=1 pJ"), tmp_path)
    with pytest.raises(PicojouleError, match="needs a price for the encoder, which loihi does not have"):
        pj.fit(budgeted("penalty.budget_on=total", "energy.hardware=loihi"), tmp_path)


@pytest.mark.slow
def test_a_run_with_a_budget_goes_back_from_two_epochs_of_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer is said to be silent after the epochs 9 and 10, as the validation images show it."""
    seen: list[dict[str, Tensor]] = []
    measure = Training._measure

    def measured(training: Training, split: Any) -> Any:
        found = measure(training, split)
        if split == "validation":
            seen.append({name: weight.clone() for name, weight in training._learner.model.state_dict().items()})
        if split != "validation" or len(seen) not in (9, 10):
            return found
        first, *others = found.energy.layers
        layers = (dataclasses.replace(first, rate=0.0), *others)
        return dataclasses.replace(found, energy=dataclasses.replace(found.energy, layers=layers))

    monkeypatch.setattr(Training, "_measure", measured)
    began: list[dict[str, Tensor]] = []
    train_epoch = Training._train_epoch

    def from_here(training: Training, progress: Any, stop: Any) -> None:
        began.append({name: weight.clone() for name, weight in training._learner.model.state_dict().items()})
        train_epoch(training, progress, stop)

    monkeypatch.setattr(Training, "_train_epoch", from_here)
    run = pj.fit(budgeted(), tmp_path)
    assert "after epoch 10 the run goes back to its last good weights" in caplog.text
    good, after = seen[7], began[10]
    learned = [name for name in good if "running" not in name]  # averages are taken anew
    assert all(torch.equal(good[name], after[name]) for name in learned)
    assert not all(torch.equal(seen[9][name], after[name]) for name in learned)
    assert all(layer.rate for layer in run.result.test.layers)
    assert run.result.test.accuracy > 0.6
    assert run.result.budget is not None  # met or not, it says so: half of the strength may be too little
    assert run.result.budget.met is ("is missed" not in caplog.text)
