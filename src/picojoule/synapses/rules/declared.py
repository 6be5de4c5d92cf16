"""Operations without a rule: what to do about one, and how to declare one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_map_only
from picojoule.synapses.rules.call import Call, shadow
from picojoule.synapses.rules.passing import PASSING, PassingRule, identity
from picojoule.synapses.rules.synaptic import SYNAPTIC, UNCOUNTED

REMEDIES: dict[str, str] = {
    **dict.fromkeys(
        "max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices".split(),
        "use the pool as a module (nn.MaxPool2d and its kin), which picojoule counts behind the pool",
    ),
    **dict.fromkeys(
        "layer_norm group_norm instance_norm rms_norm".split(),
        "its scale depends on the data; use batch norm, move it behind the synapses, or declare it with "
        "picojoule.declare_rule({name!r}, picojoule.rules.identity) if each element keeps its connections",
    ),
}
DEFAULT_REMEDY = (
    "move it in front of a spiking layer, or, if each element keeps its connections, say so in one line: "
    "picojoule.declare_rule({name!r}, picojoule.rules.identity)"
)


def remedy(name: str) -> str:
    """What to do about an operation without a rule."""
    return REMEDIES.get(name, DEFAULT_REMEDY).format(name=name)


def declare_rule(name: str, rule: PassingRule) -> None:
    """Let an operation pass connections on: `identity`, `natural`, or a function of `Call` of your own.

    `name` is the operation's name in PyTorch (`"relu"` covers `torch.relu`, `F.relu` and `Tensor.relu`).
    """
    if not isinstance(name, str):
        raise PicojouleError(f"{name!r} is no name of an operation of PyTorch: give one such as 'relu'")
    if name in SYNAPTIC or name in UNCOUNTED:
        raise PicojouleError(
            f"{name!r} multiplies activations by weights, so it cannot be declared to pass connections on"
        )
    if not callable(rule) or not any(hasattr(home, name) for home in (torch, F, Tensor, torch.special)):
        raise PicojouleError(
            f"{name!r} with {rule!r} is no rule: give the name of an operation of PyTorch and rules.identity, "
            "rules.natural or a function of rules.Call"
        )
    PASSING[name] = _checked_identity if rule is identity else rule


def _checked_identity(call: Call) -> Any:
    """`identity` for an operation of which only the user says that it keeps each element in its place."""
    args, kwargs = tree_map_only(Tensor, shadow, (call.args, call.kwargs))
    before, after = call.argument(0, "input"), call.run(*args, **kwargs)
    if not isinstance(after, Tensor) or after.shape != before.shape:
        raise PicojouleError("does not keep the shape of what it takes, so rules.identity is not its rule")
    return identity(call)
