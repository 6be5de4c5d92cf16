"""Declared rules: those that users add, for one call or for the process, and what to do about a missing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_map_only
from picojoule.synapses.rules.bilinear import MULTIPLYING
from picojoule.synapses.rules.call import Call, shadow
from picojoule.synapses.rules.passing import PASSING, PassingRule, identity

_HOW_TO_DECLARE = (
    "say so with rules={{{name!r}: picojoule.rules.identity}} in picojoule.trace, or for the whole process with "
    "picojoule.declare_rule({name!r}, picojoule.rules.identity)"
)
REMEDIES: dict[str, str] = {
    **dict.fromkeys(
        (f"{kind}max_pool{axes}d_with_indices" for kind in ("", "adaptive_") for axes in (1, 2, 3)),
        "leave out return_indices",
    ),
    **dict.fromkeys(
        "and bitwise_and logical_and minimum where masked_fill __and__".split(),
        "write the gate as a product of the two, a * b",
    ),
}
DEFAULT_REMEDY = "move it in front of a spiking layer, or, if each element keeps its connections, " + _HOW_TO_DECLARE


def remedy(name: str) -> str:
    """Say what to do about an operation without a rule."""
    return REMEDIES.get(name, DEFAULT_REMEDY).format(name=name)


def declare_rule(name: str, rule: PassingRule) -> None:
    """Let an operation of PyTorch pass connections on, for every later `picojoule.trace` of this process.

    For one call only, give the rule to `picojoule.trace(..., rules={name: rule})` instead.

    Args:
        name: The operation's name in PyTorch (`"relu"` covers `torch.relu`, `F.relu` and `Tensor.relu`).
        rule: `rules.identity` (each element keeps its connections), `rules.natural` (the operation only moves, copies
            or adds elements), or a function of `rules.Call` of your own.

    Raises:
        PicojouleError: The name is not an operation of PyTorch, or is a product with weights, or the rule is not a
            function.

    >>> from picojoule import rules
    >>> declare_rule("hardtanh", rules.identity)
    >>> "hardtanh" in rules.PASSING
    True
    >>> del rules.PASSING["hardtanh"]
    """
    PASSING[name] = _checked_rule(name, rule)


def passing_rules(added: Mapping[str, PassingRule] | None = None) -> dict[str, PassingRule]:
    """Return the passing rules of this process together with those that are added for one call.

    Args:
        added: Rules by the name of the operation, as for `declare_rule`.

    Returns:
        A table of its own, which later declarations do not change.

    Raises:
        PicojouleError: `added` is not a dictionary of rules, or one of them is refused as `declare_rule` would.
    """
    if added is not None and not isinstance(added, Mapping):
        raise PicojouleError(
            f"rules={added!r} is not a dictionary: give rules by the name of the operation, as in "
            "{'relu': picojoule.rules.identity}"
        )
    return {**PASSING, **{name: _checked_rule(name, rule) for name, rule in (added or {}).items()}}


def _checked_rule(name: str, rule: PassingRule) -> PassingRule:
    """Return the rule as the structural pass calls it, or refuse it."""
    if not isinstance(name, str):
        raise PicojouleError(f"{name!r} is not the name of an operation of PyTorch: give one such as 'relu'")
    if name in MULTIPLYING:
        raise PicojouleError(
            f"{name!r} multiplies activations by weights, so it cannot be declared to pass connections on: give a rule "
            "for an operation without weights"
        )
    if not callable(rule) or not any(hasattr(home, name) for home in (torch, F, Tensor, torch.special)):
        raise PicojouleError(
            f"{name!r} with {rule!r} is not a valid rule: give the name of an operation of PyTorch and rules.identity, "
            "rules.natural or a function of rules.Call"
        )
    return _checked_identity if rule is identity else rule


def _checked_identity(call: Call) -> Any:
    """Apply `identity` to an operation of which only the user says that it keeps each element in its place."""
    args, kwargs = tree_map_only(Tensor, shadow, (call.args, call.kwargs))
    before, after = call.argument(0, "input"), call.run(*args, **kwargs)
    if not isinstance(after, Tensor) or after.shape != before.shape:
        raise PicojouleError(
            "does not keep the shape of what it takes, so rules.identity is not its rule: give it one of your own"
        )
    return identity(call)
