"""Budgets and first strengths in a plain training loop, on a network of each framework: within 3 % and 3 points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
import plain_loop
from frameworks import need
from plain_loop import Charge

STEPS, EPOCHS = 4, 6


class SnnTorch(nn.Module):
    """States given and returned, in a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        snn = need("snntorch")
        self.first, self.lif1 = nn.Linear(64, 48), snn.Leaky(beta=0.8)
        self.second, self.lif2, self.last = nn.Linear(48, 32), snn.Leaky(beta=0.8), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        mem1, mem2, logits = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.first(x.flatten(1)), mem1)
            spk2, mem2 = self.lif2(self.second(spk1), mem2)
            logits.append(self.last(spk2))
        return torch.stack(logits).mean(0)


class SpikingJelly(nn.Module):
    """All steps in one call, [T, B, …], with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        neuron, layer = (need(f"spikingjelly.activation_based.{name}") for name in ("neuron", "layer"))
        self.functional = need("spikingjelly.activation_based.functional")
        self.net = nn.Sequential(
            *(layer.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), layer.BatchNorm2d(8), neuron.IFNode()),
            *(layer.Conv2d(8, 16, 3, padding=1, bias=False), layer.BatchNorm2d(16), neuron.LIFNode(tau=1.5)),
            *(layer.Flatten(), layer.Linear(256, 10)),
        )
        self.functional.set_step_mode(self, "m")

    def forward(self, x: Tensor) -> Tensor:
        self.functional.reset_net(self)
        out: Tensor = self.net(x.unsqueeze(0).expand(STEPS, *x.shape)).mean(0)
        return out


class Norse(nn.Module):
    """Cells in a loop, with their states."""

    def __init__(self) -> None:
        super().__init__()
        norse = need("norse.torch")
        threshold = norse.LIFBoxParameters(v_th=torch.tensor(0.3), tau_mem_inv=torch.tensor(400.0))
        self.first, self.lif1 = nn.Linear(64, 48), norse.LIFBoxCell(threshold)
        self.second, self.lif2, self.last = nn.Linear(48, 32), norse.LIFBoxCell(threshold), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        s1 = s2 = None
        logits = []
        for _ in range(STEPS):
            spk1, s1 = self.lif1(self.first(x.flatten(1)), s1)
            spk2, s2 = self.lif2(self.second(spk1), s2)
            logits.append(self.last(spk2))
        return torch.stack(logits).mean(0)


class Sinabs(nn.Module):
    """All steps in one call, [B, T, …]."""

    def __init__(self) -> None:
        super().__init__()
        layers = need("sinabs.layers")
        self.first, self.iaf1 = nn.Linear(64, 48), layers.IAF()
        self.second, self.iaf2, self.last = nn.Linear(48, 32), layers.LIF(tau_mem=4.0), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        for neuron in (self.iaf1, self.iaf2):
            neuron.reset_states()
        over_time = x.flatten(1).unsqueeze(1).expand(-1, STEPS, -1)
        out: Tensor = self.last(self.iaf2(self.second(self.iaf1(self.first(over_time))))).mean(1)
        return out


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "snntorch": SnnTorch,
    "spikingjelly": SpikingJelly,
    "norse": Norse,
    "sinabs": Sinabs,
}


@pytest.fixture(scope="module")
def digits() -> Any:
    data = pj.data.load("digits")
    shown = [data.normalization(part.images.float() / 255)[:, :, ::4, ::4] for part in (data.train, data.test)]
    return shown[0], data.train.labels, shown[1], data.test.labels


def built(framework: str) -> nn.Module:
    need(framework)
    torch.manual_seed(0)
    return NETWORKS[framework]()


def trained(net: nn.Module, data: Any, charge: Charge, after: Callable[[], None] = lambda: None) -> float:
    torch.manual_seed(1)
    return plain_loop.trained(net, data, charge, STEPS, EPOCHS, after)


@pytest.mark.parametrize("share", ["50%", "20%"])
@pytest.mark.parametrize("framework", NETWORKS)
def test_a_budget_is_met(framework: str, share: str, digits: Any) -> None:
    net = built(framework)
    updates = EPOCHS * plain_loop.updates(digits[0])
    budget = pj.Budget(net, digits[0][::4], share, updates, steps=STEPS, classes=10)
    accuracy = trained(net, digits, lambda activity, entropy, _: budget(activity, entropy), budget.step)
    assert budget.target is not None
    print(f"{framework} {share}: {budget.joules() / budget.target - 1:+.2%} of the target, {accuracy:.1%} right")
    assert budget.joules() == pytest.approx(budget.target, rel=0.03)
    assert budget.met
    assert accuracy > 0.5


@pytest.mark.parametrize("framework", NETWORKS)
def test_a_suggested_strength_leaves_the_accuracy(framework: str, digits: Any) -> None:
    baseline = trained(built(framework), digits, lambda activity, entropy, epoch: 0.0)
    net = built(framework)
    strength = pj.suggest_strength(net, (digits[0][:200], digits[1][:200]), steps=STEPS)
    penalty = pj.Penalty(pj.trace(net, digits[0][:1], steps=STEPS))
    accuracy = trained(net, digits, lambda a, _, e: pj.schedule.linear(strength, e, EPOCHS) * penalty(a))
    print(f"{framework}: strength {strength:.3g}, {accuracy:.1%} right, baseline {baseline:.1%}")
    assert strength > 0
    assert accuracy > baseline - 0.03
