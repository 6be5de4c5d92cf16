"""What a training loop of one's own gives to `Budget`, `Guard` and `suggest_strength`, checked at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.recipe.values import share_or_joules


def checked_budget(budget: object) -> float | str:
    """Read a budget.

    Args:
        budget: A share of the unpenalised energy, or joules.

    Returns:
        The share, or the energy with its unit.

    Raises:
        PicojouleError: It is neither.

    >>> checked_budget("30%"), checked_budget("2 uJ")
    (0.3, '2 µJ')
    """
    wanted: float | str = 0.0
    if isinstance(budget, str):
        try:
            wanted = share_or_joules(budget)
        except ValueError:
            wanted = 0.0
    elif budget is not True and isinstance(budget, Real):
        wanted = float(budget)
    if isinstance(wanted, float) and not 0 < wanted <= 1:
        raise PicojouleError(f"budget={budget!r} is not a budget: give a share such as 0.3 or '30%', or '2 uJ'")
    return wanted


def check_number(name: str, value: object, meaning: str, below: float = math.inf) -> None:
    """Refuse what is not a number between 0 and a bound.

    Args:
        name: The argument.
        value: What was given.
        meaning: What it should be.
        below: The bound, which is not allowed itself.

    Raises:
        PicojouleError: It is not such a number.
    """
    if type(value) is bool or not isinstance(value, Real) or not 0 < float(value) < below:
        upper = "" if below == math.inf else f" and below {below:g}"
        raise PicojouleError(f"{name}={value!r} is not {meaning}: give a number above 0{upper}")


def check_steps(steps: object) -> None:
    """Refuse what is not a number of time steps.

    Args:
        steps: What was given.

    Raises:
        PicojouleError: It is not a whole number from 1 up.
    """
    if type(steps) is not int or steps < 1:
        raise PicojouleError(f"steps={steps!r} is not a number of time steps: give a whole number from 1 up")


def check_inputs(name: str, inputs: object) -> None:
    """Refuse what no network can be measured on.

    Args:
        name: What the user calls them.
        inputs: What was given.

    Raises:
        PicojouleError: They are not a tensor of finite numbers with a batch axis, or there are none.
    """
    if not isinstance(inputs, Tensor):
        raise PicojouleError(
            f"{name} is a {type(inputs).__name__}, not a tensor: give the inputs alone, as the network takes them"
        )
    if not inputs.dim() or not inputs.numel():
        raise PicojouleError(f"{name} of shape {list(inputs.shape)} holds no input: give a batch of them")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise PicojouleError(f"{name} has values that are NaN or infinite: give inputs of finite numbers")


def check_one_number(name: str, value: object, remedy: str) -> None:
    """Refuse what is not a tensor of one number.

    Args:
        name: What the user calls it.
        value: What was given.
        remedy: What to do.

    Raises:
        PicojouleError: It is not.
    """
    if not isinstance(value, Tensor):
        raise PicojouleError(f"{name} is {value!r}, not a tensor of one number: {remedy}")
    if value.numel() != 1:
        raise PicojouleError(f"{name} has the shape {list(value.shape)}, not one number: {remedy}")


def checked_batch(batch: object) -> tuple[Tensor, Any]:
    """Take apart a batch.

    Args:
        batch: Inputs and labels.

    Returns:
        Both.

    Raises:
        PicojouleError: It is not a pair, or its inputs cannot be measured on.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise PicojouleError(f"batch is a {type(batch).__name__} and not a pair: give (inputs, labels)")
    inputs, labels = batch
    check_inputs("the input of the batch", inputs)
    return inputs, labels


def check_state(kind: str, state: object, own: Mapping[str, Any], optional: frozenset[str] = frozenset()) -> None:
    """Refuse what is not a stored state of this kind.

    Args:
        kind: "budget" or "guard".
        state: What was given.
        own: A state of the object that is to take it.
        optional: Keys that states of earlier versions lack.

    Raises:
        PicojouleError: It is none.
    """
    if not isinstance(state, Mapping) or not own.keys() - optional <= state.keys() <= own.keys():
        raise PicojouleError(f"this is not the state of a {kind}: give what state_dict() of a {kind} gave")
