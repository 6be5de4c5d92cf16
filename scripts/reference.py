"""The pages of docs/reference that follow from the code: recipe keys, commands, prices, result files, Python names.

python scripts/reference.py            writes them
python scripts/reference.py --check    says which are out of date, and ends with status 1 if any is
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
import typer.main
from pydantic.fields import FieldInfo

import picojoule as pj
from picojoule.cli import app
from picojoule.energy.hardware import PRICE_LISTS, MemoryPriceList, PriceList
from picojoule.recipe.sections import Content, Section
from picojoule.runs.schema import SchemaName, schema

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"

GROUPS: dict[str, tuple[str, ...]] = {
    "Measure": ("trace", "Synapses", "Layer", "watch", "Activity", "TimeLayout", "EnergyMeter", "EnergyReport"),
    "Penalise": ("Penalty", "TargetPenalty", "Budget", "Guard", "suggest_strength", "schedule"),
    "Neurons": ("Spike", "IF", "LIF", "QuantizedReLU", "InputSpikes", "surrogate", "declare_spiking"),
    "Prices": ("hardware",),
    "Rules": ("rules", "declare_rule"),
    "Train": ("Recipe", "fit", "Run", "Reporter", "data", "zoo", "sparse", "dense"),
    "Evaluate": ("evaluate", "Evaluation", "infer", "load_model"),
    "Search": ("sweep", "frontier", "Plan", "pick", "Limits", "tradeoff"),
    "Look": ("plot", "report"),
    "In Lightning": ("EnergyCallback", "EnergyMetric"),
    "Deploy": ("convert", "events", "export"),
    "Other": ("PicojouleError", "peers"),
}
"""The public names by what they are for; a name of `picojoule.__all__` that stands nowhere is an error."""


UNITS: dict[str, str] = {
    **dict.fromkeys(("data.limit", "data.limit_validation", "data.limit_test", "training.batch_size"), "images"),
    **dict.fromkeys(("data.pad", "data.size"), "pixels"),
    "data.frames": "frames",
    "data.threshold": "the readings' own",
    "data.classes": "classes",
    "data.randaugment_n": "changes per image",
    "data.randaugment_m": "thirtieths",
    "neuron.steps": "time steps",
    "neuron.max_spikes": "spikes per step",
    **dict.fromkeys(("neuron.threshold", "neuron.floor"), "potential"),
    **dict.fromkeys(("neuron.alpha", "neuron.tau"), "by the surrogate"),
    "neuron.leak": "share per step",
    "penalty.target": "synaptic operations per image, or a share",
    "penalty.budget": "joules per image, or a share",
    "training.epochs": "epochs",
    "training.threads": "threads",
    **dict.fromkeys(("seed", "optimizer.lr", "optimizer.weight_decay", "penalty.p"), "–"),
    **dict.fromkeys(("penalty.strength", "penalty.rise_from"), "of the loss"),
}
"""What the numbers of a recipe are counted in; a key with a number that stands nowhere is an error."""


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def made(title: str, body: str) -> str:
    return f"# {title}\n\n<!-- Made by scripts/reference.py: change the code, then run it. -->\n\n{body.strip()}\n"


# Recipe keys


def recipe_keys() -> str:
    parts = [
        "A recipe is a TOML file with these sections. On the command line a key is changed by `section.key=value`; "
        'in Python by `recipe.with_values(section={"key": value})`. How a sweep varies them: '
        "[sweeps](../how-to/sweeps.md). "
        "As JSON schema: [recipe.json](../schemas/recipe.json).",
    ]
    loose = {name: field for name, field in Content.model_fields.items() if not _section(field)}
    parts.append("## At the top\n\n" + _keys("", loose))
    for name, field in Content.model_fields.items():
        if section := _section(field):
            about = inspect.getdoc(section) or ""
            parts.append(
                f"## `[{name}]`\n\n{about.split(': ', 1)[-1].capitalize()}\n\n" + _keys(name, section.model_fields)
            )
    return made("Recipe keys", "\n\n".join(parts))


def _section(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _keys(section: str, fields: dict[str, FieldInfo]) -> str:
    properties = Content.model_json_schema()["properties"]
    definitions = Content.model_json_schema()["$defs"]
    if section:
        properties = definitions[f"{section.capitalize()}Section"]["properties"]
    rows = []
    for key, field in fields.items():
        if not field.description:
            raise SystemExit(f"{section}.{key} has no description: write one under it in picojoule/recipe/sections.py")
        default = (
            "required" if field.is_required() else "by the data set" if field.default_factory else _value(field.default)
        )
        name = f"{section}.{key}".lstrip(".")
        if "number" in _type(properties[key]) and name not in UNITS:
            raise SystemExit(f"{name} is a number without a unit: add it to UNITS in {__file__}")
        rows.append((f"`{key}`", _type(properties[key]), default, UNITS.get(name, ""), field.description))
    return table(("key", "type", "default", "unit", "meaning"), rows)


def _value(value: object) -> str:
    return "–" if value is None else f"`{json.dumps(value)}`"


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(_value(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "allOf" in schema:
        return _type(schema["allOf"][0])
    kind = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text",
            "array": "list", "object": "table"}.get(schema.get("type", ""), schema.get("type", "text"))  # fmt: skip
    low, high = schema.get("minimum"), schema.get("maximum")
    more = schema.get("exclusiveMinimum")
    if "pattern" in schema:
        kind += f" of the form `{schema['pattern']}`"
    if more is not None:
        kind += f" above {more:g}"
    if low is not None and high is not None:
        return f"{kind}, {low:,} … {high:,}".replace(",", " ").replace(" …", " …").replace("  ", ", ", 1)
    return (
        kind + (f", at least {low:g}" if low is not None else "") + (f", at most {high:g}" if high is not None else "")
    )


# Commands


def command_line() -> str:
    parts = [
        "Exit status 0, or 2 for a mistake that the message says how to put right, or 1 for a failure. `--json` prints "
        "one JSON document on standard output and nothing else; progress goes to standard error. Every command that "
        "trains resumes what was interrupted when it is given again."
    ]
    root = typer.main.get_command(app)
    for path, command in _commands(root, ()):
        parts.append(_command(path, command))
    return made("Commands", "\n\n".join(parts))


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    inner: dict[str, click.Command] = getattr(command, "commands", {})
    if path and (not inner or getattr(command, "invoke_without_command", False)):
        yield path, command
    for name, sub in inner.items():
        yield from _commands(sub, (*path, name))


def _command(path: tuple[str, ...], command: click.Command) -> str:
    arguments = [p for p in command.params if isinstance(p, click.Argument) or p.param_type_name == "argument"]
    options = [
        p
        for p in command.params
        if p.param_type_name == "option" and not getattr(p, "hidden", False) and p.name != "help"
    ]
    usage = " ".join(["picojoule", *path, *(_shown(a) for a in arguments), *(["[OPTIONS]"] if options else [])])
    rows = [(f"`{_shown(a)}`", getattr(a, "help", "") or "", "") for a in arguments]
    rows += [
        (", ".join(f"`{o}`" for o in [*p.opts, *p.secondary_opts]), getattr(p, "help", "") or "", _default(p))
        for p in options
    ]
    text = inspect.cleandoc(command.help or "")
    about, examples = _split_examples(text)
    parts = [f"## `picojoule {' '.join(path)}`", about]
    parts.append("```sh\n" + "\n".join([usage, *examples]) + "\n```")
    if rows:
        parts.append(table(("argument or option", "what it is", "default"), rows))
    return "\n\n".join(part for part in parts if part)


def _shown(argument: click.Parameter) -> str:
    """How an argument is called in a usage line."""
    name = str(argument.metavar or argument.name).upper()
    name = name if argument.required else f"[{name}]"
    return name if argument.nargs == 1 else f"{name}…"


def _split_examples(text: str) -> tuple[str, list[str]]:
    paragraphs = [" ".join(p.split()) for p in text.replace("\f", "").split("\n\n")]
    examples = [p.removeprefix("Example: ").strip("`") for p in paragraphs if p.startswith("Example: ")]
    return "\n\n".join(p for p in paragraphs if not p.startswith("Example: ")), examples


def _default(option: click.Parameter) -> str:
    value = option.default
    if value is None or value is False or callable(value) or value in ((), []):
        return ""
    return f"`{value}`"


# Price lists


def price_lists() -> str:
    parts = [
        "Joules per operation, each with its source. A dash is a price that the source does not give: not priced, "
        "which is not free. What each is charged for: [metrics](../explanation/metrics.md). A list of your own: "
        '`pj.hardware.PriceList(name="my-chip", accumulate=2e-12, source="measured on our board")`.',
        table(
            ("name", "accumulate (a spike at a synapse)", "multiply-accumulate", "neuron update", "spike"),
            [(f"`{p.name}`", *map(_picojoules, _prices(p))) for p in PRICE_LISTS.values()],
        ),
    ]
    for prices in PRICE_LISTS.values():
        extra = ""
        if isinstance(prices, MemoryPriceList):
            sizes = ", ".join(f"{size >> 10} kB {_picojoules(price)}" for size, price in prices.memory)
            extra = (
                f" A product {_picojoules(prices.multiply)}; an access to a memory of {sizes}, between them by a line."
            )
        parts.append(f"**`{prices.name}`**: {prices.source}.{extra}")
    return made("Price lists", "\n\n".join(parts))


def _prices(prices: PriceList) -> tuple[float | None, ...]:
    return prices.accumulate, prices.multiply_accumulate, prices.neuron_update, prices.spike


def _picojoules(joules: float | None) -> str:
    return "–" if joules is None else f"{joules * 1e12:g} pJ"


# Result files

RESULT_FILES: dict[SchemaName, str] = {"result": "result.json", "metrics": "metrics.jsonl"}


def result_files() -> str:
    parts = [
        "A finished run's folder holds `recipe.toml`, `result.json`, `metrics.jsonl` (a line for each epoch) and "
        "`weights.safetensors`. All figures are per sample; accuracies, rates and shares are fractions."
    ]
    for name, file in RESULT_FILES.items():
        content = schema(name)
        parts.append(
            f"## `{file}`\n\nAs JSON schema: [{name}.json](../schemas/{name}.json), or `picojoule schema {name}`."
        )
        for title, part in [("", content), *content.get("$defs", {}).items()]:
            rows = [
                (f"`{k}`", _type(_resolved(v)), v.get("description", "")) for k, v in part.get("properties", {}).items()
            ]
            if rows:
                parts.append((f"### {title}\n\n" if title else "") + table(("field", "type", "meaning"), rows))
    return made("Result files", "\n\n".join(parts))


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"type": schema["$ref"].rsplit("/", 1)[-1]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_resolved(part) for part in schema["anyOf"]]}
    return schema


# Python


def python_names() -> dict[str, str]:
    listed = [name for names in GROUPS.values() for name in names]
    if missing := sorted(set(pj.__all__) - set(listed)):
        raise SystemExit(
            f"public names that no page of the reference has: {', '.join(missing)}: add them to GROUPS in {__file__}"
        )
    pages = {}
    for title, names in GROUPS.items():
        blocks = [block for name in names if name in pj.__all__ for block in _blocks(name)]
        pages[f"python/{title.lower().split()[-1]}.md"] = made(title, "\n\n".join(blocks))
    return pages


def _blocks(name: str) -> list[str]:
    value = getattr(pj, name)
    if not isinstance(value, types.ModuleType):
        _check_documented(f"picojoule.{name}", value)
        return [f"::: picojoule.{name}"]
    about = (inspect.getdoc(value) or "").splitlines()[0]
    members = [f"::: {value.__name__}.{public}" for public in _public(value)]
    return [f"## picojoule.{name}\n\n{about}", *members]


def _public(module: types.ModuleType) -> list[str]:
    """The names that a public module offers; a class or function without a docstring is an error."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = vars(module).items()
        names = [n for n, v in own if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__]
    for name in names:
        _check_documented(f"{module.__name__}.{name}", getattr(module, name))
    return [name for name in names if not isinstance(getattr(module, name), types.ModuleType)]


def _check_documented(name: str, value: object) -> None:
    """End with a message if a class, one of its public methods and properties, or a function has no docstring."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return
    if not inspect.getdoc(value):
        raise SystemExit(f"{name} is public and has no docstring: write one")
    fields = getattr(value, "__annotations__", {})
    for part, member in vars(value).items() if inspect.isclass(value) else ():
        method = isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)
        if method and part not in fields and not part.startswith("_") and not inspect.getdoc(getattr(value, part)):
            raise SystemExit(f"{name}.{part} is public and has no docstring: write one")


PAGES: dict[str, Callable[[], str]] = {
    "recipe-keys.md": recipe_keys,
    "commands.md": command_line,
    "price-lists.md": price_lists,
    "result-files.md": result_files,
}


def pages() -> dict[str, str]:
    """All pages by their path below docs/reference."""
    schemas = {
        f"../schemas/{name}.json": json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"
        for name in get_args(SchemaName)
    }
    return {**{name: make() for name, make in PAGES.items()}, **python_names(), **schemas}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, text in pages().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.exit(f"out of date: {', '.join(stale)}: run python scripts/reference.py")


if __name__ == "__main__":
    main()
