"""An extension of griffe for the site: examples in docstrings (`>>> …`) are set as code, wherever they stand."""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """The text with each run of lines that begins with `>>>`, up to the next empty line, as a block of code."""
    lines: list[str] = []
    margin: str | None = None
    for line in [*text.splitlines(), ""]:
        if margin is None and line.lstrip().startswith(">>>"):
            margin = line[: len(line) - len(line.lstrip())]
            lines.append(f"{margin}```pycon")
        elif margin is not None and not line.strip():
            lines.append(f"{margin}```")
            margin = None
        lines.append(line)
    return "\n".join(lines[:-1] if lines and not lines[-1] else lines)


class DoctestFences(griffe.Extension):
    """Fences the examples of every docstring that is collected."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
