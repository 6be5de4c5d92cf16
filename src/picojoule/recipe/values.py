"""Types of recipe values beyond the plain ones: numbers, names out of registries, budgets."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from picojoule import zoo
from picojoule.data import DATASETS
from picojoule.energy import hardware
from picojoule.energy.units import parse_joules, tidy_joules
from picojoule.errors import PicojouleError
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
        if name in self.names or (self.or_factory and _is_factory(name)):
            return name
        raise ValueError(name)

    def __str__(self) -> str:
        return choices(self.names) + (", or your own 'package.module:factory'" if self.or_factory else "")


def _is_factory(name: str) -> bool:
    """Return whether a name is of the form ``package.module:factory``."""
    module, colon, factory = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *factory.split(".")))


# Adding 0.0 turns -0.0 into 0.0, so that equal recipes have equal digests.
Number = Annotated[float, AfterValidator(lambda value: value + 0.0)]


@dataclasses.dataclass(frozen=True)
class ShareOrEnergy:
    """A share of the unpenalised energy, stored as a number, or an energy, stored as text in one spelling."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def _checked(self, value: object) -> object:
        if isinstance(value, str):
            return _share_or_joules(value)
        if value is None or (type(value) in (int, float) and 0 < value <= 1):  # type: ignore[operator]  # a number
            return value
        raise ValueError(value)

    def __str__(self) -> str:
        return (
            "a share of the unpenalised energy above 0 and up to 1, such as 0.3 or '30%', or an energy with its unit "
            "(pJ, nJ, µJ or uJ, mJ), such as '2 uJ'"
        )


def _share_or_joules(text: str) -> float | str:
    """Read "30%" as the share 0.3, and an energy with its unit as text in one spelling."""
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
DataName = Annotated[str, OneOf(tuple(DATASETS))]
SurrogateName = Annotated[str, OneOf(tuple(SURROGATES))]
HardwareName = Annotated[str, OneOf(hardware.names())]
RunName = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*$")]
