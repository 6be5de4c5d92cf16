"""Another call of a traced model, and another size of batch, reach the same synapses, or the model is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from networks import Mixed
from picojoule.errors import PicojouleError
from picojoule.neurons.lif import LIF
from picojoule.neurons.spike import Spike
from picojoule.spikes.spiking import declare_spiking
from picojoule.synapses.trace import trace


class Recurrent(nn.Module):
    """Linear(4, 8) → Spike(8) → Linear(8, 3); `feed_back` says what the spikes of the call before do."""

    def __init__(self, feed_back: Callable[..., Tensor], recurrent: bool = True) -> None:
        super().__init__()
        self.encoder, self.spike, self.head = nn.Linear(4, 8), Spike(), nn.Linear(8, 3)
        if recurrent:
            self.recurrent = nn.Linear(8, 8)
        self.feed_back = feed_back
        self.z: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.feed_back(self, self.encoder(x))


def by_hand(m: Recurrent, current: Tensor) -> Tensor:
    if m.z is not None:
        current = current + m.recurrent(m.z)
    m.z = m.spike(current)
    result: Tensor = m.head(m.z)
    return result


def by_hand_and_reset(m: Recurrent, current: Tensor) -> Tensor:
    m.z = None
    return by_hand(m, current)


def traced_spikes(m: Recurrent, current: Tensor) -> Tensor:
    z = m.spike(current)
    m.z = z if m.z is None else 0.9 * m.z + z
    result: Tensor = m.head(m.z)
    return result


def every_other_call(m: Recurrent, current: Tensor) -> Tensor:
    z = m.spike(current)
    m.z = z if m.z is None else None
    return m.head(z) if m.z is None else m.head(z) + m.head(z)


def leaking(m: Recurrent, current: Tensor) -> Tensor:
    m.z = current if m.z is None else 0.9 * m.z + current
    result: Tensor = m.head(m.spike(m.z))
    return result


def resetting(m: Recurrent, current: Tensor) -> Tensor:
    current = current if m.z is None else current - m.z
    m.z = m.spike(current)
    result: Tensor = m.head(m.z)
    return result


def test_weights_that_never_ran_are_named() -> None:
    with pytest.raises(PicojouleError, match=r"never used the weights 'recurrent.weight'"):
        trace(Recurrent(by_hand_and_reset), torch.zeros(2, 4))
    loose = nn.Sequential(nn.Linear(4, 3), Spike())
    loose.register_parameter("kernel", nn.Parameter(torch.ones(3, 3)))
    with pytest.raises(PicojouleError, match="never used the weights 'kernel'"):
        trace(loose, torch.zeros(2, 4))


@pytest.mark.parametrize("feed_back", [traced_spikes, every_other_call])
def test_spikes_of_one_call_in_the_next_are_refused(feed_back: Callable[..., Tensor]) -> None:
    with pytest.raises(PicojouleError, match=r"spikes of 'spike' reach .* next call|second call runs other"):
        trace(Recurrent(feed_back, recurrent=False), torch.zeros(2, 4))


@pytest.mark.parametrize("feed_back", [leaking, resetting])
@pytest.mark.parametrize("ran_before", [False, True])
def test_a_membrane_by_hand_is_no_recurrence(feed_back: Callable[..., Tensor], ran_before: bool) -> None:
    net = Recurrent(feed_back, recurrent=False)
    if ran_before:
        net(torch.zeros(2, 4))
    before = net.z
    assert trace(net, torch.zeros(2, 4)).synapses == 24
    assert net.z is before


@pytest.mark.parametrize(
    "changed",
    [
        parametrizations.weight_norm,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0),
    ],
    ids=["weight norm", "old weight norm", "old spectral norm", "pruned"],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_are_computed_did_run(changed: Callable[[nn.Module], Any]) -> None:
    net = nn.Sequential(nn.Linear(4, 4), Spike(), nn.Linear(4, 3))
    changed(net[2])
    assert trace(net, torch.zeros(1, 4)).synapses == 12


MIXES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean of the batch": lambda s: s - s.mean(0),
    "sum of the batch": lambda s: s + s.sum(0, keepdim=True),
    "as many copies as samples": lambda s: torch.cat([s] * len(s), 0),
    "first sample": lambda s: s + s[:1],
}


@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("mix", MIXES)
def test_psi_that_depends_on_the_batch_is_refused(mix: str, samples: int) -> None:
    with pytest.raises(PicojouleError, match=r"keep (the samples|them) apart"):
        trace(Mixed(MIXES[mix]), torch.zeros(samples, 4))


def test_a_batch_of_another_size_in_every_layout() -> None:
    class Net(nn.Module):
        def __init__(self, mixed: int | None) -> None:
            super().__init__()
            self.spike, self.head, self.mixed = declare_spiking(nn.Identity()), nn.Linear(4, 3), mixed

        def forward(self, x: Tensor) -> Tensor:
            s = self.spike(x)
            result: Tensor = self.head(s if self.mixed is None else s - s.mean(self.mixed, keepdim=True))
            return result

    for samples in (1, 3):
        for options, shape, batch in (
            ({"time_axis": 0}, (2, samples, 4), 1),
            ({"time_axis": 1}, (samples, 2, 4), 0),
            ({"folded": "time"}, (2 * samples, 4), 0),
            ({"folded": "batch"}, (2 * samples, 4), 0),
        ):
            assert trace(Net(None), torch.zeros(shape), steps=2, **options).synapses == 12
            with pytest.raises(PicojouleError, match="apart"):
                trace(Net(batch), torch.zeros(shape), steps=2, **options)


def test_a_model_for_one_size_of_batch_is_counted() -> None:
    class Bound(Mixed):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.reshape(2, 4))

    assert trace(Bound(lambda s: s), torch.zeros(2, 4)).synapses == 12
    stateful = nn.Sequential(nn.Linear(4, 4), LIF(steps=2), nn.Linear(4, 3))
    assert trace(stateful, torch.zeros(6, 4), steps=2).synapses == 12


def test_a_state_for_one_size_of_batch_is_resized_or_must_be_reset() -> None:
    class Stubborn(Recurrent):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) != 2:
                raise ValueError("two samples")
            return super().forward(x)

    net = Stubborn(leaking, recurrent=False)
    assert trace(net, torch.zeros(2, 4)).synapses == 24
    net(torch.zeros(2, 4))
    with pytest.raises(PicojouleError, match=r"a batch of 2 but no other \(two samples\).*reset its state"):
        trace(net, torch.zeros(2, 4))


def test_indices_keep_their_meaning_in_another_batch() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.spike, self.head = nn.Embedding(5, 4), Spike(), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.head(self.spike(F.relu(self.table(x)).sum(1)))
            return result

    assert trace(Words(), torch.tensor([[4, 1]])).synapses == 12


def test_a_map_of_the_same_size_has_a_psi_for_each_size_of_the_input() -> None:
    """As `docs/explanation/counting.md` says: only the example tells how large the map behind `interpolate` is."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.spike = nn.Conv1d(1, 1, 3, stride=2, padding=1), Spike()
            self.head = nn.Conv1d(1, 5, 1)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.head(F.interpolate(self.spike(self.encoder(x)), x.shape[-1]))
            return result

    for size in (7, 8):
        layer = trace(Decoder(), torch.zeros(1, 1, size))["spike"]
        assert layer.shape == (1, 4)
        assert layer.synapses == 5 * size


def by_drawn_indices(m: Recurrent, current: Tensor) -> Tensor:
    result: Tensor = m.head(m.spike(current)[:, torch.randperm(8)])
    return result


def by_drawn_columns(m: Recurrent, current: Tensor) -> Tensor:
    order = torch.randint(8, (8,))
    result: Tensor = m.head(m.spike(current).index_select(1, order))
    return result


@pytest.mark.parametrize("way", [by_drawn_indices, by_drawn_columns])
def test_an_order_that_is_drawn_in_every_call_is_refused(way: Callable[..., Tensor]) -> None:
    with pytest.raises(PicojouleError, match="numbers that are drawn in every call"):
        trace(Recurrent(way, recurrent=False), torch.zeros(2, 4))
