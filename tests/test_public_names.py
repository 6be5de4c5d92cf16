"""What `import picojoule` gives, and what it costs: names that users need, and no package that the core does not."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import picojoule as pj
from picojoule.io.extras import EXTRA_OF

CORE = ("torch", "numpy", "rich")


def test_the_names_are_sorted_and_complete() -> None:
    assert sorted(pj.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == pj.__all__
    assert len(set(pj.__all__)) == len(pj.__all__)
    submodules = {name for name, value in vars(pj).items() if isinstance(value, ModuleType)}
    public = {name for name in vars(pj) if not name.startswith("_")} - submodules - {"annotations", "explained"}
    unlisted = public - set(pj.__all__) - {"TYPE_CHECKING", "Any", "go_quietly_while_starting"}
    assert not unlisted


@pytest.mark.parametrize("name", pj.__all__)
def test_every_name_is_there_documented_and_belongs_to_picojoule(name: str) -> None:
    value = getattr(pj, name)
    assert inspect.getdoc(value)
    if not isinstance(value, ModuleType):
        assert value.__module__ == "picojoule"
        assert value.__name__ == name
    assert name in dir(pj)


def public(home: ModuleType = pj) -> Iterator[tuple[str, Any]]:
    """Every public function, class and method, by its name."""
    own = [name for name, value in vars(home).items() if getattr(value, "__module__", "") == home.__name__]
    for name in getattr(home, "__all__", [name for name in own if not name.startswith("_")]):
        value = getattr(home, name)
        if isinstance(value, ModuleType):
            yield from public(value)
        elif inspect.isfunction(value) or inspect.isclass(value):
            yield f"{home.__name__}.{name}", value
            for key, member in vars(value).items() if inspect.isclass(value) else ():
                method = getattr(member, "__func__", member)
                is_public = key == "__call__" or not key.startswith("_")
                if is_public and inspect.isfunction(method) and method.__name__ != "<lambda>":
                    yield f"{home.__name__}.{name}.{key}", method


def what_is_missing(value: Any) -> list[str]:
    """What the docstring of a function, class or method does not say."""
    doc = inspect.getdoc(value) or ""
    missing = [] if "." in value.__qualname__ or ">>> " in doc or inspect.isclass(value) else ["an example"]
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        named = [name for name in signature.parameters if name not in ("self", "cls") and not name.startswith("_")]
        missing += [name for name in named if not re.search(rf"^ +\*{{0,2}}{name}: ", doc, re.MULTILINE)]
        gives = signature.return_annotation not in (None, "None", "NoReturn")
        if gives and not re.search(r"^(Returns|Yields):$|^Return ", doc, re.MULTILINE):
            missing.append("Returns")
        if "raise PicojouleError" in inspect.getsource(value) and "\nRaises:\n" not in doc:
            missing.append("Raises")
    return [*missing, *(["a docstring"] if not doc else [])]


def test_every_public_function_and_method_says_what_it_takes_gives_and_raises() -> None:
    found = dict(public())
    assert len(found) > 200
    assert what_is_missing(public) == ["an example", "home", "Returns"]  # the check itself can fail
    lacking = {name: what_is_missing(value) for name, value in found.items()}
    assert not {name: lacks for name, lacks in lacking.items() if lacks}


def test_every_public_class_has_an_example() -> None:
    classes = [name for name in pj.__all__ if inspect.isclass(getattr(pj, name))]
    assert not [name for name in classes if ">>> " not in (inspect.getdoc(getattr(pj, name)) or "")]


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tarce'"):
        _ = pj.tarce


@pytest.mark.slow
def test_importing_picojoule_imports_the_core_alone() -> None:
    code = """
import sys, torch, numpy, rich
before = set(sys.modules)
import picojoule
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    further = {name for name in told if name not in sys.stdlib_module_names and not name.startswith("_")}
    assert further <= {"picojoule", *CORE}
    assert not further & set(EXTRA_OF)
