"""What every test, doctest and README example runs under."""

from __future__ import annotations

import doctest
import inspect
import os
import re
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# Several workers share the cores, and sums over threads would depend on how many there are.
torch.set_num_threads(1)

# A busy machine must not fail a test: no deadlines, no complaint about slow generation.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Public names say that they belong to `picojoule`; their examples run with the names of the file they are written in.
_named_for_its_module = doctest.DocTestFinder._from_module  # type: ignore[attr-defined]


def _written_in(finder: doctest.DocTestFinder, module: ModuleType, found: Any) -> bool:
    if inspect.isfunction(found):
        return inspect.unwrap(found).__globals__ is vars(module)
    if inspect.isclass(found) and found.__module__ == "picojoule":
        return bool(re.search(rf"^class {found.__name__}\b", inspect.getsource(module), flags=re.MULTILINE))
    return bool(_named_for_its_module(finder, module, found))


doctest.DocTestFinder._from_module = _written_in  # type: ignore[attr-defined]

_DOCUMENTS = ["README.md", "docs/*.md", "docs/*/*.md"]
pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser()], patterns=_DOCUMENTS).pytest()


_TRAINS = (
    "docs/how-to/own.md",
    "docs/reference/all-of-picojoule.md",
    "docs/tutorials/first-network.md",
    "docs/tutorials/own-loop.md",
    "src/picojoule/search/frontier.py::picojoule.search.frontier.frontier",
)
"""Documents and examples that train for seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the examples that train to the slow tests: a document has no place for a mark."""
    for item in items:
        if item.nodeid.startswith(_TRAINS):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run for the examples that need one: CNN7 on ten digits, without a penalty, which takes a second."""
    import picojoule as pj

    images = {"name": "digits", "limit": 10, "limit_validation": 10, "limit_test": 10}
    recipe = pj.Recipe(model={"name": "cnn7"}, data=images, training={"epochs": 1, "batch_size": 10, "threads": 1})
    return pj.fit(recipe, tmp_path_factory.mktemp("examples") / "runs", accelerator="cpu")


@pytest.fixture(autouse=True)
def _run_of_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Examples may speak of `finished_run`."""
    examples = request.node.dtest.examples if isinstance(request.node, pytest.DoctestItem) else ()
    if any("finished_run" in example.source for example in examples):
        doctest_namespace["finished_run"] = request.getfixturevalue("finished_run")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same random state, whichever worker runs it and in whatever order."""
    torch.manual_seed(0)
