"""Where the time steps are in a network's tensors, and the operations that move them.

A network over T steps takes an image once, gives it to its layers in every step, with time folded into the batch
([T·B, …]) or in an axis of its own ([T, B, …]), and reads its answer out as a mean or a sum over the steps. None of
that is work for the engine: the values stay where they are, but for the sum.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor, fx

from picojoule.deploy.events.builder import ProgramBuilder
from picojoule.deploy.events.currents import read_out, reshape, scaled
from picojoule.deploy.events.values import Value, value_of
from picojoule.deploy.graph.nodes import argument
from picojoule.deploy.graph.refusal import Unsupported
from picojoule.neurons.time_steps import present, readout, unfold


class Time(Enum):
    """Where the time steps are in a tensor."""

    NONE = "[B, …]"
    FOLDED = "[T·B, …]"
    AXIS = "[T, B, …]"


def result_time(given: Sequence[Time]) -> Time:
    """Find where the steps are in what an operation makes of its tensors, one step at a time.

    Args:
        given: Where they are in its tensors.

    Returns:
        The same place.

    Raises:
        Unsupported: If they are at different places.

    Example:
        >>> result_time([Time.FOLDED, Time.FOLDED])
        <Time.FOLDED: '[T·B, …]'>
    """
    kinds = set(given)
    if len(kinds) > 1:
        raise Unsupported(f"give it tensors of one form, not {' and '.join(sorted(kind.value for kind in kinds))}")
    return kinds.pop() if kinds else Time.NONE


def over_time(
    builder: ProgramBuilder, node: fx.Node, sources: list[tuple[Value | None, Time]], shape: tuple[int, ...]
) -> tuple[Value, Time] | None:
    """Lower a function that puts time into a tensor, moves it, or takes it out.

    Args:
        builder: The program.
        node: The call.
        sources: The values it is given, and where the steps are in them.
        shape: The shape of its result for one sample.

    Returns:
        What it leaves and where the steps are then; None if it does nothing about time.

    Raises:
        Unsupported: If it repeats its input another number of times.
    """
    if len(sources) != 1:
        return None
    (given, time), steps = sources[0], builder.steps
    called = node.target if node.op == "call_function" else getattr(Tensor, str(node.target), None)
    value = value_of(given)
    if time is Time.NONE:
        return _presented(node, called, value, shape, steps)
    over_steps = time is Time.AXIS and called in _REDUCTIONS and argument(node, 1, "dim") in (0, [0], (0,))
    if called is readout or over_steps:
        summed = argument(node, 2, "summed", default=False) if called is readout else called in _SUMS
        return read_out(builder, value, summed=bool(summed)), Time.NONE
    if called in _SHAPES:
        per_step = (value.map.channels, value.map.height, value.map.width)
        if time is Time.FOLDED and shape[:2] == (steps, 1) and _is_of(shape[2:], per_step):
            return value, Time.AXIS
        if time is Time.AXIS and shape[0] == steps and _is_of(shape[1:], per_step):
            return value, Time.FOLDED
        if time is Time.AXIS and shape[:2] == (steps, 1):
            return reshape(builder, value, shape[1:]), Time.AXIS
    if time is Time.AXIS and called not in _BY_ELEMENT:
        raise Unsupported("fold time into the batch for it, .flatten(0, 1)", because="which takes [T, batch, …]")
    return None


def _presented(
    node: fx.Node, called: Any, value: Value, shape: tuple[int, ...], steps: int
) -> tuple[Value, Time] | None:
    """Lower what gives an image to every step."""
    if called is present:
        shared = argument(node, 2, "shared", default=False)
        return (scaled(value, 1 / steps) if shared else value), Time.FOLDED
    if called in (torch.cat, torch.stack):
        copies, dim = argument(node, 0, "tensors"), argument(node, 1, "dim", default=0)
        if len(copies) != steps or dim != 0:
            raise Unsupported(f"repeat its input {steps} times along the first axis, as there are time steps")
        return value, Time.FOLDED if called is torch.cat else Time.AXIS
    if called in _REPEATS and shape[0] == steps:
        return value, Time.AXIS if shape[:2] == (steps, 1) and len(shape) == _axes(value) + 2 else Time.FOLDED
    if called in (torch.unsqueeze, Tensor.unsqueeze) and argument(node, 1, "dim") == 0:
        return value, Time.NONE  # to be repeated
    return None


def _axes(value: Value) -> int:
    """Count the axes of one sample, which is a vector where the map is a single pixel."""
    return 1 if value.map.pixels == 1 else 3


def _is_of(sample: tuple[int, ...], per_step: tuple[int, int, int]) -> bool:
    """Say whether a sample has the shape of a map: [F], [C, L] or [C, H, W]."""
    channels, height, width = per_step
    if (len(sample) < 3 and height > 1) or (len(sample) < 2 and width > 1):
        return False
    return sample == (channels, height, width)[:1] + (height, width)[3 - len(sample) :]


_REPEATS: set[Any] = {Tensor.repeat, Tensor.expand, torch.tile, Tensor.tile}
_SUMS: set[Any] = {torch.sum, Tensor.sum}
_REDUCTIONS: set[Any] = {torch.mean, Tensor.mean, *_SUMS}
_SHAPES: set[Any] = {unfold, Tensor.unflatten, torch.unflatten, Tensor.view, Tensor.reshape, torch.reshape}
_SHAPES |= {torch.flatten, Tensor.flatten}
_BY_ELEMENT: set[Any] = {
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
}
_BY_ELEMENT |= {Tensor.add, Tensor.add_, Tensor.sub, Tensor.mul, Tensor.div, Tensor.contiguous, Tensor.clone}
