"""Counting one call of a synaptic operation: how many synapses each element of its input feeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_map_only
from picojoule.spikes.sums import precise
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.recording import SynapticCall
from picojoule.synapses.refusals import refuse_synaptic_input, refuse_weight
from picojoule.synapses.rules.call import Call, shadow
from picojoule.synapses.rules.synaptic import EITHER_SIDE, SYNAPTIC
from picojoule.synapses.tags import Origin, Tag


def count_call(
    state: PassState, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one call of a synaptic operation and return currents: ones that no gradient passes."""
    x, weight = operands(args, kwargs)
    if name in EITHER_SIDE and not state.tags.is_activation(x):
        x, weight = weight, x
    refuse_weight(state, name, state.tags.get(weight))
    tag = state.tags.get(x)
    refuse_synaptic_input(state, name, tag)
    place = f"{name} {state.where()}"
    call = Call(func, args, kwargs, state.psi, state.tags.is_activation)
    with state.counting():
        like = func(*tree_map_only(Tensor, shadow, args), **tree_map_only(Tensor, shadow, kwargs))
        try:
            present = state.masks.left_of(weight)
            fan_out = SYNAPTIC[name](call, x, present).detach().to(x.device, precise(x.device))
        except PicojouleError as error:
            state.refuse(f"{place} {error}")
        reached = (x * fan_out).sum() if tag.origin & Origin.SPIKES else None
        if reached is not None:
            state.recording.reached.append(reached)
        everywhere = fan_out.expand(x.shape).double()
        analog = everywhere * (x.detach() > 0) if tag.origin & Origin.INPUT else everywhere.new_zeros(())
        currents = torch.ones_like(like, dtype=weight.dtype, device=x.device)
    state.recording.calls.append(
        SynapticCall(
            weight=id(weight),
            place=place,
            module=(state.path[-1] if state.path else "") or name,
            fed=tuple(x.shape),
            macs=round(everywhere.sum().item()),
            analog_macs=round(analog.sum().item()),
            weights=round(present.sum().item()),
            outputs=like.numel(),
            reached=reached,
        )
    )
    return state.tag(currents, Tag(Origin.CURRENT, place))


def weighs_constant(state: PassState, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether weights are applied to a constant that is no weight itself, such as the zeros a state begins with."""
    if name not in SYNAPTIC or ".parametrizations." in f".{state.path[-1] if state.path else ''}.":
        return False
    first, second = (bool(state.tags.get(t).origin & Origin.WEIGHT) for t in operands(args, kwargs))
    return second > first or (first > second and name in EITHER_SIDE)


def operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the two factors of a product, however they were passed."""
    named = [kwargs[k] for k in ("input", "self", "weight", "other", "mat2") if k in kwargs]
    first, second = [a for a in (*args[:2], *named) if isinstance(a, Tensor)][:2]
    return first, second
