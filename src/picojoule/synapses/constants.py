"""Constants beside activations: when they are the weights of a layer that is written by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from picojoule.kernels.torch_private import torch_function_disabled
from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import SCALING
from picojoule.synapses.rules.readout import ADDING, ELEMENTWISE, bare, is_constant_tensor
from picojoule.synapses.tags import Origin

_SHIFTING = frozenset("add add_ sub sub_ subtract subtract_ rsub __rsub__".split())


def constants_in(name: str, call: Call, origin: Origin) -> Origin:
    """Say how the constants of one operation show in its result, for a later sum to notice.

    Spikes times a number each, and any nonlinear function of their distance to numbers (a comparison with a prototype),
    become synapses when the elements are added up. So do currents that meet several constants each.

    Args:
        name: The operation's name in PyTorch.
        call: Its arguments.
        origin: What the arguments carry.

    Returns:
        What the result carries beside that.
    """
    given = (*call.args, *call.kwargs.values())
    constants = [value for value in given if is_constant_tensor(call, value) and bool(value.any())]
    spikes = bool(origin & (Origin.SPIKES | Origin.OPAQUE))
    found = Origin(0)
    if name in SCALING and origin & (Origin.SPIKES | Origin.OPAQUE | Origin.INPUT):
        divided_by_data = spikes and sum(map(call.is_activation, call.args)) > 1
        found |= Origin.WEIGHTED if constants or divided_by_data else Origin(0)
    if name in _SHIFTING and constants and spikes:
        found |= Origin.SHIFTED
    if (name in SCALING or name in _SHIFTING) and origin & ~Origin.INPUT and _meets_several(call, constants):
        found |= Origin.WEIGHTED | Origin.SPREAD
    if origin & Origin.SHIFTED and bare(name) in ELEMENTWISE:
        found |= Origin.WEIGHTED
    if spikes and (name == "batch_norm" or (name in SCALING and any(map(_is_element, call.args)))):
        found |= Origin.RESCALED
    if spikes and (origin | found) & (Origin.WEIGHTED | Origin.RESCALED) and _adds_elements(name, call):
        found |= Origin.SUMMED
    return found


def is_of_a_table(value: object) -> bool:
    """Whether a value holds several numbers, or is one of several."""
    return isinstance(value, Tensor) and (value.numel() > 1 or _is_element(value))


def _is_element(value: object) -> bool:
    """Whether a value is one number of a larger tensor, as in a layer that is written as a loop over its weights."""
    if not isinstance(value, Tensor) or value.numel() != 1 or value.layout != torch.strided:
        return False
    with torch_function_disabled():  # asked by the pass, not by the model
        return value.untyped_storage().nbytes() > value.element_size()


def _adds_elements(name: str, call: Call) -> bool:
    """Whether an operation adds up elements of activations, in one tensor or of two."""
    if name in _SHIFTING:
        return all(map(call.is_activation, (call.argument(0, "input"), call.argument(1, "other"))))
    return "pool" in name or bare(name) in ADDING or name == "fold"


def _meets_several(call: Call, constants: list[Tensor]) -> bool:
    """Whether one element of an activation meets constants that differ."""
    activations = [value for value in call.args if isinstance(value, Tensor) and call.is_activation(value)]
    return any(
        torch.broadcast_shapes(x.shape, constant.shape).numel() > x.numel() and not _is_one_number(constant)
        for x in activations
        for constant in constants
    )


def _is_one_number(constant: Tensor) -> bool:
    return bool((constant == constant.flatten()[0]).all())
