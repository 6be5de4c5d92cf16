"""Hooks on the model's modules: they note which module runs, and stand in for spiking layers and relays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from picojoule.kernels.torch_private import SUBMODULES, tree_leaves, tree_map_only
from picojoule.neurons.input_spikes import InputSpikes
from picojoule.spikes.frameworks import Fires, Silent, kind_of
from picojoule.spikes.spiking import (
    described,
    first_output,
    is_declared,
    is_relay,
    is_spiking,
    replace_first_output,
    spiking_modules,
    unit_of,
)
from picojoule.synapses.inside import InnerSynapses, held_tensors
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.refusals import refuse_layer_input, refuse_pooled_units, refuse_product
from picojoule.synapses.synaptic_calls import count_unit_synapses
from picojoule.synapses.tags import INERT, STRANGE, Origin, Tag, tensors_in

StandIn = Callable[[Any, Any], Any]
"""(what arrived at a module, what it returned) → what takes the place of its output."""


class ModuleHooks:
    """The hooks of one structural pass on one model."""

    def __init__(self, state: PassState) -> None:
        self._state = state
        self._thread = threading.get_ident()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the model's modules and stand in for its spiking layers and relays while the block runs."""
        model = self._state.model
        spiking = {id(m): name for name, m in spiking_modules(model).items()}
        handles = []
        try:
            handles.append(register_module_forward_pre_hook(self._refuse_unregistered(model)))
            for name, module in model.named_modules():
                if isinstance(module, torch.jit.ScriptModule):  # takes no hooks; the products in it are noticed
                    if id(module) in spiking:
                        self._state.refuse(
                            f"the spiking layer {name!r} is TorchScript, which cannot be followed: trace the model "
                            "before it is scripted"
                        )
                    continue
                is_layer = id(module) in spiking
                if is_layer and not unit_of(module).plain:
                    self._state.units.add(name)
                inner = self._inner(name, module) if is_layer else None
                enter, leave = self._hooks(name, self._stand_in(name, module, spiking=is_layer), inner)
                handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                handles.append(module.register_forward_hook(leave, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _refuse_unregistered(self, model: nn.Module) -> Callable[[nn.Module, Any], None]:
        """Make a hook, for all modules there are, on neurons that run in the model and are none of its modules."""
        registered = set(model.modules())
        held = {module: name for name, module in unregistered_neurons(model)}

        def check(module: nn.Module, arguments: Any) -> None:
            if module in registered or self._state.inside or threading.get_ident() != self._thread:
                return
            if module in held:
                self._state.refuse(unregistered(held[module], module))
            if is_spiking(module):
                self._state.refuse(
                    f"the spiking layer {described(module)} that runs {self._state.where()} is not a module of the "
                    "model, so it cannot be watched: make it once, in __init__, as an attribute of the model"
                )

        return check

    def _stand_in(self, name: str, module: nn.Module, *, spiking: bool) -> StandIn | None:
        """Choose what takes the place of a module's output, if anything does."""
        if spiking:
            return lambda arrivals, output: self._fired(module, name, output)
        if isinstance(module, InputSpikes):
            return lambda arrivals, output: self._entered(name, arrivals, output)
        if is_relay(module):
            return lambda arrivals, output: self._relayed(name, arrivals, output)
        kind = kind_of(module)
        if isinstance(kind, Silent):
            tag = Tag(Origin.CURRENT, f"the layer {name!r} ({described(module)}), which emits {kind.emits},")
            return lambda arrivals, output: self._state.tag(output, tag)
        return None

    def _inner(self, name: str, module: nn.Module) -> InnerSynapses | None:
        kind = None if is_declared(module) else kind_of(module)
        if not isinstance(kind, Fires) or kind.inside is None:
            return None
        return InnerSynapses(self._state, name, module, kind.inside, kind.layout)

    def _hooks(
        self, name: str, stand_in: StandIn | None, inner: InnerSynapses | None
    ) -> tuple[Callable[..., None], Callable[..., Any]]:
        state = self._state

        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if threading.get_ident() != self._thread:  # what it computes there would be connections, not numbers
                state.refuse(
                    f"the module {name!r} was called by another thread while its model is being traced: trace the "
                    "model before the threads use it"
                )
            state.path.append(name)
            if isinstance(module, nn.RNNBase) and state.tags.is_activation((args, kwargs)):
                refuse_product(state, module.mode.lower())
            if stand_in is not None:
                if not state.inside:
                    refuse_layer_input(state, name, (args, kwargs))
                    if state.merging is not None:
                        state.merging.end((args, kwargs))
                    if inner is not None:
                        inner.arrive(args, kwargs)
                    elif not is_relay(module):
                        count_unit_synapses(state, name, (args, kwargs))
                state.inside.append(name)

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            try:
                if stand_in is None:
                    return output
                state.inside.pop()
                if state.inside:
                    return output
                output = stand_in((args, kwargs), output)
                if inner is not None:
                    inner.emit(output, first_output(name, output))
                return output
            finally:
                state.path.pop()

        return enter, leave

    def _fired(self, module: nn.Module, name: str, output: Any) -> Any:
        """Replace what a spiking layer emitted by fresh spikes."""
        state = self._state
        spikes = first_output(name, output)
        held = [vars(part) for part in module.modules()]
        potential = Tag(Origin.CURRENT, f"the state of {name!r}")
        for leaf in tree_leaves((output, held)):  # made by code that may not be seen, and read by others
            if isinstance(leaf, Tensor) and leaf is not spikes and state.tags.get(leaf).origin & STRANGE:
                state.tags.put(leaf, potential)
        if held_tensors(module):
            state.recording.stateful.add(name)
        return replace_first_output(output, state.emit_spikes(name, spikes))

    def _entered(self, name: str, arrivals: Any, output: Any) -> Any:
        """Replace input that arrives as spikes by fresh spikes."""
        tag = self._state.tags.joint(arrivals)
        if tag.origin & ~(INERT | Origin.INPUT):
            self._state.refuse(
                f"{name!r} is where spikes from outside come in, but it is fed by what the network computed: give it "
                "the network's input, and leave it out everywhere else"
            )
        self._state.recording.relays.add(name)
        self._state.recording.stateful.add(name)
        return self._state.emit_spikes(name, output)

    def _relayed(self, name: str, arrivals: Any, output: Any) -> Any:
        """Replace what a max pool passed on by fresh spikes, if it pools spikes."""
        state = self._state
        tag = state.tags.joint(arrivals)
        pooled = first_output(name, output)
        state.tag(output, tag)
        if tag.origin & Origin.CURRENT:
            return self._state.tag(tree_map_only(Tensor, torch.ones_like, output), tag.without(Origin.SPIKES))
        if not tag.origin & Origin.SPIKES:
            return output
        if tag.origin & ~(Origin.SPIKES | Origin.DETACHED | INERT):
            state.refuse(
                f"the max pool {name!r} takes spikes that were scaled or mixed with other values, so what it passes "
                "on are not spikes: pool the spikes as they come from their layer, before any dropout"
            )
        refuse_pooled_units(state, name, state.chains.of(next(iter(tensors_in(arrivals)), None)))
        state.recording.relays.add(name)
        state.recording.stateful.add(name)  # which is to be one module for each place
        return replace_first_output(output, state.emit_spikes(name, pooled))


def unregistered(name: str, module: nn.Module) -> str:
    """Say that a spiking layer is held where PyTorch does not count it among the model's modules."""
    return (
        f"the spiking layer {described(module)} in {name!r} is not a module of the model, so it cannot be watched: "
        "hold it in an nn.ModuleList or nn.ModuleDict instead of a list or dict"
    )


def unregistered_neurons(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List spiking layers in plain lists and dicts, which PyTorch does not count among a model's modules."""
    registered = set(model.modules())
    held = [
        (f"{path}.{name}".lstrip("."), leaf)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name != SUBMODULES
        for leaf in tree_leaves(value)
        if isinstance(leaf, nn.Module) and leaf not in registered
    ]
    return [(name, part) for name, module in held for part in module.modules() if is_spiking(part)]
