"""Parameters and bytes of a network: by hand, and against a ledger of every tensor that the network makes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.runs.footprint import footprint


class Residual(nn.Module):
    """Three tensors of 64 numbers live at once: the input, what the branch holds, and what it becomes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.first(x).relu_()
        branch = self.second(branch)
        return branch.add_(x)


def test_parameters_and_weights_count_what_is_shared_once() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), pj.Spike(), nn.Linear(8, 8))
    net[3].weight = net[0].weight
    found = footprint(net.eval(), torch.zeros(1, 8))
    assert found.parameters == 64 + 8 + 16 + 8
    assert found.weight_bytes == 4 * (64 + 8 + 16 + 16 + 8) + 8  # running averages, and an int64 counter
    assert footprint(nn.Linear(8, 8).bfloat16(), torch.zeros(1, 8).bfloat16()).weight_bytes == 2 * 72


@pytest.mark.parametrize(
    ("net", "inputs", "numbers"),
    [
        (nn.Sequential(nn.Linear(10, 1000), nn.ReLU(), nn.Linear(1000, 2)), 10, 10 + 1000 + 1000),
        (nn.Sequential(nn.Linear(10, 1000), nn.ReLU(inplace=True), nn.Linear(1000, 2)), 10, 10 + 1000 + 2),
        (nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Identity()), 50, 50),  # nothing new is made
        (Residual(), 64, 3 * 64),
    ],
)
def test_the_most_that_lives_at_once(net: nn.Module, inputs: int, numbers: int) -> None:
    assert footprint(net.eval(), torch.zeros(1, inputs)).peak_activation_bytes == 4 * numbers


def test_the_network_stays_as_it_is() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), pj.Spike(), nn.Linear(4, 2)).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    random = torch.get_rng_state()
    footprint(net, torch.ones(1, 4))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
