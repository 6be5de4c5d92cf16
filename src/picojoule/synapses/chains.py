"""Chains: what a passing operation makes of the expressions of its arguments, noted while the structural pass runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from picojoule.kernels.torch_private import tree_map, version
from picojoule.synapses.expression import Complement, Expression, Expressions, Made, Part, Scaled, are_scaled, as_it_is
from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import (
    PASSING,
    SHAPED_BY,
    PassingRule,
    added,
    aliased,
    assignment,
    cast,
    identity,
    mean,
    scaled,
)
from picojoule.synapses.rules.pools import adaptive_average_pool, average_pool

_SCALING = frozenset(
    "alpha_dropout dropout dropout1d dropout2d dropout3d dropout_ feature_alpha_dropout feature_dropout neg "
    "neg_".split()
)
"""Operations that leave the numbers of spikes as they are, not what they are worth: what dropout takes away counts."""
_AVERAGING = (adaptive_average_pool, average_pool, mean)
"""Rules that add up what the operation averages."""
_COMPLEMENT = frozenset("rsub __rsub__".split())


class Chains:
    """The expressions of the tensors of one structural pass, operation by operation."""

    def __init__(self) -> None:
        self._expressions = Expressions()

    def of(self, tensor: Any) -> Expression | None:
        """Find the expression of a tensor; None if it holds no numbers of spikes, or was overwritten since."""
        return self._expressions.of(tensor, version(tensor)) if isinstance(tensor, Tensor) else None

    def put(self, tensor: Tensor, expression: Expression | None) -> None:
        """Note the expression of a tensor."""
        self._expressions.put(tensor, expression, version(tensor))

    def predicted(self, name: str, rule: PassingRule, call: Call) -> Expression | None:
        """Find the expression of an operation's result, before it runs.

        Args:
            name: The operation's name.
            rule: The passing rule that is applied to it.
            call: Its arguments.

        Returns:
            An expression; None if the result is no number of spikes, or one of the arguments is none.
        """
        x, other = call.argument(0, "input"), call.argument(1, "other")
        if name in ("contiguous", "positive") or rule in (cast, aliased):
            return self.of(x)
        if name in _SCALING:
            return _worth_another(self.of(x))
        if rule is identity or name == "batch_norm":
            return None
        if rule is scaled:
            return self._scaled(call, x, other)
        if rule is added or name in ("add_", "sub_", "subtract_"):
            return self._added(name, rule, call, x, other)
        if name in SHAPED_BY and isinstance(other, Tensor):
            shape = Tensor.expand if name == "expand_as" else Tensor.reshape
            return self._made(
                PASSING["reshape"], replace(call, function=shape, args=(x, tuple(other.shape)), kwargs={})
            )
        made = self._made(assigned if rule is assignment else rule, call)
        return _worth_another(made) if rule in _AVERAGING else made

    def follow(self, name: str, call: Call, out: Any, expression: Expression | None) -> None:
        """Note what was predicted of the result of an operation, now that it has run.

        Args:
            name: The operation's name.
            call: Its arguments.
            out: Its result.
            expression: The result's expression.
        """
        if call.in_place or name == "__setitem__":
            self.put(call.args[0], expression)
        if isinstance(out, Tensor):
            self.put(out, expression)
        elif isinstance(out, list | tuple):
            for index, part in enumerate(out):
                if isinstance(part, Tensor):
                    self.put(part, None if expression is None else Part(expression, index))

    def _scaled(self, call: Call, x: Any, other: Any) -> Expression | None:
        x, constant = (x, other) if call.is_activation(x) else (other, x)
        mask = None if "div" in call.function.__name__ else call.mask_of(constant)
        of_x = self.of(x)
        if of_x is not None and not _is_mask(constant):
            of_x = _worth_another(of_x)
        if mask is None or of_x is None:
            return of_x
        times = Call(torch.mul, (of_x, mask.to(torch.float32)), {}, "exact", call.is_activation)
        return Made(as_it_is, times)

    def _added(self, name: str, rule: PassingRule, call: Call, x: Any, other: Any) -> Expression | None:
        if call.is_activation(x) and call.is_activation(other):
            return self._made(rule, call) if name in ("add", "add_") and call.kwargs.get("alpha", 1) == 1 else None
        spikes, constant = (x, other) if call.is_activation(x) else (other, x)
        of_spikes = self.of(spikes)
        if of_spikes is None or not _is(constant, 0):
            from_one = name in _COMPLEMENT if spikes is x else name in ("sub", "subtract")
            if of_spikes is None or not from_one or not _is(constant, 1) or are_scaled(of_spikes):
                return None
            return Complement(of_spikes)
        return of_spikes

    def _made(self, rule: PassingRule, call: Call) -> Expression | None:
        """Make the expression of an operation on numbers of spikes."""
        unknown = False

        def noted(value: Any) -> Any:
            nonlocal unknown
            if isinstance(value, torch.Size):
                return tuple(value)
            if not isinstance(value, Tensor):
                return value
            if not call.is_activation(value):
                return value.detach()
            expression = self.of(value)
            unknown = unknown or expression is None
            return expression

        args, kwargs = tree_map(noted, (call.args, call.kwargs))
        if unknown:
            return None
        return Made(rule, replace(call, args=args, kwargs=kwargs, is_activation=_never, mask_of=_none))


def assigned(call: Call) -> Any:
    """Assign x[...] = y in a copy of x, which is the result."""
    target, position, value = call.args
    target = target.clone()
    if isinstance(value, Tensor) and not call.is_activation(value):
        value = 0
    target[position] = value
    return target


def _worth_another(expression: Expression | None) -> Expression | None:
    return None if expression is None else Scaled(expression)


def _is_mask(constant: Any) -> bool:
    """Whether a factor is 0 or 1 everywhere, and stays so."""
    if isinstance(constant, Tensor) and constant.requires_grad:
        return False
    values = torch.as_tensor(constant)
    return bool(((values == 0) | (values == 1)).all())


def _never(value: Any) -> bool:
    return False


def _none(constant: Any) -> None:
    return None


def _is(constant: Any, number: int) -> bool:
    if isinstance(constant, Tensor):
        return bool((constant == number).all())
    return isinstance(constant, bool | int | float) and constant == number
