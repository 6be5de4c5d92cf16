"""Random recipes: keys, types, extreme numbers, letters and nesting that nobody means."""

from __future__ import annotations

import traceback
from random import Random
from typing import Any

import tomli_w

import picojoule as pj
from fuzz import junk
from fuzz.outcome import Outcome
from recipe_keys import DEFAULTS_AND_OTHERS

BASE = 'model.name = "cnn7"\ndata.name = "fashion-mnist"\n'


def altered(text: str, chance: Random) -> str:
    """The text of a recipe with something done to it."""
    lines = text.splitlines()
    way = chance.randrange(8)
    if way == 0:
        return "\ufeff" + text
    if way == 1 and lines:
        return "\n".join(line for i, line in enumerate(lines) if i != chance.randrange(len(lines)))
    if way == 2 and lines:
        return "\n".join([*lines, chance.choice(lines)])
    if way == 3:
        return text.replace("=", chance.choice(["==", ":", "", "= ="]), 1)
    if way == 4:
        return text + f"x = {'[' * 3000}{']' * 3000}\n"
    if way == 5:
        return text + "".join(f"[a{'.a' * 2000}]\n" for _ in range(1))
    return text + _toml(drawn_keys(chance))


def drawn_keys(chance: Random) -> dict[str, Any]:
    """Some keys with any values."""
    content: dict[str, Any] = {}
    for _ in range(chance.choice([1, 1, 2, 4])):
        key = chance.choice(list(DEFAULTS_AND_OTHERS))
        if chance.random() < 0.15:
            key = chance.choice([key[:-1], key + "s", key.upper(), junk.text(chance)])
        default, other = DEFAULTS_AND_OTHERS.get(key, (0, 1))
        given = junk.value(chance) if chance.random() < 0.4 else chance.choice([default, other])
        section, _, name = key.partition(".")
        if name:
            place = content.setdefault(section, {})
            if isinstance(place, dict):
                place[name] = given
        else:
            content[section] = given
    return content


def _toml(content: dict[str, Any]) -> str:
    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): clean(each) for key, each in value.items() if each is not None}
        if isinstance(value, list):
            return [clean(each) for each in value if each is not None]
        return value

    try:
        return "\n" + tomli_w.dumps(clean(content))
    except (TypeError, ValueError):
        return ""


def drawn(seed: int) -> tuple[str, list[str]]:
    """A recipe's text, and overrides."""
    chance = Random(seed)
    text = altered(BASE, chance) if chance.random() < 0.3 else _whole(chance)
    overrides = [
        f"{chance.choice(list(DEFAULTS_AND_OTHERS))}={junk.text(chance)}"
        if chance.random() < 0.8
        else junk.text(chance)
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]
    return text, overrides


def _whole(chance: Random) -> str:
    keys = drawn_keys(chance)
    for section, name in (("model", "cnn7"), ("data", "digits")):
        place = keys.setdefault(section, {})
        if isinstance(place, dict) and chance.random() < 0.95:
            place.setdefault("name", name)
    return _toml(keys)


def tried(seed: int) -> Outcome:
    """Either a recipe that survives being written and read again, or one sentence."""
    text, overrides = drawn(seed)
    outcome = Outcome()
    try:
        recipe = pj.Recipe.loads(text, *overrides)
    except pj.PicojouleError as refusal:
        outcome.notes.append("refused")
        said = str(refusal)
        if not said.strip() or "\n" in said or "pydantic" in said or "Traceback" in said or not said.isprintable():
            outcome.failures.append(("recipe refused in odd words", f"{said[:300]!r}"))
        return outcome
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        outcome.failures.append((f"recipe raised {type(error).__name__}", f"{str(error)[:200]} ({last.name})"))
        return outcome
    outcome.notes.append("a recipe")
    again = pj.Recipe.loads(recipe.to_toml())
    if again != recipe or again.digest != recipe.digest or again.name != recipe.name:
        outcome.failures.append(("recipe changes when written and read", ""))
    return outcome


def described(seed: int) -> str:
    text, overrides = drawn(seed)
    return f"{text[:400]!r} with {overrides}"
