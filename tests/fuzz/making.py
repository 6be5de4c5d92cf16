"""A network while it is made: the shape so far, and layers of synapses that fit it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn


class TooSmall(Exception):
    """The maps have no room for this part."""


class Making:
    """A network while it is made."""

    def __init__(self, neuron: Callable[[], nn.Module], shape: tuple[int, ...], *, plain: bool = False) -> None:
        self.neuron = neuron
        self.plain = plain
        self.shape = shape
        self.chance = Random(0)
        self.identities: list[nn.Module] = []
        self.accidental_zeros = False

    @property
    def spatial(self) -> int:
        return len(self.shape) - 2

    @property
    def channels(self) -> int:
        return self.shape[1]


Maker = Callable[[Making], nn.Module]


class Calls(nn.Module):
    """A function of the parts that it holds."""

    def __init__(self, run: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def weighted(frequency: float) -> Callable[[Maker], Maker]:
    def mark(maker: Maker) -> Maker:
        maker.weight = frequency  # type: ignore[attr-defined]
        return maker

    return mark


PADDING = ("zeros", "zeros", "zeros", "circular", "replicate")


def kernel_of(making: Making) -> tuple[int, ...]:
    return tuple(making.chance.randint(1, min(3, size)) for size in making.shape[2:])


def convolution(making: Making, *, keeps_size: bool = False, out: int | None = None) -> nn.Module:
    chance, c, d = making.chance, making.channels, making.spatial
    if d not in (1, 2, 3):
        raise TooSmall
    kind = getattr(nn, f"Conv{d}d")
    out = out or chance.choice([1, 2, 3, 4, 6])
    bias = chance.random() < 0.7
    if keeps_size:
        return kind(c, out, 3, padding=1, bias=bias, padding_mode="zeros" if making.plain else chance.choice(PADDING))
    groups = chance.choice([g for g in (1, 1, 2, 3, c) if c % g == 0])
    out = groups * chance.choice([1, 2]) if groups > 1 else out
    kernel = kernel_of(making)
    dilation = tuple(
        chance.choice([1, 1, 2]) if 2 * (k - 1) + 1 <= n else 1 for k, n in zip(kernel, making.shape[2:], strict=True)
    )
    padding: Any = tuple(chance.randint(0, (k - 1) * s) for k, s in zip(kernel, dilation, strict=True))
    stride = tuple(chance.choice([1, 1, 2]) for _ in kernel)
    mode = "zeros"
    if all(s == 1 for s in stride) and all(k % 2 for k in kernel) and chance.random() < 0.2:
        padding = "same"
    elif (
        not making.plain
        and chance.random() < 0.1
        and all(p < n for p, n in zip(padding, making.shape[2:], strict=True))
    ):
        mode = chance.choice(["circular", "reflect", "replicate"])
    return kind(c, out, kernel, stride, padding, dilation, groups, bias, mode)


def transposed(making: Making) -> nn.Module:
    chance, c, d = making.chance, making.channels, making.spatial
    if d not in (1, 2, 3):
        raise TooSmall
    groups = chance.choice([g for g in (1, 1, 2, c) if c % g == 0])
    kernel = kernel_of(making)
    stride = tuple(chance.choice([1, 2]) for _ in kernel)
    extra = tuple(chance.randint(0, s - 1) for s in stride)
    padding = tuple(chance.randint(0, (k - 1) // 2) for k in kernel)
    return getattr(nn, f"ConvTranspose{d}d")(
        c, groups * chance.choice([1, 2]), kernel, stride, padding, extra, groups, chance.random() < 0.7
    )


def linear(making: Making) -> nn.Module:
    return nn.Linear(making.shape[-1], making.chance.choice([2, 3, 5, 8]), bias=making.chance.random() < 0.7)


def layer(making: Making) -> nn.Module:
    if making.spatial == 0 or (making.chance.random() < 0.1 and not making.plain):
        return linear(making)
    if making.plain:
        return convolution(making)
    return transposed(making) if making.chance.random() < 0.2 else convolution(making)


def shape_after(module: nn.Module, making: Making) -> tuple[int, ...]:
    with torch.no_grad():
        return tuple(module.eval()(torch.zeros(making.shape)).shape)


def norm(making: Making, shape: tuple[int, ...]) -> list[nn.Module]:
    if len(shape) > 5 or making.chance.random() < 0.5:
        return []
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    return [kind(shape[1], affine=True)]


def checked(module: nn.Module, making: Making) -> nn.Module:
    """A layer of synapses, with batch norm now and then, and its neurons."""
    try:
        shape = shape_after(module, making)
    except RuntimeError:
        raise TooSmall from None
    if min(shape) < 1:
        raise TooSmall
    return nn.Sequential(module, *norm(making, shape), making.neuron())


@weighted(6)
def synapse(making: Making) -> nn.Module:
    return checked(layer(making), making)


def same_shape(making: Making) -> nn.Module:
    """Synapses and neurons that keep the map's shape."""
    if making.spatial == 0:
        inner: nn.Module = nn.Linear(making.channels, making.channels)
    elif making.spatial <= 3:
        inner = convolution(making, keeps_size=True, out=making.channels)
    else:
        raise TooSmall
    return nn.Sequential(inner, *norm(making, making.shape), making.neuron())
