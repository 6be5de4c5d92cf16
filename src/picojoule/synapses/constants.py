"""What a constant beside activations makes of them: weights of a layer that is written by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import SCALING
from picojoule.synapses.rules.readout import ELEMENTWISE, bare, is_constant_tensor
from picojoule.synapses.tags import Origin

_SHIFTING = frozenset("add add_ sub sub_ subtract subtract_ rsub __rsub__".split())


def constants_in(name: str, call: Call, origin: Origin) -> Origin:
    """How the constants of one operation show in its result, for a later sum to notice.

    Spikes times a number each, and any nonlinear function of their distance to numbers (a comparison with a prototype),
    become synapses when the elements are added up. So do currents that meet several constants each.
    """
    constants = [value for value in (*call.args, *call.kwargs.values()) if is_constant_tensor(call, value)]
    spikes = bool(origin & (Origin.SPIKES | Origin.OPAQUE))
    found = Origin(0)
    if name in SCALING and origin & (Origin.SPIKES | Origin.OPAQUE | Origin.INPUT):
        divided_by_data = spikes and sum(map(call.is_activation, call.args)) > 1
        found |= Origin.WEIGHTED if constants or divided_by_data else Origin(0)
    if name in _SHIFTING and constants and spikes:
        found |= Origin.SHIFTED
    if (name in SCALING or name in _SHIFTING) and origin & ~Origin.INPUT and _meets_several(call, constants):
        found |= Origin.WEIGHTED
    if origin & Origin.SHIFTED and bare(name) in ELEMENTWISE:
        found |= Origin.WEIGHTED
    return found


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
