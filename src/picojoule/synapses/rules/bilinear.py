"""Bilinear operations: products of two tensors, as a function of the two alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from picojoule.errors import Clause, PicojouleError
from picojoule.synapses.rules.synaptic import SYNAPTIC, UNCOUNTED

Summed = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
"""How each operand is summed over the axes that only it has."""


@dataclass(frozen=True)
class Bilinear:
    """A product of two tensors."""

    left: Tensor
    right: Tensor
    run: Callable[[Tensor, Tensor], Tensor]
    summed: Summed | None = None
    """Where the product of the sums adds up to the sum of the product."""
    adds_up: bool = True
    """Whether it adds products up; if not, it is one of elements, a gate."""


def bilinear(name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bilinear:
    """Take a product apart.

    Args:
        name: The operation's name, one of `BILINEAR`.
        func: The operation.
        args: Its arguments.
        kwargs: Its named arguments.

    Returns:
        Its operands, and the product as a function of them.

    Raises:
        PicojouleError: It is not a product of two tensors; a clause.
    """
    if name == "einsum":
        return _einsum(args)
    given = dict(kwargs)
    operands = [value for value in args if isinstance(value, Tensor)]
    rest = list(args)
    named = [key for key in ("input", "self", "weight", "other", "mat2", "vec2", "tensor") if key in given]
    operands += [given[key] for key in named]
    if len(operands) < 2:
        raise Clause("is not a product of two tensors")
    left, right = operands[:2]
    if name == "linear":  # the bias is no synapse
        return Bilinear(left, right, torch.nn.functional.linear, (_over_rows, lambda w: w.sum(0)))

    if name.startswith("conv"):  # nor is that of a convolution
        rest[2:3] = [None] if len(rest) > 2 else []
        given.pop("bias", None)

    def run(one: Tensor, other: Tensor) -> Tensor:
        values = iter((one, other))
        positional = [next(values) if value is left or value is right else value for value in rest]
        by_name = given | {key: next(values) for key in named}  # in whatever order they were given
        out: Tensor = func(*positional, **by_name)
        return out

    if left is right:

        def run(one: Tensor, other: Tensor) -> Tensor:
            out: Tensor = func(one, other, *rest[2:], **{k: v for k, v in given.items() if k not in named})
            return out

    matrices = name in ("matmul", "mm", "bmm") and left.dim() > 1 and right.dim() > 1
    return Bilinear(left, right, run, (lambda x: x.sum(-2), lambda x: x.sum(-1)) if matrices else None)


def _over_rows(x: Tensor) -> Tensor:
    return x.flatten(0, -2).sum(0) if x.dim() > 1 else x


def _einsum(args: tuple[Any, ...]) -> Bilinear:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        raise PicojouleError(
            "is not written with an equation in letters and two tensors: write it as such products, one after the other"
        )
    left, right = operands
    inputs, arrow, made = equation.replace(" ", "").partition("->")
    one, _, other = inputs.partition(",")
    run = partial(torch.einsum, equation)
    letters = inputs.replace(",", "").replace(".", "")
    kept = made if arrow else "".join(letter for letter in letters if letters.count(letter) == 1)
    adds_up = not set(letters) <= set(kept)
    if "." in inputs or not arrow or len(set(one)) < len(one) or len(set(other)) < len(other):
        return Bilinear(left, right, run, adds_up=adds_up)
    common = "".join(letter for letter in one if letter in other)
    summed = (partial(torch.einsum, f"{one}->{common}"), partial(torch.einsum, f"{other}->{common}"))
    return Bilinear(left, right, run, summed, adds_up)


BILINEAR = frozenset("bmm conv1d conv2d conv3d dot einsum inner linear matmul mm mv outer tensordot vdot".split())
"""Products that can be taken apart into two operands."""

ATTENTION = "scaled_dot_product_attention"
MULTIPLYING = frozenset(SYNAPTIC) | UNCOUNTED | BILINEAR | {ATTENTION}
"""All operations that multiply tensors, so that they cost."""
