"""Types of recipe values beyond the plain ones: numbers, names out of registries, budgets."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from picojoule import zoo
from picojoule.data import DATASETS, is_own
from picojoule.energy import hardware
from picojoule.energy.units import parse_joules, tidy_joules
from picojoule.errors import PicojouleError
from picojoule.io.factories import is_factory
from picojoule.neurons.surrogate import SURROGATES
from picojoule.recipe.phrases import choices

_FACTORY = "^[^:]+:[^:]+$"
"""Roughly what `package.module:factory` looks like, for the JSON schema."""


@dataclasses.dataclass(frozen=True)
class OneOf:
    """A name out of a registry or, with ``or_factory``, code of the user's own as ``package.module:factory``.

    Attributes:
        names: The names of the registry.
        or_factory: Whether ``package.module:factory`` is taken too.
    """

    names: tuple[str, ...]
    or_factory: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        own = [{"type": "string", "pattern": _FACTORY}] if self.or_factory else []
        return {"anyOf": [{"enum": list(self.names)}, *own]} if own else {"enum": list(self.names)}

    def _checked(self, name: str) -> str:
        if name in self.names or (self.or_factory and is_factory(name)):
            return name
        raise ValueError(name)

    def __str__(self) -> str:
        return choices(self.names) + (", or your own 'package.module:factory'" if self.or_factory else "")


@dataclasses.dataclass(frozen=True)
class OneOfOrOwnData(OneOf):
    """A data set out of the registry, or the user's own: a factory, a folder, a file, or given in Python."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": list(self.names)}, {"type": "string", "pattern": r"^[^:]+:.+$|\.npz$|^own$"}]}

    def _checked(self, name: str) -> str:
        if name in self.names or is_own(name):
            return name
        raise ValueError(name)

    def __str__(self) -> str:
        own = "'folder:PATH', 'FILE.npz', 'package.module:factory' or, with data given in Python, 'own'"
        return f"{choices(self.names)}, or your own {own}"


# Adding 0.0 turns -0.0 into 0.0, so that equal recipes have equal digests.
Number = Annotated[float, AfterValidator(lambda value: value + 0.0)]


@dataclasses.dataclass(frozen=True)
class ShareOrEnergy:
    """A share of the unpenalised energy, stored as a number, or an energy, stored as text in one spelling."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def _checked(self, value: object) -> object:
        if isinstance(value, str):
            return share_or_joules(value)
        if value is None or (type(value) in (int, float) and 0 < value <= 1):  # type: ignore[operator]  # a number
            return value
        raise ValueError(value)

    def __str__(self) -> str:
        return (
            "a share of the unpenalised energy above 0 and up to 1, such as 0.3 or '30%', or an energy with its unit "
            "(pJ, nJ, µJ or uJ, mJ), such as '2 uJ'"
        )


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule of its own for the values of a key, with the words for what it takes.

    Attributes:
        words: What the key takes, as a phrase that goes on after "take".
        convert: Gives the value as it is stored, or raises a ValueError.
    """

    words: str
    convert: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._converted, handler(source))

    def _converted(self, value: Any) -> Any:
        return None if value is None else self.convert(value)

    def __str__(self) -> str:
        return self.words


class Arguments(dict[str, Any]):
    """Arguments of a factory by name, hashed by value as the recipe that holds them is."""

    def __hash__(self) -> int:  # type: ignore[override]  # nobody changes them
        return hash(json.dumps(self, sort_keys=True))


_PLAIN = (str, bool, int, float)


def _arguments(value: Any) -> Arguments | None:
    """Check the arguments of a factory; none at all is as if they were left out."""
    if not isinstance(value, Mapping) or wrong_argument(value) is not None:
        raise ValueError(value)
    plain = {name: list(given) if isinstance(given, tuple) else given for name, given in value.items()}
    return Arguments(plain) if plain else None


def wrong_argument(arguments: Mapping[Any, Any]) -> tuple[Any, Any] | None:
    """Find the first argument of a factory that a recipe cannot hold.

    Args:
        arguments: Values by name.

    Returns:
        Its name and value; None where there is none.

    >>> wrong_argument({"width": 3, "depth": math.nan})
    ('depth', nan)
    """
    for name, given in arguments.items():
        each = given if isinstance(given, list | tuple) else [given]
        plain = isinstance(name, str) and name.isidentifier() and all(isinstance(item, _PLAIN) for item in each)
        if not plain or not all(math.isfinite(item) for item in each if isinstance(item, float)):
            return name, given
    return None


def _shape(value: Any) -> tuple[int, ...]:
    """Check the shape of a sample."""
    numbers = tuple(value) if isinstance(value, list | tuple) else ()
    if len(numbers) not in (1, 3, 4) or not all(type(side) is int and 0 < side <= 10**6 for side in numbers):
        raise ValueError(value)
    return numbers


def _content(value: Any) -> str:
    """Check the digest of a data set's content."""
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{16}", value):
        raise ValueError(value)
    return value


def share_or_joules(text: str) -> float | str:
    """Read "30%" as the share 0.3, and an energy with its unit as text in one spelling.

    Args:
        text: What the user wrote.

    Returns:
        The share, or the energy.

    Raises:
        ValueError: If it is neither.

    >>> share_or_joules("30%"), share_or_joules("2000 nJ")
    (0.3, '2 µJ')
    """
    if text.strip().endswith("%"):
        try:
            share = float(Decimal(text.strip()[:-1].strip()) / 100)
        except ArithmeticError:
            raise ValueError(text) from None
        if not 0 < share <= 1:
            raise ValueError(text)
        return share
    try:
        if parse_joules(text) > 0:
            return tidy_joules(text)
    except PicojouleError as fault:
        raise ValueError(fault) from None
    raise ValueError(text)


ModelName = Annotated[str, OneOf(zoo.names(), or_factory=True)]
DataName = Annotated[str, OneOfOrOwnData(tuple(DATASETS))]
FactoryArguments = Annotated[
    dict[str, Any] | None,
    Rule("a table of plain values (text, numbers, true or false, lists of them) by the names of arguments", _arguments),
]
SampleShape = Annotated[
    tuple[int, ...] | None, Rule("a list of one, three or four whole numbers, such as [3, 32, 32]", _shape)
]
ContentDigest = Annotated[str | None, Rule("sixteen hexadecimal digits, or leave it out", _content)]
SurrogateName = Annotated[str, OneOf(tuple(SURROGATES))]
HardwareName = Annotated[str, OneOf(hardware.names())]
RunName = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*$")]
