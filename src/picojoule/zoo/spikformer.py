"""Spikformer: a small spiking transformer, whose attention is a product of spikes without softmax.

    x = S(conv …)                              tokens: the 8 × 8 places of a map of spikes
    x = x + S(position(x))                     a convolution of each channel: where a token is
    x = x + S(proj(S(Q·(Kᵀ V))))               Q, K, V = S(…(x)), in every head
    x = x + S(down(S(up(x))))

S is batch norm and a layer of spiking neurons; the weights are 1×1 convolutions, the same at every token. Between
layers there are spikes and sums of spikes alone, so that nothing but the first convolution multiplies: Kᵀ V costs an
accumulate for each pair of a k- and a v-spike of one token and head, Q·(Kᵀ V) as many as a head has channels for each
q-spike.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from picojoule.neurons.time_steps import present, readout
from picojoule.zoo.layers import conv, linear

_WIDTH = 64
_HEADS = 2
_BLOCKS = 2
_GROWTH = 2
"""How much wider than a token the hidden layer of a block is."""


class Spikformer(nn.Module):
    """Spikformer: two convolutions of stride 2, then two blocks of attention and perceptron on 64 tokens of width 64.

    `picojoule.zoo.create` builds it.

    Args:
        classes: The number of classes.
        in_channels: Channels of an image.
        neuron: Makes the module of each spiking layer.
        steps: Time steps of an image.

    >>> import torch
    >>> import picojoule as pj
    >>> net = pj.zoo.create("spikformer", neuron=pj.LIF, steps=2)
    >>> [layer.name for layer in pj.trace(net, torch.zeros(1, 1, 32, 32), steps=2).products]
    ['blocks.0.attention.matmul', 'blocks.1.attention.matmul']
    """

    def __init__(self, classes: int, in_channels: int, neuron: Callable[[], nn.Module], steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.input_shape = (in_channels, 32, 32)
        self.conv1 = conv(in_channels, _WIDTH // 2, 3, stride=2, padding=1)
        self.norm1, self.spike1 = nn.BatchNorm2d(_WIDTH // 2), neuron()
        self.conv2 = conv(_WIDTH // 2, _WIDTH, 3, stride=2, padding=1)
        self.norm2, self.spike2 = nn.BatchNorm2d(_WIDTH), neuron()
        self.position = nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1, groups=_WIDTH, bias=False)
        nn.init.kaiming_normal_(self.position.weight, nonlinearity="relu")
        self.position_norm, self.position_spike = nn.BatchNorm2d(_WIDTH), neuron()
        self.blocks = nn.Sequential(*(_Block(neuron) for _ in range(_BLOCKS)))
        self.classify = linear(_WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits of images.

        Args:
            x: Images [B, C, 32, 32], normalised.

        Returns:
            Logits [B, classes], averaged over the time steps.
        """
        x = self.spike1(self.norm1(self.conv1(present(x, self.steps))))
        x = self.spike2(self.norm2(self.conv2(x)))
        x = x + self.position_spike(self.position_norm(self.position(x)))
        x = self.blocks(x)  # [T·B, channels, 8, 8]
        return readout(self.classify(x.mean(dim=(2, 3))), self.steps)


class _Block(nn.Module):
    """Attention, then a perceptron on each token; both add their spikes to the stream."""

    def __init__(self, neuron: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.attention = _Attention(neuron)
        self.up = _spiking(_WIDTH, _GROWTH * _WIDTH, neuron)
        self.down = _spiking(_GROWTH * _WIDTH, _WIDTH, neuron)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        out: Tensor = x + self.down(self.up(x))
        return out


class _Attention(nn.Module):
    """Q·(Kᵀ V) in each head, in the order that costs tokens · d² at most."""

    def __init__(self, neuron: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.q, self.k, self.v = (_spiking(_WIDTH, _WIDTH, neuron) for _ in range(3))
        self.norm, self.spike = nn.BatchNorm2d(_WIDTH), neuron()
        self.project = _spiking(_WIDTH, _WIDTH, neuron)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).flatten(2).unflatten(1, (_HEADS, -1)) for layer in (self.q, self.k, self.v))
        met = k @ v.mT  # [T·B, heads, d, d]: over all tokens, how often channel i of k and j of v fired in the same one
        attended = (met.mT @ q).flatten(1, 2).unflatten(2, x.shape[2:])  # [T·B, channels, 8, 8]
        out: Tensor = self.project(self.spike(self.norm(attended)))
        return out


def _spiking(inputs: int, outputs: int, neuron: Callable[[], nn.Module]) -> nn.Sequential:
    layer = nn.Sequential()
    layer.add_module("conv", conv(inputs, outputs, 1))
    layer.add_module("norm", nn.BatchNorm2d(outputs))
    layer.add_module("spike", neuron())
    return layer
