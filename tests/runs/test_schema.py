"""The JSON schemas of recipes, results and metrics: in the docs, from the command, and true of what runs leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tiny
from command_line import Command
from picojoule.io import files
from picojoule.runs.folder import find_runs
from picojoule.runs.schema import SchemaName, schema

ROOT = Path(__file__).parents[2]
NAMES: tuple[SchemaName, ...] = ("recipe", "result", "metrics")


def accepts(name: SchemaName, content: Any) -> bool:
    return jsonschema.Draft202012Validator(schema(name)).is_valid(content)


@pytest.mark.parametrize("name", NAMES)
def test_the_docs_have_the_schema_of_this_version(name: SchemaName) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    path = ROOT / "docs" / "schemas" / f"{name}.json"
    assert json.loads(path.read_text(encoding="utf-8")) == schema(name), f"picojoule schema {name} --out {path}"


def test_what_the_project_has_stored_is_as_the_schemas_say() -> None:
    runs = [run for run in find_runs(ROOT / "results") if run.finished][::10]
    assert len(runs) > 30
    for run in runs:
        assert accepts("result", json.loads(files.read_bytes(run.path / "result.json"))), run.path
        for line in files.read_bytes(run.path / "metrics.jsonl").decode().splitlines():
            assert accepts("metrics", json.loads(line)), run.path
        assert accepts("recipe", run.recipe.model_dump(exclude_none=True)), run.path


def test_a_mistake_is_none_of_the_schemas() -> None:
    good = {"test": tiny.figures(), "validation": tiny.figures()}
    assert accepts("result", good)
    assert not accepts("result", good | {"test": tiny.figures() | {"accuracy": 91.5}})
    assert not accepts("result", {"test": tiny.figures()})
    assert accepts("metrics", tiny.epoch())
    assert not accepts("metrics", tiny.epoch() | {"joules": "few"})
    recipe = tiny.recipe().model_dump(exclude_none=True)
    assert accepts("recipe", recipe)
    assert not accepts("recipe", recipe | {"data": {"name": "mnist"}})
    assert not accepts("recipe", recipe | {"penalty": {"strenght": 3.0}})
    assert not accepts("recipe", recipe | {"neuron": {"kind": "lif", "leak": 1.5}})


def test_the_command(tmp_path: Path, command: Command) -> None:
    status, out, err = command("schema", "result")
    assert (status, json.loads(out), err) == (0, schema("result"), "")
    status, out, _ = command("schema")
    assert (status, list(json.loads(out))) == (0, list(NAMES))
    path = tmp_path / "metrics.schema.json"
    assert command("schema", "metrics", "--out", str(path)) == (0, f"{path}\n", "")
    assert json.loads(path.read_text(encoding="utf-8")) == schema("metrics")
    status, out, err = command("schema", "reslt")
    assert (status, out) == (2, "")
    assert err == "picojoule: unknown schema 'reslt': did you mean 'result'? choose one of recipe, result, metrics\n"
