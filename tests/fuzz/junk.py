"""Values that nobody means: for options, recipes and files."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

TEXTS = (
    "", " ", "0", "-1", "1e308", "-1e308", "nan", "inf", "1e999", "9" * 400, "0x10", "1_000", "٣", "½", "true", "null",
    "ψ", "\N{ZERO WIDTH SPACE}", "\ufeff", "🦔", "a" * 5000, "..", ".", "~", "~nobody-here/x", "=", "a=b", "seed",
    "seed=", "=1", "model.name", "a.b.c.d=1", "--", "-", "--json", "[x]", "[bold]x[/bold]", "{", "}", "%s", "%",
    "\x1b[31mred", "new\nline", "tab\t", "nul\x00", "\\", "'", '"', "os:abort", "os:getcwd", "torch.nn:Identity",
    "tiny:exits", "no.such:thing", ":", "a:", ":a", "json:dumps", "tiny:net", "cnn7", "vgg11", "CNN7", "digits",
    "1,2,3", "1,32,32", "99999999,9,9", "-1,2", "30%", "2uJ", "-5%", "300%", "1e-400J", "5 parsecs",
)  # fmt: skip
"""No absolute path is among them: a command that writes where it is told must stay in the sandbox."""
NUMBERS = (
    0, -1, 1, 2, 7, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"),
    float("inf"), float("-inf"),
)  # fmt: skip


def text(chance: Random) -> str:
    if chance.random() < 0.8:
        return chance.choice(TEXTS)
    letters = [
        chr(chance.choice([chance.randrange(32, 127), chance.randrange(128, 0x3000), chance.randrange(32)]))
        for _ in range(chance.randrange(12))
    ]
    return "".join(letters)


def value(chance: Random, depth: int = 0) -> Any:
    """Something that TOML and JSON can hold, or nearly."""
    pick = chance.random()
    if pick < 0.35:
        return chance.choice(NUMBERS)
    if pick < 0.65:
        return text(chance)
    if pick < 0.75:
        return chance.choice([True, False])
    if pick < 0.8 or depth > 2:
        return None
    if pick < 0.9:
        return [value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {
        chance.choice(("name", "kind", "layers", "x")): value(chance, depth + 1) for _ in range(chance.randrange(3))
    }


def deep(levels: int = 100_000) -> str:
    return "[" * levels + "]" * levels


def mutated(content: Any, chance: Random) -> Any:
    """A JSON value with something in it exchanged, left out or added."""
    content = copy.deepcopy(content)
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        pairs = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        for key, each in list(pairs):
            places.append((inner, key))
            walk(each)

    walk(content)
    if not places or chance.random() < 0.05:
        return value(chance)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        inner, key = chance.choice(places)
        what = chance.random()
        if what < 0.15 and isinstance(inner, dict):
            inner.pop(key, None)
        elif what < 0.25 and isinstance(inner, dict):
            inner[text(chance)] = value(chance)
        elif what < 0.3 and isinstance(inner, list):
            inner.append(value(chance))
        else:
            inner[key] = value(chance)
    return content


def json_text(content: Any) -> str:
    try:
        return json.dumps(content, indent=2)
    except (ValueError, TypeError):
        return "{}"


def bytes_of(content: bytes, chance: Random) -> bytes:
    """A file's content, damaged."""
    way = chance.randrange(8)
    at = chance.randrange(max(1, len(content)))
    if way == 0:
        return b""
    if way == 1:
        return content[:at]
    if way == 2:
        return content + bytes(chance.randrange(256) for _ in range(chance.choice([1, 100])))
    if way == 3:
        return b"\xef\xbb\xbf" + content
    if way == 4:
        return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    if way == 5:
        return content[at:] + content[:at]
    if way == 6:
        return content[: at // 2] + bytes(chance.randrange(256) for _ in range(8)) + content[at // 2 + 8 :]
    return content.decode("utf-8", "replace").encode(chance.choice(["utf-16", "utf-32", "utf-8-sig"]), "replace")
