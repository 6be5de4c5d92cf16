from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from picojoule.batch_norm import by_batch_statistics, slower_averages


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


@pytest.mark.parametrize(("momentum", "slower"), [(0.1, 0.025), (1.0, 0.25), (None, None), (0.0, 0.0)])
def test_averages_are_slower_for_a_while(momentum: float | None, slower: float | None) -> None:
    model = network(nn.BatchNorm1d(3, momentum=momentum))
    norm = model[1]
    with slower_averages(model, 0.25, 1000):
        assert norm.momentum == slower
    assert norm.momentum == momentum
    with pytest.raises(RuntimeError), slower_averages(model, 0.25, 1000):
        model(torch.randn(8, 5))
    assert norm.momentum == momentum


def test_slow_averages_are_those_of_the_batches_since_the_first() -> None:
    norm = nn.BatchNorm1d(3)
    norm(torch.full((4, 3), 1e6))  # long before
    batches = [torch.randn(8, 3) for _ in range(20)]
    for number, batch in enumerate(batches):
        with slower_averages(norm, 1e-3, number):
            norm(batch)
    torch.testing.assert_close(norm.running_mean, torch.cat(batches).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([batch.var(0) for batch in batches]).mean(0))
