from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from picojoule.training.budget.batch_norm import by_batch_statistics, recompute_running_averages


class Frozen(nn.BatchNorm1d):
    """Never in training mode, as in networks that are fine-tuned."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(False)
        return self


def network(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), norm, nn.Dropout(0.5), nn.Linear(3, 2))


def state(model: nn.Module) -> list[Tensor]:
    return [value.clone() for value in model.state_dict().values()]


NORMS = {
    "plain": lambda: nn.BatchNorm1d(3),
    "cumulative": lambda: nn.BatchNorm1d(3, momentum=None),
    "no averages": lambda: nn.BatchNorm1d(3, track_running_stats=False),
    "none": nn.Identity,
    "frozen": lambda: Frozen(3),
}


@pytest.mark.parametrize("kind", NORMS)
def test_a_look_goes_by_the_batch_and_leaves_no_trace(kind: str) -> None:
    torch.manual_seed(0)
    model, images = network(NORMS[kind]()), torch.randn(8, 4)
    model.train()
    for _ in range(3):
        model(torch.randn(8, 4) + 1)
    before, attributes = state(model), dict(vars(model[1]))
    with by_batch_statistics(model):
        seen, again = model(images), model(images)
    assert torch.equal(seen, again)  # no dropout
    assert all(map(torch.equal, state(model), before))
    assert dict(vars(model[1])) == attributes
    assert model.training
    assert model[2].training
    hidden = model[0](images)
    if kind in ("plain", "cumulative", "no averages"):
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    elif kind == "frozen":
        hidden = hidden / (1 + 1e-5) ** 0.5
    assert torch.allclose(seen, model[3](hidden), atol=1e-5)


def test_after_a_fault_in_a_look_the_model_is_as_before() -> None:
    model = network(nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="more than 1 value"), by_batch_statistics(model):
        model(torch.randn(1, 4))
    norm = model[1]
    assert norm.track_running_stats
    assert norm.training


@pytest.mark.parametrize("kind", NORMS)
def test_settled_averages_are_those_of_the_network_now(kind: str) -> None:
    torch.manual_seed(0)
    model = network(NORMS[kind]()).train()
    model(torch.full((8, 4), 1e6))  # long before
    before, attributes = state(model), {**vars(model[1]), "_buffers": None}
    batches = [torch.randn(8, 4) for _ in range(20)]
    recompute_running_averages(model, iter(batches))
    assert {**vars(model[1]), "_buffers": None} == attributes
    assert model.training
    assert model[2].training
    if kind in ("plain", "cumulative"):
        hidden = [model[0](batch) for batch in batches]
        torch.testing.assert_close(model[1].running_mean, torch.cat(hidden).mean(0))
        torch.testing.assert_close(model[1].running_var, torch.stack([h.var(0) for h in hidden]).mean(0))
        assert model[1].num_batches_tracked == 1
    else:
        assert all(map(torch.equal, state(model), before))


def test_averages_behind_dropout_are_settled_without_it() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3))
    recompute_running_averages(model, [torch.full((8, 3), 2.0)])
    assert model[1].running_mean.tolist() == [2.0] * 3
    assert model[1].running_var.tolist() == [0.0] * 3


def test_averages_that_stand_still_are_left() -> None:
    norm = nn.BatchNorm1d(3, momentum=0.0)
    recompute_running_averages(norm, [torch.randn(8, 3)])
    assert norm.running_mean.tolist() == [0.0] * 3


def test_after_a_fault_while_settling_the_momentum_is_as_before() -> None:
    model = network(nn.BatchNorm1d(3))
    with pytest.raises(RuntimeError):
        recompute_running_averages(model, [torch.randn(8, 5)])
    assert (model[1].momentum, model.training) == (0.1, True)
