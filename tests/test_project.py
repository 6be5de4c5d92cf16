"""The project's own files agree with each other."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import picojoule as pj

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
DECLARED = [
    requirement
    for requirement in map(
        Requirement,
        (
            *PYPROJECT["build-system"]["requires"],
            *PYPROJECT["project"]["dependencies"],
            *(line for extra in PYPROJECT["project"]["optional-dependencies"].values() for line in extra),
        ),
    )
    if requirement.name != "picojoule"  # an extra that has the packages of another
]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def applies(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"python_version": python})


def pins(name: str, python: str) -> list[Requirement]:
    name = canonicalize_name(name)
    return [pin for pin in CONSTRAINTS if canonicalize_name(pin.name) == name and applies(pin, python)]


@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_needed_has_one_tested_version(python: str) -> None:
    for requirement in (requirement for requirement in DECLARED if applies(requirement, python)):
        (pin,) = pins(requirement.name, python)
        (specifier,) = pin.specifier
        assert specifier.operator == "=="
        assert requirement.specifier.contains(specifier.version), requirement


@pytest.mark.parametrize("python", PYTHONS)
def test_no_package_is_pinned_twice(python: str) -> None:
    for name in sorted({canonicalize_name(pin.name) for pin in CONSTRAINTS}):
        assert len(pins(name, python)) <= 1, name


def test_the_supported_pythons_are_those_tested() -> None:
    stated = [c.rsplit(" ", 1)[1] for c in PYPROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert tuple(stated) == PYTHONS
    assert PYPROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("framework", pj.peers.FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_other_frameworks_are_tested_and_documented_in_one_version(framework: pj.peers.Framework) -> None:
    files = [(ROOT / f"requirements-{name}.txt").read_text(encoding="utf-8") for name in ("peers", "sinabs")]
    pinned = re.findall(rf"^{framework.package}==([^;\s]+)", "\n".join(files), flags=re.MULTILINE)
    assert pinned == [framework.tested]
    page = (ROOT / "docs" / "how-to" / "frameworks.md").read_text(encoding="utf-8")
    assert f"{framework.name} {'.'.join(framework.tested.split('.')[:2])} |" in page
    assert (ROOT / "docs" / "examples" / f"{framework.package}_digits.py").is_file()


def test_every_link_of_the_documents_leads_somewhere() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "results").rglob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_page_of_the_documents_is_in_the_sites_table_of_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    pages += [f"notebooks/{notebook.stem}.md" for notebook in (ROOT / "docs" / "notebooks").glob("*.ipynb")]
    pages += [f"results/{page.stem}.md".replace("README", "index") for page in (ROOT / "results").glob("*.md")]
    assert [page for page in pages if f" {page}\n" not in contents] == []


def test_every_other_framework_and_counter_has_an_environment_that_must_have_it() -> None:
    """`make test` names them, so that a missing one fails there instead of being skipped."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = " ".join(re.findall(r'PICOJOULE_FRAMEWORKS="([^"]*)"', makefile)).split()
    assert sorted(named) == sorted({*(framework.package for framework in pj.peers.FRAMEWORKS), "neurobench"})
    (recipe,) = re.findall(r"^test:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert "$(MAKE) peers" in recipe


def test_the_table_of_agreement_was_made_with_the_tested_versions() -> None:
    page = (ROOT / "results" / "agreement.md").read_text(encoding="utf-8")
    pinned = "\n".join((ROOT / f"requirements-{name}.txt").read_text(encoding="utf-8") for name in ("peers", "sinabs"))
    for tool in ("sinabs", "SpikingJelly", "NeuroBench"):
        (version,) = re.findall(rf"^{tool.lower()}==([^;\s]+)", pinned, flags=re.MULTILINE)
        assert f"{tool} {version}" in page
    assert "unexplained" not in page


def test_the_package_ships_its_types() -> None:
    assert (Path(pj.__file__).parent / "py.typed").is_file()


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def test_the_benchmarks_find_what_they_take_from_each_other() -> None:
    """Some run only beside other frameworks, where a missing name would be noticed late."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks").glob("*.py")}
    there = {
        stem: {
            name
            for node in tree.body
            for name in [
                *([node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []),
                *(each.id for each in _targets(node) if isinstance(each, ast.Name)),
            ]
        }
        for stem, tree in trees.items()
    }
    taken = [
        (stem, node.module, alias.name)
        for stem, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for alias in node.names
    ]
    assert len(taken) > 10
    assert [each for each in taken if each[2] not in there[each[1]]] == []
