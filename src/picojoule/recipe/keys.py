"""Every key of a recipe by its dotted name, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from picojoule.recipe.phrases import choices
from picojoule.recipe.sections import Content, Section
from picojoule.recipe.values import OneOf, Rule, ShareOrEnergy

SECTIONS: Mapping[str, type[Section]] = {
    name: field.annotation
    for name, field in Content.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
ALONE: Mapping[str, FieldInfo] = {name: field for name, field in Content.model_fields.items() if name not in SECTIONS}
"""The keys that stand outside of any section."""
KEYS: Mapping[str, FieldInfo] = {
    **ALONE,
    **{f"{section}.{name}": field for section, kind in SECTIONS.items() for name, field in kind.model_fields.items()},
}


def keys_of(section: str) -> list[str]:
    """List the dotted keys of a section.

    Args:
        section: Its name.

    Returns:
        The keys in the order of a recipe; none where there is no such section.

    >>> keys_of("energy")
    ['energy.psi', 'energy.hardware', 'energy.chains']
    """
    return [key for key in KEYS if key.startswith(f"{section}.")]


def allowed(field: FieldInfo) -> str:
    """Say in words what a key takes.

    Args:
        field: The key's declaration.

    Returns:
        A phrase that goes on after "take".

    >>> allowed(KEYS["penalty.kind"]), allowed(KEYS["training.threads"]), allowed(KEYS["optimizer.lr"])
    ("'syn', 'total', 'balance' or 'target'", 'a whole number from 1 to 1024', 'a finite number above 0')
    """
    for rule in field.metadata:
        if isinstance(rule, OneOf | Rule | ShareOrEnergy):
            return str(rule)
    kind = _kind(field)
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a whole number from {_bound(field, 'ge')} to {_bound(field, 'le')}"
    if kind is float:
        return f"a finite number{_range(field)}"
    if kind is str:
        return "the name of a finished run's folder, which is beside this run's"
    return choices(names(field))


def _kind(field: FieldInfo) -> Any:
    """Return the type of a key, without the None of one that may be left out."""
    kinds = get_args(field.annotation)
    kind = next(each for each in kinds if each is not NoneType) if NoneType in kinds else field.annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _range(field: FieldInfo) -> str:
    """Say in words which numbers a key takes."""
    above, least, most = (_bound(field, name) for name in ("gt", "ge", "le"))
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if most is not None:
        return f" of {most} or less"
    return f" above {above}" if above is not None else f" of {least} or more" if least is not None else ""


def _bound(field: FieldInfo, name: str) -> object:
    """Find one bound of a key ("gt", "ge" or "le"); None where it has none."""
    return next((getattr(rule, name) for rule in field.metadata if hasattr(rule, name)), None)


def names(field: FieldInfo) -> tuple[str, ...]:
    """List the names that a key takes.

    Args:
        field: The key's declaration.

    Returns:
        The names; none where the key takes something else.
    """
    if get_origin(_kind(field)) is Literal:
        return get_args(_kind(field))
    return next((rule.names for rule in field.metadata if isinstance(rule, OneOf)), ())


def takes_text(field: FieldInfo) -> bool:
    """Return whether a key takes text, and a bare word on the command line is meant as such.

    Args:
        field: The key's declaration.
    """
    return bool(names(field)) or _kind(field) is str
