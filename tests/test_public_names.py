"""What `import picojoule` gives, and what it costs: names that users need, and no package that the core does not."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

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


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tarce'"):
        _ = pj.tarce


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
