"""Synapses inside neuron modules of other frameworks: weights on what arrives, and on their own spikes, a step later.

A module that loops over time, or multiplies inside, shows only what it takes and what it emits. So what its type says
of its weights (`spikes.frameworks.Inside`) is run beside it, on the spikes that stand in for its own, and counted as
any other layer of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.kernels.torch_private import PARAMETERS, tree_leaves
from picojoule.spikes.frameworks import Inside
from picojoule.spikes.layout import LayerLayout
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.synaptic_calls import count_unit_synapses
from picojoule.synapses.tags import INERT, Origin, Tag


class InnerSynapses:
    """The synapses inside one neuron module, counted whenever it is called.

    Args:
        state: The structural pass.
        name: The module's name.
        module: The module.
        inside: What its type says of its weights.
        layout: Where the time steps are in what it emits.
    """

    def __init__(
        self, state: PassState, name: str, module: nn.Module, inside: Inside, layout: LayerLayout | None
    ) -> None:
        self._state, self._name, self._module, self._inside = state, name, module, inside
        self._time_axis = None if layout is None else layout.time_axis
        self._goes_on = False

    def arrive(self, args: Any, kwargs: Any) -> None:
        """Count what arrives: a hook before the module runs."""
        state, (x, *states) = self._state, _tensors((args, kwargs))
        self._goes_on = self._inside.across_calls and self._has_state(states)
        if self._inside.fed is None:
            count_unit_synapses(state, self._name, x)
        else:
            with self._counted_as("input"):
                self._inside.fed(self._module, x, self._once)
        if self._inside.hidden is not None and self._inside.hidden_shape is not None:
            with state.allowing_products():
                h = torch.ones(self._inside.hidden_shape(self._module, x), device=x.device)
            state.tag(h, Tag(Origin.CURRENT, f"the state of {self._name!r}"))
            with self._counted_as("hidden"):
                self._inside.hidden(self._module, h, self._once)
        state.products_allowed += 1

    def emit(self, output: Any, spikes: Tensor) -> None:
        """Count what the spikes of the step before reach: a hook behind the module.

        Args:
            output: What the module returned.
            spikes: What stands in for its spikes.
        """
        state, axis = self._state, self._time_axis
        state.products_allowed -= 1
        before = state.last_spikes.get(self._name) if self._goes_on else None
        if before is not None and axis is not None:
            before = before.narrow(axis, before.shape[axis] - 1, 1)
        state.last_spikes[self._name] = spikes
        state.held_by |= {id(leaf): self._name for leaf in _tensors(output) if leaf is not spikes}
        if self._inside.fed_back is None:
            return
        if axis is None:
            earlier = torch.zeros_like(spikes) if before is None else before
        else:
            first = torch.zeros_like(spikes.narrow(axis, 0, 1)) if before is None else before
            earlier = torch.cat([first, spikes.narrow(axis, 0, spikes.shape[axis] - 1)], axis)
        with self._counted_as("recurrent"):
            self._inside.fed_back(self._module, earlier, self._once)

    def _has_state(self, given: list[Tensor]) -> bool:
        """Whether the module goes on in the state that an earlier call has left: one that is given, or its own."""
        state = self._state
        own = held_tensors(self._module)
        if any(state.tags.get(leaf).origin & ~(INERT | Origin.INPUT) for leaf in given or own):
            return True
        return self._name in state.returned and not state.recording.leaves.get(self._name)

    def _once(self, key: str, make: Callable[[], Tensor]) -> Tensor:
        made = self._state.made_weights
        if (self._name, key) not in made:
            made[self._name, key] = make()
        return made[self._name, key]

    @contextmanager
    def _counted_as(self, part: str) -> Iterator[None]:
        self._state.part = f"{self._name}.{part}"
        try:
            yield
        finally:
            self._state.part = None


def _tensors(nest: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]


def held_tensors(module: nn.Module) -> list[Tensor]:
    """List the tensors that a module and its parts hold beside their parameters."""
    attributes = [value for part in module.modules() for name, value in vars(part).items() if name != PARAMETERS]
    return _tensors(attributes)
