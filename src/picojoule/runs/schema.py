"""JSON schemas of what a run's folder holds: its recipe, its result, and the lines of its metrics."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel

from picojoule.errors import unknown
from picojoule.recipe import Recipe
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.result import RunResult

SchemaName = Literal["recipe", "result", "metrics"]

_MODELS: dict[str, type[BaseModel]] = {"recipe": Recipe, "result": RunResult, "metrics": EpochMetrics}
_TITLES = {
    "recipe": "A recipe of picojoule (TOML)",
    "result": "result.json of a run of picojoule",
    "metrics": "A line of metrics.jsonl of a run of picojoule",
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# What pydantic leaves as it is where a bound stands on a number that a function checks as well.
_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def schema(name: SchemaName) -> dict[str, Any]:
    """Give the JSON schema of a file in a run's folder.

    Args:
        name: "recipe", "result" or "metrics" (one line of it).

    Returns:
        A schema of the 2020-12 dialect. It has types and bounds; what keys must have in common is checked beyond it.

    Raises:
        PicojouleError: If there is no such schema.

    Example:
        >>> schema("metrics")["properties"]["epoch"]["type"]
        'integer'
        >>> schema("recipe")["required"]
        ['model', 'data']
    """
    if name not in _MODELS:
        raise unknown("schema", name, get_args(SchemaName))
    content: dict[str, Any] = _in_plain_keywords(_MODELS[name].model_json_schema())
    return {"$schema": _DIALECT, **content, "title": _TITLES[name]}


def _in_plain_keywords(content: Any) -> Any:
    """Spell bounds as JSON schemas do, and leave out what is not for readers of a schema."""
    if isinstance(content, list):
        return [_in_plain_keywords(item) for item in content]
    if not isinstance(content, dict):
        return content
    plain = {
        _BOUNDS.get(key, key) if isinstance(value, int | float) else key: _in_plain_keywords(value)
        for key, value in content.items()
        if key != "title" or not isinstance(value, str)
    }
    if isinstance(plain.get("description"), str):  # of a class, without its example
        plain["description"] = plain["description"].partition("\n\n")[0]
    return plain
