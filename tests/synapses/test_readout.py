"""Paths to the model's output: every spike meets a counted synapse, or nothing but what is known to be free."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.spikes.spiking import declare_spiking
from picojoule.synapses.trace import trace

PROTOTYPES = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))


class Ending(nn.Module):
    """pixels → Linear(4, 4) → Spike → `end`, with or without synapses before the end."""

    def __init__(self, end: Callable[..., Any], head: bool = False, encode: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.encoder, self.spike = nn.Linear(4, 4), Spike()
        self.head = nn.Linear(4, 4) if head else nn.Identity()
        self.end, self.encode = end, encode
        self.register_buffer("p", PROTOTYPES.clone())

    def forward(self, x: Tensor) -> Any:
        currents = self.encoder(x) if self.encode is None else self.encode(self, self.encoder(x))
        return self.end(self, self.head(self.spike(currents)))


def quietly_scripted(function: Callable[..., Any]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


@quietly_scripted
def by_hand(x: Tensor, w: Tensor) -> Tensor:
    return (x.unsqueeze(1) * w).sum(-1)


@torch.library.custom_op("picojoule_tests::hides_its_weights", mutates_args=())
def hides_its_weights(x: Tensor) -> Tensor:
    return x @ PROTOTYPES.to(x.dtype).T


hides_its_weights.register_autograd(lambda ctx, grad: grad @ PROTOTYPES.to(grad.dtype))


@dataclass
class Result:
    logits: Tensor


WITH_WEIGHTS: dict[str, Callable[..., Any]] = {
    "cosine similarity": lambda m, s: F.cosine_similarity(s[:, None], m.p, dim=-1),
    "squared distances": lambda m, s: (s[:, None] - m.p).pow(2).sum(-1),
    "distances": lambda m, s: torch.cdist(s.float(), m.p),
    "distances, negative": lambda m, s: -(m.p - s.unsqueeze(1)).abs().sum(-1),
    "vecdot": lambda m, s: torch.linalg.vecdot(s[:, None], m.p.to(s.dtype)),
    "pairwise distance": lambda m, s: F.pairwise_distance(s[:, None], m.p),
    "norm of a difference": lambda m, s: torch.linalg.vector_norm(s[:, None] - m.p, dim=-1),
    "custom operator": lambda m, s: hides_its_weights(s),
    "scripted": lambda m, s: by_hand(s.float(), m.p),
}
OF_SPIKES: dict[str, Callable[..., Any]] = {
    "one distance": lambda m, s: (s - m.p[0]).pow(2).sum(-1),
    "agreement": lambda m, s: (s[:, None] == m.p).sum(-1),
    "cumsum of a product": lambda m, s: (s * m.p[0]).cumsum(-1)[..., -1],
    "cumsum behind a square": lambda m, s: (s * m.p[0]).square().cumsum(-1)[..., -1],
    "filter in frequency": lambda m, s: torch.fft.rfft(s) * torch.fft.rfft(m.p[0]),
    "table": lambda m, s: m.p[s.argmax(1)],
    "statistic of shifted spikes": lambda m, s: torch.logsumexp(s + m.p[0], 1),
    "norm of one difference": lambda m, s: (s - m.p[0]).norm(dim=1),
    "largest of shifted spikes": lambda m, s: (s[:, None] + m.p).amax(-1),
    "nearest": lambda m, s: (s[:, None] * m.p).sub(0.5).min(-1).values,
    "lerp": lambda m, s: torch.lerp(s, m.p[0].to(s.dtype), 0.5),
    "in an object": lambda m, s: Result(torch.fft.rfft(s)),
    "in a dictionary": lambda m, s: {"logits": [torch.fft.rfft(s)]},
    "scripted softmax": lambda m, s: quietly_scripted(F.softmax)(s, 1),
}


@pytest.mark.parametrize("head", [False, True], ids=["spikes", "currents"])
@pytest.mark.parametrize("way", WITH_WEIGHTS)
def test_weights_at_the_end_are_not_lost(way: str, head: bool) -> None:
    with pytest.raises(PicojouleError, match=r"multiplies|synapses|no operation of PyTorch|cannot be seen"):
        trace(Ending(WITH_WEIGHTS[way], head), torch.zeros(2, 4))


@pytest.mark.parametrize("way", OF_SPIKES)
def test_what_is_not_known_to_be_free_does_not_end_a_path(way: str) -> None:
    with pytest.raises(PicojouleError, match=r"the model's output|synapses written by hand"):
        trace(Ending(OF_SPIKES[way]), torch.zeros(2, 4))


READ: dict[str, Callable[..., Any]] = {
    "storage": lambda s: s.untyped_storage(),
    "array": lambda s: np.asarray(s.detach()),
    "product of arrays": lambda s: torch.from_numpy(np.dot(s.detach(), PROTOTYPES.numpy().T)),
    "exchange": lambda s: np.from_dlpack(s.detach()),
    "address": lambda s: s.data_ptr(),
}


@pytest.mark.parametrize("way", READ)
def test_values_do_not_leave_pytorch(way: str) -> None:
    def read(m: Ending, s: Tensor) -> Tensor:
        READ[way](s)
        return s

    with pytest.raises(PicojouleError, match="reads the value of an activation"):
        trace(Ending(read), torch.zeros(2, 4))


@pytest.mark.parametrize("way", WITH_WEIGHTS)
def test_nor_does_it_lead_to_a_neuron(way: str) -> None:
    net = Ending(lambda m, s: s, encode=WITH_WEIGHTS[way])
    with pytest.raises(PicojouleError, match=r"multiplies|synapses|no operation of PyTorch|cannot be seen"):
        trace(net, torch.zeros(2, 4))


FREE: dict[str, Callable[..., Any]] = {
    "spikes": lambda m, s: s,
    "sum": lambda m, s: s.sum(1),
    "mean and scale": lambda m, s: 10 * s.mean(1),
    "softmax": lambda m, s: s.softmax(1).log(),
    "a softmax of counts": lambda m, s: F.log_softmax(s.sum(1, keepdim=True) + s, 1),
    "argmax": lambda m, s: s.argmax(1),
    "best": lambda m, s: s.topk(2),
    "largest": lambda m, s: s.max(dim=1).values,
    "share": lambda m, s: s / (s.sum(1, keepdim=True) + 1e-6),
    "threshold": lambda m, s: (s.sum(1) > 2).float(),
    "scaled by class": lambda m, s: (s * m.p[0] + m.p[1]).softmax(1),
    "statistics": lambda m, s: (s.std(1), s.norm(dim=1), s.cumsum(1), F.normalize(s)),
    "power": lambda m, s: (s + 1) ** 2,
    "powers added": lambda m, s: ((s + 1) ** 2).sum(1),
    "chosen by the vote": lambda m, s: s[torch.arange(len(s)), s.argmax(1)],
    "in an object": lambda m, s: Result(s),
}


@pytest.mark.parametrize("head", [False, True], ids=["spikes", "currents"])
@pytest.mark.parametrize("way", FREE)
def test_votes_are_free(way: str, head: bool) -> None:
    assert trace(Ending(FREE[way], head), torch.zeros(2, 4)).synapses == (16 if head else 0)


@pytest.mark.parametrize("which", [{nn.Linear}, {"0"}, {"2"}], ids=["both", "first", "last"])
def test_quantised_layers_are_refused(which: set[Any]) -> None:
    net = nn.Sequential(nn.Linear(64, 64), Spike(), nn.Linear(64, 80))
    assert trace(net, torch.zeros(1, 64)).synapses == 5120
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(net), which)
    with pytest.raises(PicojouleError, match=r"quantized::linear_dynamic in module '\d' .*before it is quantised"):
        trace(quantised, torch.zeros(1, 64))


def test_a_custom_operator_inside_a_neuron_is_its_own_affair() -> None:
    class Neuron(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return fires(u)

    net = nn.Sequential(nn.Linear(4, 4), declare_spiking(Neuron()), nn.Linear(4, 3))
    assert trace(net, torch.zeros(1, 4)).synapses == 12


@torch.library.custom_op("picojoule_tests::fires", mutates_args=())
def fires(u: Tensor) -> Tensor:
    return (u > 0).to(u.dtype)


def test_a_state_that_an_earlier_call_left_may_reach_a_neuron() -> None:
    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.spike, self.head, self.v = nn.Linear(4, 4), Spike(), nn.Linear(4, 3), None

        def forward(self, x: Tensor) -> Tensor:
            current = self.encoder(x)
            self.v = current if self.v is None else 0.9 * self.v + current
            result: Tensor = self.head(self.spike(self.v))
            return result

    net = Leaky()
    net(torch.zeros(2, 4))
    assert trace(net, torch.zeros(2, 4)).synapses == 12
