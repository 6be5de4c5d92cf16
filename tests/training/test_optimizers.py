"""Adam in pieces against PyTorch's own: the same bits, the same state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from picojoule.training import optimizers
from picojoule.training.optimizers import Adam

SHAPES = ((7,), (40, 30), (16, 8, 3, 3), (1, 130, 1, 1), (2, 1, 50))


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True}])
def test_pieces_have_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    monkeypatch.setattr(optimizers, "_PIECE", 100)
    parameters = [_parameters() for _ in range(2)]
    ours, theirs = (kind(p, lr=0.1, **settings) for kind, p in zip((Adam, torch.optim.Adam), parameters, strict=True))
    for step in range(4):
        torch.manual_seed(step)
        for pair in zip(*parameters, strict=True):
            gradient = torch.randn(pair[0].shape)
            for p in pair:
                p.grad = None if step == 2 and p.dim() == 1 else torch.empty_like(p).copy_(gradient)
        ours.step()
        theirs.step()
    for mine, reference in zip(*parameters, strict=True):
        assert torch.equal(mine, reference)
    found, wanted = ours.state_dict(), theirs.state_dict()
    assert found["param_groups"] == wanted["param_groups"]
    for i, state in wanted["state"].items():
        assert found["state"][i].keys() == state.keys()
        assert all(torch.equal(found["state"][i][name], value) for name, value in state.items())


def test_a_gradient_in_another_layout_is_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_PIECE", 10)
    weights = [nn.Parameter(torch.ones(6, 5)) for _ in range(2)]
    for weight, kind in zip(weights, (Adam, torch.optim.Adam), strict=True):
        weight.grad = torch.arange(30.0).view(5, 6).T
        kind([weight], lr=0.1).step()
    assert torch.equal(*weights)


def test_what_lies_with_gaps_or_overlaps_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_PIECE", 4)
    assert optimizers._pieces(torch.zeros(4, 8)[:, ::2]) is None
    assert optimizers._pieces(torch.zeros(1).expand(9)) is None
    pieces = optimizers._pieces(torch.arange(9.0))
    assert pieces is not None
    assert [len(piece) for piece in pieces] == [4, 4, 1]


def _parameters() -> list[Tensor]:
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    made[2].data = made[2].data.to(memory_format=torch.channels_last)
    return made
