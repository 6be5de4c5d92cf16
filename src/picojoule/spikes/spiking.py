"""Which modules of a network emit spikes, and where the time steps are in what each of them emits.

A layer is spiking because of its type (picojoule's own, or one of a framework in `frameworks`), or because the user
said so (`declare_spiking`), never because of the values it happens to emit. Where a layer returns a tuple, element 0 is
the spikes.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import compiled_original
from picojoule.neurons.cell import Cell
from picojoule.neurons.input_spikes import InputSpikes
from picojoule.neurons.lif import MembraneNeuron
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.spikes.frameworks import Fires, Refused, framework_of, kind_of
from picojoule.spikes.layout import LayerLayout, PoolLayout
from picojoule.spikes.unit import Unit

_spiking_types: dict[type[nn.Module], Unit] = dict.fromkeys((Spike, MembraneNeuron, Cell, QuantizedReLU), Unit())
_MARK = "picojoule_spiking"
"""Set on a single module that the user declares, so that copies of the model know it too."""
_UNIT_MARK = "picojoule_unit"
"""Beside it: what one of its spikes is worth, and whether there are negative ones."""

_POOLS = (
    (nn.MaxPool1d, nn.AdaptiveMaxPool1d),
    (nn.MaxPool2d, nn.AdaptiveMaxPool2d),
    (nn.MaxPool3d, nn.AdaptiveMaxPool3d),
)
RELAYS = tuple(pool for pools in _POOLS for pool in pools)
"""Modules that pass some of the spikes on, which ones depends on the data: their output is a spike map of its own."""

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "_FabricModule")

Declared = TypeVar("Declared", bound="type[nn.Module] | nn.Module")


def declare_spiking(neuron: Declared, *, unit: float = 1, signed: bool = False) -> Declared:
    """Declare that a module type, or one module, emits spikes; also usable as a class decorator.

    Event data fed straight into the first synapses are spikes too: let them pass through a `picojoule.InputSpikes()`.

    Args:
        neuron: A class of modules, for all of its instances, or a single module.
        unit: The value of one spike: neurons that emit 0, 1/4, 2/4, … emit 0, 1, 2, … spikes with `unit=1/4`.
        signed: Whether there are negative spikes (−1, 0, 1), each of which costs as much as a positive one.

    Returns:
        The same, so that it can be used as a decorator.

    Raises:
        PicojouleError: If it is neither, or the unit is not a finite number above 0.

    >>> class Heaviside(nn.Module):
    ...     def forward(self, u):
    ...         return (u >= 1).float()
    >>> _ = declare_spiking(Heaviside)
    >>> list(spiking_modules(nn.Sequential(nn.Linear(2, 2), Heaviside())))
    ['1']
    """
    worth = Unit(unit, signed)
    if isinstance(neuron, nn.Module):
        setattr(neuron, _MARK, True)
        setattr(neuron, _UNIT_MARK, worth)
    elif isinstance(neuron, type) and issubclass(neuron, nn.Module):
        _spiking_types[neuron] = worth
    else:
        raise PicojouleError(
            f"only an nn.Module or a class of them can be declared spiking, not {neuron!r}: wrap it in a module"
        )
    return neuron


def is_spiking(module: nn.Module) -> bool:
    """Return whether a module emits spikes, by its type or because it was declared."""
    return is_declared(module) or isinstance(kind_of(module), Fires)


def is_declared(module: nn.Module) -> bool:
    """Return whether a module was declared spiking, or is one of picojoule's own neurons."""
    return isinstance(module, tuple(_spiking_types)) or getattr(module, _MARK, False) is True


def unit_of(module: nn.Module) -> Unit:
    """Return what one spike of a spiking layer is worth.

    Args:
        module: A spiking layer or relay.

    Returns:
        The unit that it was declared with, or that its type says; 1 for a relay.
    """
    marked = getattr(module, _UNIT_MARK, None)
    if isinstance(marked, Unit):
        return marked
    for cls in type(module).__mro__:
        if cls in _spiking_types:
            return _spiking_types[cls]
    kind = kind_of(module)
    return kind.unit if isinstance(kind, Fires) else Unit()


def is_relay(module: nn.Module) -> bool:
    """Return whether a module passes spikes on that are not its own: a max pool, or the place where spikes come in."""
    return isinstance(module, (*RELAYS, InputSpikes))


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's own module inside the wrappers of `torch.compile`, DDP and Fabric.

    Args:
        model: A module, wrapped or not.

    Returns:
        The module whose `named_modules()` name the layers.
    """
    while True:
        inner: object = compiled_original(model)
        if inner is None and type(model).__name__ in _WRAPPERS:
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def spiking_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Find every spiking layer of a model; parts of a spiking layer belong to it.

    Args:
        model: The network, unwrapped.

    Returns:
        The layers by their names in `named_modules()`.

    Raises:
        PicojouleError: If a layer is known not to be countable.

    >>> list(spiking_modules(nn.Sequential(nn.Linear(2, 2), Spike())))
    ['1']
    """
    found: dict[str, nn.Module] = {}
    owned: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in owned:
            continue
        declared, kind = is_declared(module), kind_of(module)
        if declared or isinstance(kind, Fires):
            found[name] = module
            owned.update(module.modules())
        elif isinstance(kind, Refused):
            raise PicojouleError(f"the layer {name!r} ({described(module)}) {kind.because}: {kind.instead}")
    return found


def described(module: nn.Module) -> str:
    """Return the name of a module's class and of the framework that it belongs to, for messages."""
    framework = framework_of(module)
    return type(module).__name__ if framework is None else f"{type(module).__name__} of {framework.name}"


def layer_layout(module: nn.Module) -> LayerLayout | PoolLayout | None:
    """Return where the time steps are in what a spiking layer or relay emits, as far as its type says.

    Args:
        module: A spiking layer or a max pool.

    Returns:
        Its layout, or None where the type does not say.
    """
    if isinstance(module, Cell):
        return LayerLayout()
    if isinstance(module, MembraneNeuron):
        return LayerLayout(time_axis=0) if module.steps is None else LayerLayout(folded="time", steps=module.steps)
    if is_declared(module) or isinstance(module, InputSpikes):
        return None
    if is_relay(module):
        return PoolLayout(1 + next(n for n, pools in enumerate(_POOLS, 1) if isinstance(module, pools)))
    kind = kind_of(module)
    return kind.layout if isinstance(kind, Fires) else None


def first_output(name: str, output: Any) -> Tensor:
    """Return the spikes in what a layer returned: the tensor itself, or element 0 of a tuple or list.

    Args:
        name: The layer's name, for messages.
        output: What it returned.

    Returns:
        The spikes.

    Raises:
        PicojouleError: If there is no tensor there.
    """
    spikes = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(spikes, Tensor):
        raise PicojouleError(
            f"the layer {name!r} returned {type(spikes).__name__} where its spikes were expected: let a spiking layer "
            "return a tensor, or a tuple whose element 0 is the spikes"
        )
    return spikes


def replace_first_output(output: Any, spikes: Tensor) -> Any:
    """Put other spikes into what a layer returned.

    Args:
        output: What it returned.
        spikes: What stands in for the tensor, or for element 0 of the tuple or list.

    Returns:
        A value of the same kind.
    """
    if isinstance(output, Tensor):
        return spikes
    if isinstance(output, list):
        return [spikes, *output[1:]]
    return type(output)(spikes, *output[1:]) if hasattr(output, "_fields") else (spikes, *output[1:])
