"""Watching: the spikes of every spiking layer in a forward pass, without leaving anything on the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import forward_hooks, has_compiled_forward
from picojoule.neurons.input_spikes import InputSpikes
from picojoule.neurons.spike import Spike
from picojoule.spikes.activity import Activity
from picojoule.spikes.gradient import GradientWatch, modules_with_weights
from picojoule.spikes.hooks import OnModule, hooked
from picojoule.spikes.layout import TimeLayout, completed
from picojoule.spikes.spiking import (
    first_output,
    is_relay,
    layer_layout,
    replace_first_output,
    spiking_modules,
    unit_of,
    unwrap,
)


def _versioned(spikes: Tensor) -> Tensor:
    """Return the same memory as a tensor that counts when it is written to, as those made in inference mode do not."""
    if not spikes.is_inference():
        return spikes
    with torch.inference_mode(False):
        alias = torch.empty(0, dtype=spikes.dtype, device=spikes.device)
        return alias.set_(spikes.untyped_storage(), spikes.storage_offset(), spikes.shape, spikes.stride())


@contextmanager
def watch(
    model: nn.Module,
    steps: int = 1,
    time_axis: int | None = None,
    folded: Literal["time", "batch"] | None = None,
    *,
    packed: bool = False,
    stream: bool = False,
) -> Iterator[Activity]:
    """Record the spikes of every spiking layer while the block runs; nothing stays on the model afterwards.

    A network that runs over T time steps is called T times in the block with `steps=T`, or once with its layout in time
    given by `time_axis` or `folded` (see `TimeLayout`); neurons that take all steps in one call (`IF`, `LIF`, those of
    other frameworks) know it themselves. No copies are made: the spikes must not be overwritten in place.

    Args:
        model: A network with spiking layers that picojoule knows or that were declared.
        steps: The number of time steps, T.
        time_axis: The axis of time in what the layers emit, where it has one of its own: 0 or 1.
        folded: "time" for [T·B, …], "batch" for [B·T, …], where time and batch are in one axis.
        packed: Whether to keep the spikes of `Spike` layers as bits, so that their memory is free for others as soon as
            the network has used them. Reading them makes copies; a gradient with respect to such a copy is only that of
            what was computed from it.
        stream: Whether the network's state goes on into the next block, as in a stream of events, so that the spikes of
            the last step are fed back as well. Else nothing is fed back behind the block.

    Yields:
        The spikes by the layer's name, complete when the block ends.

    Raises:
        PicojouleError: If the model is no module, is compiled or has no spiking layer, or nothing was recorded.

    >>> net = nn.Sequential(nn.Linear(3, 2), Spike())
    >>> with watch(net) as activity:
    ...     _ = net(torch.zeros(5, 3))
    >>> activity["1"].shape
    torch.Size([5, 2])
    """
    said = TimeLayout(steps, time_axis, folded)
    model = _hookable(model)
    layers = spiking_modules(model)
    if not layers:
        raise PicojouleError(
            f"{type(model).__name__} has no spiking layer that picojoule knows: declare its neurons with "
            "picojoule.declare_spiking"
        )
    inside = {part for layer in layers.values() for part in layer.modules()}
    relays = {name: m for name, m in model.named_modules() if is_relay(m) and m not in inside}
    layer_layouts = {name: layer_layout(module) for name, module in (layers | relays).items()}
    activity = Activity(completed(said, layer_layouts), stream=stream)
    activity.network_calls = 0
    binary = {name for name, module in layers.items() if _emits_only_zero_and_one(module)}
    gradients = GradientWatch(model)

    def recording(name: str, module: nn.Module) -> OnModule:
        unit = unit_of(module)

        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            emitted = first_output(name, output)
            spikes = _versioned(emitted)
            lost = None if isinstance(module, InputSpikes) else gradients.lost(module, spikes)
            activity.record(
                name, unit.counts(spikes), binary=name in binary, layer=layer_layouts[name], lost=lost, packed=packed
            )
            return None if spikes is emitted else replace_first_output(output, spikes)

        return module, hook

    recorders = [recording(name, module) for name, module in (layers | relays).items()]
    using = [(module, gradients.uses) for module in modules_with_weights(model)] if torch.is_grad_enabled() else []

    def called(module: nn.Module, arguments: Any) -> None:
        assert activity.network_calls is not None
        activity.network_calls += 1

    with hooked(recorders, before=[(model, gradients.begin), (model, called), *using]):
        yield activity
    if not activity:
        raise PicojouleError("nothing was recorded: run the model inside the `with picojoule.watch(model)` block")


def _emits_only_zero_and_one(module: nn.Module) -> bool:
    """Return whether this is picojoule's own `Spike`, without hooks and with its own forward pass."""
    return type(module) is Spike and not forward_hooks(module) and "forward" not in vars(module)


def _hookable(model: nn.Module) -> nn.Module:
    """Return the user's own module, on which hooks work; refuse a compiled one."""
    if not isinstance(model, nn.Module):
        raise PicojouleError(f"watch needs an nn.Module, not {type(model).__name__}: pass the network itself")
    if any(map(has_compiled_forward, model.modules())):
        raise PicojouleError(
            "a compiled module cannot be watched, because its hooks need not fire: watch and call the module that "
            "was given to torch.compile"
        )
    return unwrap(model)
