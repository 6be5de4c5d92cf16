"""The layout of spikes in time: where the time steps are in what the layers of a network emit.

A `TimeLayout` holds for a whole network, and the caller gives it to `picojoule.watch` and `trace`. A `LayerLayout` (a
`PoolLayout` for max pools) belongs to one layer and follows from its type. `completed` puts the two together; where
they contradict each other, or what a layer emits contradicts either, that is an error. The sizes of axes never decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.neurons.time_steps import check_steps


@dataclass(frozen=True)
class TimeLayout:
    """Where the time steps are in what the spiking layers of a network emit.

    * `steps` calls of each layer, one per step, each [B, …] (the default; `steps=1` is one call),
    * `time_axis=0` or `1`: one call with a time axis, [T, B, …] or [B, T, …],
    * `folded="time"` or `"batch"`: one call with time and batch in one axis, [T·B, …] or [B·T, …], named by the slower.

    Args:
        steps: The number of time steps, T.
        time_axis: The axis of time, where it has one of its own.
        folded: Which of time and batch is the slower in their common axis.

    Raises:
        PicojouleError: If steps is not a whole number from 1 up, or the other two are not known or both given.

    >>> TimeLayout(steps=4, time_axis=0).shape
    '[T, B, …]'
    """

    steps: int = 1
    time_axis: int | None = None
    folded: Literal["time", "batch"] | None = None

    def __post_init__(self) -> None:
        check_steps(self.steps)
        if self.time_axis is not None and (type(self.time_axis) is not int or self.time_axis not in (0, 1)):
            raise PicojouleError(f"time_axis={self.time_axis!r} is not known: give 0 for [T, B, …] or 1 for [B, T, …]")
        if self.folded not in (None, "time", "batch"):
            raise PicojouleError(
                f"folded={self.folded!r} is not known: give 'time' for [T·B, …] or 'batch' for [B·T, …]"
            )
        if self.time_axis is not None and self.folded is not None:
            raise PicojouleError("time_axis and folded exclude each other: time has an axis of its own or it has not")

    @property
    def one_call_holds_all_steps(self) -> bool:
        """Whether a layer is called once for all time steps."""
        return self.time_axis is not None or self.folded is not None

    @property
    def shape(self) -> str:
        """What a layer emits in one call, as messages write it."""
        if self.folded is not None:
            return "[T·B, …]" if self.folded == "time" else "[B·T, …]"
        return {None: "[B, …]", 0: "[T, B, …]", 1: "[B, T, …]"}[self.time_axis]

    def has_axis_in(self, shape: Sequence[int]) -> bool:
        """Return whether a tensor of this shape has time as an axis of its own.

        Args:
            shape: The shape of the tensor.

        Returns:
            Whether it has.
        """
        return self.time_axis is not None and len(shape) > self.time_axis and shape[self.time_axis] == self.steps

    def is_in(self, shape: Sequence[int], samples: int) -> bool:
        """Return whether a tensor of this shape has all time steps in it, as an axis or folded into the batch.

        Args:
            shape: The shape of the tensor.
            samples: The batch size.

        Returns:
            Whether it has.
        """
        if self.has_axis_in(shape) or shape[0] == self.steps * samples:
            return True
        return self.can_loop_over(shape, samples) or (self.folded is not None and shape[0] == self.steps)

    def can_loop_over(self, shape: Sequence[int], samples: int) -> bool:
        """Return whether a tensor is [T, B, …], so that a network that is called once may take its steps from it.

        Args:
            shape: The shape of the tensor.
            samples: The batch size B.

        Returns:
            Whether it is.
        """
        return self.folded is None and self.steps != samples and tuple(shape[:2]) == (self.steps, samples)

    def by_step(
        self, name: str, calls: Sequence[Tensor], layer: LayerLayout | PoolLayout | None = None
    ) -> list[Tensor]:
        """Split what a layer emitted into time steps.

        Args:
            name: The layer's name, for messages.
            calls: What it emitted, call by call.
            layer: Its own layout, if its type has one.

        Returns:
            What it emitted in each time step, each [B, …]; no copies are made.

        Raises:
            PicojouleError: If number or shapes of the calls contradict the layout.

        >>> import torch
        >>> [step.shape for step in TimeLayout(3, folded="time").by_step("spike1", [torch.zeros(6, 4)])]
        [torch.Size([2, 4]), torch.Size([2, 4]), torch.Size([2, 4])]
        """
        if layer is not None:
            return layer.resolve(self, name, calls).by_step(name, calls)
        if not self.one_call_holds_all_steps:
            self._check_calls(name, calls)
            return list(calls)
        if len(calls) != 1:
            raise PicojouleError(
                f"the layer {name!r} was called {len(calls)} times where one call with all {self.steps} steps was "
                "expected: leave out time_axis and folded if the network is called once per step, or make two modules "
                "of one used twice"
            )
        return self._split(name, calls[0])

    def _check_calls(self, name: str, calls: Sequence[Tensor]) -> None:
        """Refuse calls that are not one per step, each with the same batch size."""
        if len(calls) > self.steps:
            raise PicojouleError(
                f"the layer {name!r} was called {len(calls)} times where {self.steps} were expected: if the network "
                f"runs over time, say steps={len(calls)}; if it uses one neuron module at two places, make two modules"
            )
        if len(calls) < self.steps:
            raise PicojouleError(
                f"the layer {name!r} was called {len(calls)} times where steps={self.steps} were expected: call the "
                "network once per step inside the block, or, if one call holds all steps, say time_axis= or folded="
            )
        sizes = sorted({len(call) for call in calls})
        if len(sizes) > 1:
            raise PicojouleError(
                f"the layer {name!r} was called with batches of {sizes} samples: one block takes one batch, the same "
                "in every step"
            )

    def _split(self, name: str, emitted: Tensor) -> list[Tensor]:
        """Split the output of one call that holds all steps."""
        if self.time_axis is not None:
            if emitted.dim() < 2 or emitted.shape[self.time_axis] != self.steps:
                raise PicojouleError(
                    f"the layer {name!r} emitted shape {tuple(emitted.shape)}, whose axis {self.time_axis} is not "
                    f"steps={self.steps}: check steps and time_axis"
                )
            return list(emitted.unbind(self.time_axis))
        if len(emitted) % self.steps:
            raise PicojouleError(
                f"the layer {name!r} emitted {len(emitted)} rows, which do not divide into steps={self.steps}: check "
                "steps"
            )
        batch, time = len(emitted) // self.steps, 0 if self.folded == "time" else 1
        shape = (batch, self.steps) if time else (self.steps, batch)
        return list(emitted.reshape(*shape, *emitted.shape[1:]).unbind(time))


@dataclass(frozen=True)
class LayerLayout:
    """Where the time steps are in what one layer emits, as its type says.

    Without settings the layer takes one step per call and emits [B, …]. Else one call holds all steps, as for
    `TimeLayout`: `time_axis=0` is [T, B, …], `time_axis=1` is [B, T, …], `folded` is [T·B, …] or [B·T, …].
    """

    time_axis: int | None = None
    folded: Literal["time", "batch"] | None = None
    steps: int | None = None
    """Time steps in one call, where the layer is bound to a number of them."""
    samples: int | None = None
    """Samples in one call, where the layer is bound to a number of them."""

    @property
    def one_step_per_call(self) -> bool:
        """Whether the layer takes one time step in each call."""
        return self.time_axis is None and self.folded is None

    def resolve(self, layout: TimeLayout, name: str, calls: Sequence[Tensor]) -> TimeLayout:
        """Find the layout by which what this layer emitted is split.

        Args:
            layout: The layout of the network.
            name: The layer's name, for messages.
            calls: What it emitted, call by call.

        Returns:
            The network's layout, or one call per step if the layer takes one step per call.

        Raises:
            PicojouleError: If the layer cannot work in a network of that layout.
        """
        if self.one_step_per_call:
            if layout.one_call_holds_all_steps and len(calls) == 1 < layout.steps:
                raise PicojouleError(
                    f"the layer {name!r} takes one time step per call, [B, …], but was called once where "
                    f"{layout.steps} time steps were said to be in one call: use the neuron's form for many steps, "
                    "or leave out time_axis and folded and call it once per step"
                )
            return TimeLayout(layout.steps)
        for emitted in calls:
            if self.samples is not None and len(emitted) != self.samples * layout.steps:
                steps, rest = divmod(len(emitted), self.samples)
                remedy = f"say steps={steps}" if steps and not rest else f"give it {self.samples} samples in each step"
                raise PicojouleError(
                    f"the layer {name!r} is bound to {self.samples} samples and emitted {len(emitted)} rows, which is "
                    f"not steps={layout.steps}: {remedy}"
                )
        return layout


@dataclass(frozen=True)
class PoolLayout:
    """Where the time steps are in what a max pool emits: where they are in what reaches it.

    Time is an axis, folded into the batch, or step by step: the number of the tensor's axes tells which.
    """

    map_axes: int
    """The axes of one map: channels and places."""

    def resolve(self, layout: TimeLayout, name: str, calls: Sequence[Tensor]) -> TimeLayout:
        """Find the layout by which what this pool emitted is split.

        Args:
            layout: The layout of the network.
            name: The pool's name.
            calls: What it emitted, call by call.

        Returns:
            The network's layout, or one in which time has no axis of its own.
        """
        if layout.time_axis is None or any(pooled.dim() != 1 + self.map_axes for pooled in calls):
            return layout
        if len(calls) == layout.steps:
            return TimeLayout(layout.steps)
        return TimeLayout(layout.steps, folded="time" if layout.time_axis == 0 else "batch")


def completed(said: TimeLayout, layer_layouts: Mapping[str, LayerLayout | PoolLayout | None]) -> TimeLayout:
    """Complete the layout that the caller gave by what the types of the layers say.

    Args:
        said: What the caller gave.
        layer_layouts: What each layer's type says, by its name; None where it says nothing.

    Returns:
        The layout of the network.

    Raises:
        PicojouleError: If layers contradict each other or the caller.
    """
    layout = said
    for name, layer in layer_layouts.items():
        if not isinstance(layer, LayerLayout) or layer.one_step_per_call:
            continue
        own = TimeLayout(said.steps, layer.time_axis, layer.folded)
        if layer.steps not in (None, said.steps):
            raise PicojouleError(
                f"the layer {name!r} runs over {layer.steps} time steps in each call where steps={said.steps} was "
                f"said: say steps={layer.steps}"
            )
        if layout.one_call_holds_all_steps and own != layout:
            raise PicojouleError(
                f"the layer {name!r} emits its spikes as {own.shape}, not as {layout.shape}: leave out time_axis and "
                "folded, and let all neurons of a network take time in the same way"
            )
        layout = own
    return layout
