"""Layers that are written by hand at a model's end: counted, or refused, never free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.synapses.trace import trace


class Ended(nn.Module):
    """Spikes of 16 neurons, and whatever comes behind them."""

    def __init__(self, end: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.encoder, self.spike, self.norm, self.end = nn.Linear(8, 16), Spike(), nn.BatchNorm1d(16), end
        self.register_buffer("table", torch.randn(4, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self, self.spike(self.encoder(x)))


def in_a_loop(m: Any, z: Tensor) -> Tensor:
    weighted, total = z * m.table[0], torch.zeros(len(z))
    for index in range(16):
        total = total + weighted[:, index]
    return total


def halved(m: Any, z: Tensor) -> Tensor:
    weighted = z * m.table[0]
    while weighted.shape[1] > 1:
        half = weighted.shape[1] // 2
        weighted = weighted[:, :half] + weighted[:, half:]
    return weighted


WEIGHTED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "Python's sum": lambda m, z: sum((z * m.table[0]).unbind(1)),  # type: ignore[return-value]
    "a loop": in_a_loop,
    "halves": halved,
    "average pool": lambda m, z: F.avg_pool1d((z * m.table[0])[:, None], 16)[:, 0],
    "adaptive average pool": lambda m, z: F.adaptive_avg_pool1d((z * m.table[0])[:, None], 1)[:, 0],
    "lp pool": lambda m, z: F.lp_pool1d((z * m.table[0])[:, None], 1.0, 16)[:, 0],
    "fold": lambda m, z: F.fold((z * m.table[0]).view(-1, 4, 4), (3, 3), (2, 2))[:, 0],
    "batch norm and sum": lambda m, z: m.norm(z).sum(1),
    "batch norm and pool": lambda m, z: F.avg_pool1d(m.norm(z)[:, None], 16)[:, 0],
    "numbers of a table": lambda m, z: torch.stack(
        [sum(z[:, i] * m.table[o, i] for i in range(16)) for o in range(4)],  # type: ignore[misc]
        1,
    ),
}


@pytest.mark.parametrize("way", WEIGHTED)
def test_a_weighted_sum_at_the_end_is_not_free(way: str) -> None:
    net = Ended(WEIGHTED[way]).eval()
    del net.head
    with pytest.raises(PicojouleError, match=r"synapses written by hand: write them with nn.Linear"):
        trace(net, torch.zeros(2, 8))


@pytest.mark.parametrize("way", WEIGHTED)
def test_a_weighted_sum_in_front_of_neurons_is_not_free_either(way: str) -> None:
    net = Ended(lambda m, z: m.fire(WEIGHTED[way](m, z))).eval()
    net.fire = Spike()
    del net.head
    with pytest.raises(PicojouleError, match=r"synapses written by hand: write them with nn.Linear"):
        trace(net, torch.zeros(2, 8))


FREE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "plain sum": lambda m, z: torch.stack([m.head(z).sum(1), z.sum(1)]),
    "average pool": lambda m, z: m.head(z) + F.avg_pool1d(z[:, None], 4)[:, 0],
    "batch norm before weights": lambda m, z: m.head(m.norm(z)),
    "pooled batch norm before weights": lambda m, z: m.head(F.avg_pool1d(m.norm(z)[:, None], 1)[:, 0]),
    "a scale for all": lambda m, z: m.head(z) + (0.5 * z)[:, :4],
}


@pytest.mark.parametrize("way", FREE)
def test_what_has_no_weights_of_its_own_stays_free(way: str) -> None:
    net = Ended(FREE[way]).eval()
    if "norm" not in way:
        del net.norm
    assert trace(net, torch.zeros(2, 8)).synapses == 64


BORDERLINES: dict[str, tuple[Callable[[Any, Tensor], Tensor], int | None]] = {
    "softmax": (lambda m, z: torch.cat([m.head(z), (z * m.table[0]).softmax(-1)], 1), 64),
    "logsumexp": (lambda m, z: torch.cat([m.head(z), (z * m.table[0]).logsumexp(-1, keepdim=True)], 1), None),
    "softmax before synapses": (lambda m, z: m.head((z * m.table[0]).softmax(-1)), None),
    "numbers in the code": (lambda m, z: torch.cat([m.head(z), 0.3 * z[:, :1] + 0.7 * z[:, 1:2]], 1), 64),
    "a mixture before synapses": (lambda m, z: m.head(m.table[0, 0] * z + m.table[0, 1] * z.flip(1)), 128),
    "gradient scaling": (lambda m, z: m.head(0.3 * z + (0.7 * z).detach()), 64),
    "by the difference": (lambda m, z: m.head(z.detach() + 0.3 * (z - z.detach())), 64),
    "to something else": (lambda m, z: m.head(0.3 * z + (0.6 * z).detach()), 128),
    "of currents": (lambda m, z: 0.3 * m.head(z) + (0.7 * m.head(z)).detach(), 128),
    "lerp": (lambda m, z: m.head(torch.lerp(z.detach(), z, 0.3)), None),
}


@pytest.mark.parametrize("way", BORDERLINES)
def test_borderlines_are_as_documented(way: str) -> None:
    end, synapses = BORDERLINES[way]
    net = Ended(end).eval()
    del net.norm
    if synapses is None:
        with pytest.raises(PicojouleError):
            trace(net, torch.zeros(2, 8), strict=True)
    else:
        assert trace(net, torch.zeros(2, 8)).synapses == synapses


@pytest.fixture(scope="module")
def operators() -> Any:
    """Operators of somebody's own that have the names of PyTorch's."""
    library = torch.library.Library("picojoule_tests", "FRAGMENT")
    weight = torch.randn(4, 16)
    for name in ("dropout", "flatten", "add", "linear"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x @ weight.to(x.dtype).T, "CompositeExplicitAutograd")
    yield torch.ops.picojoule_tests
    library._destroy()


@pytest.mark.parametrize("name", ["dropout", "flatten", "add", "linear"])
def test_an_operator_is_not_taken_for_one_of_pytorchs_by_its_name(operators: Any, name: str) -> None:
    net = Ended(lambda m, z: getattr(operators, name)(z))
    del net.norm, net.head
    with pytest.raises(PicojouleError, match=f"picojoule_tests::{name}"):
        trace(net, torch.zeros(2, 8))


def test_a_factor_of_zero_is_no_silent_mask() -> None:
    net = Ended(lambda m, z: m.head(z * 0.0))
    del net.norm
    with pytest.raises(PicojouleError, match="zero everywhere"):
        trace(net, torch.zeros(2, 8))


def test_a_neuron_that_the_forward_pass_makes_is_named() -> None:
    net = Ended(lambda m, z: m.head(Spike()(z + 0)))
    del net.norm
    with pytest.raises(PicojouleError, match=r"Spike that runs .* make it once, in __init__"):
        trace(net, torch.zeros(2, 8))


def test_neurons_in_a_plain_list_alone_are_named() -> None:
    net = nn.Linear(4, 3)
    net.neurons = [Spike()]  # type: ignore[assignment]
    with pytest.raises(PicojouleError, match=r"in .neurons. is not a module of the model.*nn.ModuleList"):
        trace(net, torch.zeros(2, 4))


@pytest.mark.parametrize(
    "read", [lambda w: w.tolist(), lambda w: [float(each) for each in w], lambda w: [each.item() for each in w]]
)
def test_weights_read_as_numbers_are_no_numbers_in_the_code(read: Callable[[Tensor], list[float]]) -> None:
    def end(m: Any, z: Tensor) -> Tensor:
        return sum(z[:, i] * w for i, w in enumerate(read(m.head.weight[0].detach())))  # type: ignore[return-value]

    with pytest.raises(PicojouleError, match="the forward pass reads weights as numbers"):
        trace(Ended(end), torch.zeros(2, 8))


def test_a_single_number_and_whole_numbers_may_be_read() -> None:
    def end(m: Any, z: Tensor) -> Tensor:
        shift = int(m.head.weight.detach().abs().argmax() % 2)
        return m.head(z.roll(shift, 1) * float(m.head.weight.detach().abs().max()))  # type: ignore[no-any-return]

    assert trace(Ended(end), torch.zeros(2, 8))["spike"].synapses == 16 * 4
