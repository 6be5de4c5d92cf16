"""A network of the zoo in the notation of the paper's architecture table (C(64)k3s2p0–BN–S–DO(0.1)–…)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from picojoule import zoo
from picojoule.spikes.spiking import is_spiking
from picojoule.zoo.resnet18 import ResA, ResB

DASH = "–"
"""Joins layers in the paper's notation."""


def notation(name: str) -> str:
    """Write a network in the paper's notation.

    Args:
        name: A network of the zoo.

    Returns:
        Its layers, joined by –.

    >>> notation("resnet18")
    'C(64)k3s1p1–ResA(64)–ResA(64)–ResB(128)–ResA(128)–ResB(256)–ResA(256)–ResB(512)–ResA(512)–BN–S–C(10)k1s1p0–GAP'
    """
    net = zoo.create(name)
    words = [word for module in net.children() for word in _words(module)]
    return DASH.join([*words, *(["GAP"] if _averages_maps(net) else [])])


def block_notation() -> dict[str, str]:
    """Write the two kinds of blocks of ResNet18 in the paper's notation.

    Returns:
        Each by its name, its two paths joined by +; x is the number of channels that come out.
    """
    blocks: dict[str, ResA | ResB] = {"ResA(x)": ResA(64, nn.ReLU), "ResB(x)": ResB(64, nn.ReLU)}
    return {name: _paths(block).replace(f"C({block.conv2.out_channels})", "C(x)") for name, block in blocks.items()}


def _paths(block: ResA | ResB) -> str:
    """Write the two paths of a block."""
    path = (block.norm1, block.spike1, block.conv1, block.norm2, block.spike2, block.conv2)
    skip = (block.skip_norm, block.skip_spike, block.skip_conv) if isinstance(block, ResB) else ()
    main, aside = (DASH.join(word for module in modules for word in _words(module)) for modules in (path, skip))
    return f"{main} + {aside or 'identity'}"


def _words(module: nn.Module) -> Iterator[str]:
    """Write a module, and a sequence of them one by one."""
    if isinstance(module, ResA | ResB):
        yield f"{type(module).__name__}({module.conv2.out_channels})"
    elif isinstance(module, nn.Sequential):
        for child in module:
            yield from _words(child)
    elif isinstance(module, nn.Conv2d):
        kernel, stride, padding = (size[0] for size in (module.kernel_size, module.stride, module.padding))
        yield f"C({module.out_channels})k{kernel}s{stride}p{padding}"
    elif isinstance(module, nn.Linear):
        yield f"FC({module.out_features})"
    elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        yield "BN"
    elif isinstance(module, nn.Dropout):
        yield f"DO({module.p:g})"
    elif isinstance(module, nn.AvgPool2d):
        yield "Avg"
    elif is_spiking(module) or isinstance(module, nn.ReLU):
        yield "S"
    elif not isinstance(module, nn.Flatten):  # which the paper does not write
        raise TypeError(f"the paper has no notation for {type(module).__name__}")


def _averages_maps(net: zoo.ZooModel) -> bool:
    """Return whether the last synapses give maps, of which the network returns the means."""
    last = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)][-1]
    dimensions: list[int] = []
    hook = last.register_forward_hook(lambda module, inputs, output: dimensions.append(output.dim()))
    with torch.no_grad():
        logits = net.eval()(torch.zeros(1, *net.input_shape))
    hook.remove()
    return bool(dimensions[0] > logits.dim())
