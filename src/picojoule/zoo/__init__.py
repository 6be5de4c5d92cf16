"""The zoo: networks by name, the paper's three for images, a spiking transformer, and those for recordings over time.

All without biases, with batch norm before every spiking layer and He initialisation for ReLU. In the paper's, spikes
pass nothing but dropout, pooling and flattening before they reach the next synapses. Spiking layers are called
``spike1``, ``spike2``, …; those of ResNet18 and Spikformer stand in blocks (``stage2.0.spike1``,
``stage2.0.skip_spike``, ``blocks.0.attention.q.spike``), with one last ``spike`` in ResNet18.

Networks for recordings (``cnn4``, ``rsnn``) take a frame in each time step, [T, B, C, H, W]; an image is given in all
of them. Where the frames are spikes they enter through ``input``, which is billed as spikes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from torch import nn

from picojoule.errors import PicojouleError, unknown
from picojoule.neurons.spike import Spike
from picojoule.zoo import imported, pretrained
from picojoule.zoo.cnn4 import CNN4
from picojoule.zoo.cnn7 import CNN7
from picojoule.zoo.resnet18 import ResNet18
from picojoule.zoo.rsnn import RSNN
from picojoule.zoo.spikformer import Spikformer
from picojoule.zoo.vgg11 import VGG11

__all__ = [
    "CNN4",
    "CNN7",
    "RSNN",
    "VGG11",
    "ResNet18",
    "Spikformer",
    "ZooModel",
    "create",
    "imported",
    "names",
    "pretrained",
    "takes_frames",
]

ImageModel: TypeAlias = CNN7 | VGG11 | ResNet18 | Spikformer
FrameModel: TypeAlias = CNN4 | RSNN
ZooModel: TypeAlias = ImageModel | FrameModel


class _ForImages(NamedTuple):
    build: type[ImageModel]
    in_channels: int


class _ForFrames(NamedTuple):
    build: type[FrameModel]
    input_shape: tuple[int, int, int]


_MODELS: Mapping[str, _ForImages | _ForFrames] = MappingProxyType(
    {
        "cnn7": _ForImages(CNN7, 1),
        "vgg11": _ForImages(VGG11, 3),
        "resnet18": _ForImages(ResNet18, 3),
        "spikformer": _ForImages(Spikformer, 1),
        "cnn4": _ForFrames(CNN4, (2, 34, 34)),
        "rsnn": _ForFrames(RSNN, (24, 1, 1)),
    }
)


def names() -> tuple[str, ...]:
    """List the names that ``create`` knows.

    Returns:
        The names of the networks.

    >>> names()
    ('cnn7', 'vgg11', 'resnet18', 'spikformer', 'cnn4', 'rsnn')
    """
    return tuple(_MODELS)


def takes_frames(name: str) -> bool:
    """Return whether a network takes a frame in each time step, of any size, and not an image of 32×32.

    Args:
        name: One of ``names()``.

    Returns:
        Whether it does.

    >>> takes_frames("cnn4"), takes_frames("cnn7")
    (True, False)
    """
    return isinstance(_MODELS.get(name), _ForFrames)


def create(
    name: str,
    classes: int = 10,
    in_channels: int | None = None,
    neuron: Callable[..., nn.Module] = Spike,
    steps: int = 1,
    weights: str | None = None,
    *,
    input_shape: tuple[int, ...] | None = None,
    spiking_input: bool = True,
) -> ZooModel:
    """Build a network of the zoo, fresh or trained; its ``input_shape`` is the (C, H, W) of one image.

    Args:
        name: One of ``names()``.
        classes: The number of classes.
        in_channels: Channels of an image; None is the model's usual number: 1 for ``cnn7`` and
            ``spikformer``, 3 for ``vgg11`` and ``resnet18``, 2 for ``cnn4``,
            24 for ``rsnn``.
        neuron: A factory that is called once per spiking layer. ``nn.ReLU`` gives the ReLU twin, with the same
            parameters by name and shape; ``functools.partial(Spike, threshold=0.5)`` sets a parameter.
        steps: Time steps of a neuron with a membrane (``IF``, ``LIF``, a ``partial`` of them, or your own that takes
            ``steps=``): every image is given in each of them as a constant current, the logits are averaged over them.
        weights: The name of weights that ship with picojoule (``zoo.pretrained.index()``); None gives fresh ones.
        input_shape: Of a network that takes frames: channels, rows and columns of one; None is the usual one.
        spiking_input: Of a network that takes frames: whether these are spikes, which are billed as such.

    Returns:
        The network: fresh in training mode, trained in evaluation mode.

    Raises:
        PicojouleError: The name is unknown, a number is below 1, or ``neuron`` does not make a new module on each call.

    >>> create("cnn7").input_shape
    (1, 32, 32)
    """
    if not isinstance(name, str) or name not in _MODELS:
        raise unknown("model", name, _MODELS)
    entry = _MODELS[name]
    usual_channels = entry.in_channels if isinstance(entry, _ForImages) else entry.input_shape[0]
    channels = usual_channels if in_channels is None else in_channels
    for label, value in (("classes", classes), ("in_channels", channels), ("steps", steps)):
        if not _is_count(value):
            raise PicojouleError(f"{label} must be 1 or more, not {value!r}: give a whole number")
    if not callable(neuron):
        raise PicojouleError(
            f"neuron={neuron!r} makes no modules: pass a factory such as Spike, nn.ReLU or "
            "functools.partial(Spike, threshold=0.5)"
        )
    if isinstance(neuron, nn.Module):
        raise PicojouleError(
            f"neuron is one module, {neuron}, but every layer needs its own: pass a factory such as Spike, nn.ReLU or "
            "functools.partial(Spike, threshold=0.5)"
        )
    if _takes_steps(neuron):
        neuron = functools.partial(neuron, steps=steps)
    elif steps > 1:
        raise PicojouleError(
            f"steps={steps} needs a neuron with a membrane, such as IF or LIF: {neuron} cannot be made with "
            f"steps={steps}"
        )
    build_neuron = functools.partial(_made, neuron)
    model: ZooModel
    if isinstance(entry, _ForImages):
        model = entry.build(classes, channels, build_neuron, steps)
    else:
        shape = (channels, *entry.input_shape[1:]) if input_shape is None else input_shape
        model = entry.build(classes, shape, build_neuron, steps, spiking_input)
    if len(list(model.named_modules())) < len(list(model.named_modules(remove_duplicate=False))):
        raise PicojouleError("neuron gave the same module twice: let it make a new module on every call")
    return model if weights is None else _trained(model, name, weights)


def _trained(model: ZooModel, name: str, weights: str) -> ZooModel:
    """Put weights that ship with picojoule into a network, in evaluation mode."""
    state = pretrained.load(name, weights)
    try:
        model.load_state_dict(state)
    except RuntimeError:
        raise PicojouleError(
            f"the weights {weights!r} are not for this {name}: leave out classes, in_channels and neuron, or weights"
        ) from None
    model.eval()
    return model


def _is_count(value: object) -> bool:
    return type(value) is not bool and isinstance(value, Integral) and int(value) >= 1


def _made(neuron: Callable[[], nn.Module]) -> nn.Module:
    """Make a new neuron with the user's factory."""
    try:
        module = neuron()
    except TypeError as fault:
        raise PicojouleError(
            f"neuron={neuron!r} could not be called without arguments ({fault}): pass a factory such as Spike, nn.ReLU "
            "or functools.partial(Spike, threshold=0.5)"
        ) from fault
    if not isinstance(module, nn.Module):
        raise PicojouleError(f"neuron={neuron!r} made {type(module).__name__}: let it make an nn.Module on every call")
    return module


def _takes_steps(neuron: Callable[..., nn.Module]) -> bool:
    try:
        return "steps" in inspect.signature(neuron).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False
