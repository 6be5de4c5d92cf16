"""Random command lines, over all commands and options that there are."""

from __future__ import annotations

import functools
from random import Random
from typing import Any

from fuzz import junk, promises, sandbox
from fuzz.outcome import Outcome
from recipe_keys import DEFAULTS_AND_OTHERS

MINUTES = ("demo", "paper list", "paper run", "sweep")
"""Commands that train, or start processes, for longer than a case may take: only what they refuse is tried."""

VALID = {
    "model": ("cnn7", "tiny:net"),
    "psi": ("exact", "uniform", "paper"),
    "input_shape": ("1,32,32", "3,32,32"),
    "recipe": ("recipe.toml",),
    "file": ("sweep.toml",),
    "run": ("run",),
    "split": ("test", "validation"),
    "convert_steps": ("2",),
    "images": ("picture.png", "picture.jpg"),
    "limit": ("1", "5"),
    "engine": ("events", "dense"),
    "folder": ("many", "run", "."),
    "to": ("nir", "onnx"),
    "max_loss": ("1.0", "50"),
    "max_energy": ("2uJ", "30%"),
    "min_accuracy": ("88", "10"),
    "into": ("new", "many", "deep/er/new"),
    "out": ("made", "run/made"),
    "budget": ("30%", "2uJ"),
    "accelerator": ("cpu", "auto"),
    "devices": ("1",),
    "points": ("2",),
    "first": ("2",),
    "ratio": ("2",),
    "stretch": ("1",),
    "schedule": ("restarts", "steps", "ramp"),
    "name": ("digits", "fashion-mnist", "cifar-10"),
    "names": ("totals",),
    "scale": ("smoke",),
    "seeds": ("1",),
    "workers": ("1",),
    "on": ("local",),
    "address": ("auto",),
}
PATHS = (
    "nowhere",
    "elsewhere",
    "elsewhere/note.txt",
    "recipe.toml",
    "run/result.json",
    "run/weights.safetensors",
    "run",
    "many",
    ".",
    "pipe",
    "null",
    "link",
)


@functools.cache
def registry() -> dict[str, Any]:
    """Every command by its whole name, as Typer knows them."""
    import typer.main

    from picojoule.cli import app

    found: dict[str, Any] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        found[" ".join(path)] = command
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


def drawn(seed: int) -> list[str]:
    """A command line; now and then one that is right."""
    chance = Random(seed)
    name = chance.choice(list(registry()))
    command = registry()[name]
    wrong = 1.0 if name in MINUTES else chance.choice([0.0, 0.15, 0.15, 0.5])
    line = name.split()
    if name and chance.random() < 0.03:
        line[-1] = chance.choice([line[-1][:-1], line[-1].upper(), junk.text(chance)])
    for parameter in command.params:
        line += _given(parameter, chance, wrong)
    if chance.random() < 0.04:
        line += ["--help"]
    if name in MINUTES:
        line += ["--no-such-option"] if chance.random() < 0.5 else ["--help"]
    elif chance.random() < 0.03:
        line.insert(chance.randrange(len(line) + 1), junk.text(chance))
    return line


def _given(parameter: Any, chance: Random, wrong: float) -> list[str]:
    option = parameter.param_type_name == "option"
    if option and chance.random() < 0.6 and not parameter.required:
        return []
    if getattr(parameter, "is_flag", False):
        return [parameter.opts[0]] if parameter.name != "version" else []
    if not option and chance.random() < 0.3 * wrong:
        return []
    if parameter.name == "overrides":
        return [override(chance, wrong) for _ in range(chance.choice([0, 0, 1, 2]))]
    many = chance.choice([1, 2]) if parameter.nargs == -1 else 1
    values = [_value(parameter.name, chance, wrong) for _ in range(many)]
    return [parameter.opts[0], *values] if option else values


def _value(name: str, chance: Random, wrong: float) -> str:
    if chance.random() >= wrong:
        return chance.choice(VALID.get(name, ("x",)))
    return chance.choice(PATHS) if chance.random() < 0.4 else junk.text(chance)


SHORT = (
    "training.epochs",
    "model.name",
    "data.name",
    "neuron.steps",
    "data.pad",
    "data.limit",
    "training.threads",
    "training.batch_size",
)
"""Overrides by which a run may take long: these get only values that are refused or small."""


def override(chance: Random, wrong: float) -> str:
    key = chance.choice(list(DEFAULTS_AND_OTHERS))
    if chance.random() < 0.1:
        key = chance.choice([key[:-1], key.upper(), key.replace(".", ""), junk.text(chance)])
    if chance.random() >= wrong:
        if key in SHORT:
            return "seed=1"
        return f"{key}={DEFAULTS_AND_OTHERS.get(key, ('', 1))[1]}"
    return f"{key}={junk.text(chance)}"


def tried(seed: int) -> Outcome:
    arguments = drawn(seed)
    with sandbox.copied() as here:
        before = sandbox.contents(here)
        ended = sandbox.run(arguments)
        after = sandbox.contents(here)
    outside = [a for a in arguments if a.startswith(("/", "..", "~"))]
    trains = bool(arguments) and any(word in promises.TRAINS for word in arguments[:2])
    outcome = promises.check(ended, before, after, may_take_long=trains)
    outcome.notes += ["names a place outside"] if outside else []
    return outcome


def described(seed: int) -> str:
    return "picojoule " + " ".join(map(repr, drawn(seed)))
