"""Where time is in what the layers of a network emit: as the caller says it, and as the type of a layer says it.

A `TimeLayout` holds for a whole network and is said to `picojoule.watch` and `trace`; a `Clock` belongs to one layer
and follows from its type. What the clocks say completes what the caller said (`completed`); where the two contradict
each other, or what a layer emits contradicts either, that is an error. The sizes of axes never decide.
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
    """Where time is in what a spiking layer emits.

    * `steps` calls of each layer, one a step, each [B, …] (the default; `steps=1` is one call),
    * `time_axis=0` or `1`: one call with a time axis, [T, B, …] or [B, T, …],
    * `folded="time"` or `"batch"`: one call with time and batch in one axis, [T·B, …] or [B·T, …], named by the slower.
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
        return self.time_axis is not None or self.folded is not None

    @property
    def shape(self) -> str:
        """In words, for messages."""
        if self.folded is not None:
            return "[T·B, …]" if self.folded == "time" else "[B·T, …]"
        return {None: "[B, …]", 0: "[T, B, …]", 1: "[B, T, …]"}[self.time_axis]

    def has_axis_in(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape has time as an axis of its own."""
        return self.time_axis is not None and len(shape) > self.time_axis and shape[self.time_axis] == self.steps

    def is_in(self, shape: Sequence[int], samples: int) -> bool:
        """Whether a tensor of this shape has all time steps in it, as an axis or folded into the batch."""
        if self.has_axis_in(shape) or shape[0] == self.steps * samples:
            return True
        return self.can_loop_over(shape, samples) or (self.folded is not None and shape[0] == self.steps)

    def can_loop_over(self, shape: Sequence[int], samples: int) -> bool:
        """Whether a tensor is [T, B, …], so that a network that is called once may take its steps from it."""
        return self.folded is None and self.steps != samples and tuple(shape[:2]) == (self.steps, samples)

    def by_step(self, name: str, calls: Sequence[Tensor], clock: Clock | PoolClock | None = None) -> list[Tensor]:
        """What a layer emitted, step by step, each [B, …]."""
        if clock is not None:
            return clock.within(self, name, calls).by_step(name, calls)
        if self.time_axis is None and self.folded is None:
            if len(calls) > self.steps:
                raise PicojouleError(
                    f"the layer {name!r} was called {len(calls)} times where {self.steps} were expected: if the "
                    f"network runs over time, say steps={len(calls)}; if it uses one neuron module at two places, make "
                    "two modules"
                )
            if len(calls) < self.steps:
                raise PicojouleError(
                    f"the layer {name!r} was called {len(calls)} times where steps={self.steps} were expected: call "
                    "the network once a step inside the block, or, if one call holds all steps, say time_axis= or "
                    "folded="
                )
            sizes = sorted({len(call) for call in calls})
            if len(sizes) > 1:
                raise PicojouleError(
                    f"the layer {name!r} was called with batches of {sizes} samples: one block takes one batch, the "
                    "same in every step"
                )
            return list(calls)
        if len(calls) != 1:
            raise PicojouleError(
                f"the layer {name!r} was called {len(calls)} times where one call with all {self.steps} steps was "
                "expected: leave out time_axis and folded if the network is called once a step, or make two modules of "
                "one used twice"
            )
        (emitted,) = calls
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
class Clock:
    """Where one layer has time in what it emits.

    Without settings it takes one step a call and emits [B, …]. Else one call holds all steps, as for `TimeLayout`:
    `time_axis=0` is [T, B, …], `time_axis=1` is [B, T, …], `folded` is [T·B, …] or [B·T, …].
    """

    time_axis: int | None = None
    folded: Literal["time", "batch"] | None = None
    steps: int | None = None
    """Time steps in one call, where the layer is bound to a number of them."""
    samples: int | None = None
    """Samples in one call, where the layer is bound to a number of them."""

    @property
    def one_step_a_call(self) -> bool:
        return self.time_axis is None and self.folded is None

    def within(self, layout: TimeLayout, name: str, calls: Sequence[Tensor]) -> TimeLayout:
        """The layout of this layer in a network of that layout, given what it emitted."""
        if self.one_step_a_call:
            if layout.one_call_holds_all_steps and len(calls) == 1 < layout.steps:
                raise PicojouleError(
                    f"the layer {name!r} takes one time step a call, [B, …], but was called once where {layout.steps} "
                    "time steps were said to be in one call: use the neuron's form for many steps, or leave out "
                    "time_axis and folded and call it once a step"
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
class PoolClock:
    """A max pool takes what reaches it, with time as an axis, folded into the batch, or step by step: the number of its
    axes tells."""

    map_axes: int
    """Channels and places."""

    def within(self, layout: TimeLayout, name: str, calls: Sequence[Tensor]) -> TimeLayout:
        if layout.time_axis is None or any(pooled.dim() != 1 + self.map_axes for pooled in calls):
            return layout
        if len(calls) == layout.steps:
            return TimeLayout(layout.steps)
        return TimeLayout(layout.steps, folded="time" if layout.time_axis == 0 else "batch")


def completed(said: TimeLayout, clocks: Mapping[str, Clock | PoolClock | None]) -> TimeLayout:
    """The layout that the caller said, completed by the layers that know where time is; they must agree."""
    layout = said
    for name, clock in clocks.items():
        if not isinstance(clock, Clock) or clock.one_step_a_call:
            continue
        own = TimeLayout(said.steps, clock.time_axis, clock.folded)
        if clock.steps not in (None, said.steps):
            raise PicojouleError(
                f"the layer {name!r} runs over {clock.steps} time steps in each call where steps={said.steps} was "
                f"said: say steps={clock.steps}"
            )
        if layout.one_call_holds_all_steps and own != layout:
            raise PicojouleError(
                f"the layer {name!r} emits its spikes as {own.shape}, not as {layout.shape}: leave out time_axis and "
                "folded, and let all neurons of a network take time in the same way"
            )
        layout = own
    return layout
