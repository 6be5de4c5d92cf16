"""One way of refusing: what a rule raises becomes a sentence that names the node and says what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.deploy.graph.refusal import Destination, Unsupported

DESTINATION = Destination("the machine", "cannot run", otherwise=", or ask", remedy="use another")


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (Unsupported(), "the machine cannot run the layer: use another, or ask"),
        (Unsupported("turn it"), "the machine cannot run the layer: turn it, or ask"),
        (
            Unsupported("turn it", because="which is odd"),
            "the machine cannot run the layer, which is odd: turn it, or ask",
        ),
    ],
)
def test_the_sentence(reason: Unsupported, sentence: str) -> None:
    with pytest.raises(pj.PicojouleError) as refusal, DESTINATION.refusing(lambda: "the layer"):
        raise reason
    assert str(refusal.value) == sentence


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), DESTINATION.refusing(lambda: "the layer"):
        raise KeyError


class Sines(nn.Module):
    """A function without a rule, in a module of its own or in the network's forward pass."""

    def __init__(self, neuron: nn.Module, inner: bool) -> None:
        super().__init__()
        self.fc, self.neuron, self.block = nn.Linear(4, 4), neuron, Block() if inner else None

    def forward(self, x: Tensor) -> Any:
        currents = self.fc(x)
        return self.neuron(torch.sin(currents) if self.block is None else self.block(currents))


class Block(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


WAYS = {
    "conversion": lambda inner: pj.convert(Sines(pj.QuantizedReLU(), inner)),
    "event engine": lambda inner: pj.events.compile(Sines(pj.Spike(), inner), torch.zeros(1, 4)),
    "NIR export": lambda inner: pj.export.to_nir(Sines(pj.Spike(), inner), torch.zeros(1, 4)),
}


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_every_destination_names_an_operation_in_the_same_words(way: str, inner: bool) -> None:
    where = "the layer 'block'" if inner else "the network's own forward pass"
    with pytest.raises(pj.PicojouleError, match=rf"^the {way}.* cannot \w+ the operation 'sin' in {where}: "):
        WAYS[way](inner)
