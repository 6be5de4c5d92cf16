"""Analog values: what has passed synapses, a norm or a softmax, and is no number of spikes any more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from picojoule.kernels.torch_private import tree_map_only
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.rules.readout import ELEMENTWISE, bare
from picojoule.synapses.tags import STRANGE, Origin, Tag

NORMS = frozenset("group_norm instance_norm layer_norm log_softmax rms_norm softmax softmin".split())
"""Operations that make analog values of spikes, which depend on all of them."""

FIRING = frozenset(
    "bool ceil eq fix floor floor_divide floordiv ge greater greater_equal gt heaviside int le less less_equal long lt "
    "ne not_equal round sgn short sign trunc uint8".split()
)
"""Operations by which a bare function may make spikes of currents."""


def is_analog(name: str, tag: Tag) -> bool:
    """Whether an operation that no passing rule has taken makes analog values."""
    if tag.origin & (Origin.OPAQUE | STRANGE):
        return False
    if not tag.origin & Origin.SPIKES:
        return bool(tag.origin & Origin.CURRENT)
    mixed = bool(tag.origin & Origin.CURRENT) and (bare(name) in ELEMENTWISE or "max_pool" in name)
    return name in NORMS or mixed


def analog_result(state: PassState, name: str, target: Any, out: Any, tag: Tag) -> tuple[Any, Tag]:
    """Make the result of such an operation: analog everywhere, without connections.

    Args:
        state: The structural pass.
        name: The operation's name.
        target: What it writes into, or None.
        out: What it returned.
        tag: What its arguments carry.

    Returns:
        The result and its tag.
    """
    fired = Origin.FIRED if bare(name) in FIRING or "::" in name else Origin(0)  # a custom operator may fire as well
    blame = tag.blame if tag.origin & Origin.CURRENT else f"{name} {state.where()}"
    tag = Tag((tag.origin & ~(Origin.SPIKES | Origin.SCALED | Origin.DETACHED)) | Origin.CURRENT | fired, blame)
    if isinstance(target, Tensor):
        if target.is_floating_point():
            with state.counting():
                target.copy_(torch.ones_like(target))
        return out, tag
    return tree_map_only(Tensor, _ones, out), tag


def _ones(tensor: Tensor) -> Tensor:
    return torch.ones_like(tensor) if tensor.is_floating_point() else tensor
