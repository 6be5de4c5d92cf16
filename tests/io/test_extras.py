"""A package that is not installed is one sentence that says which extra has it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import picojoule as pj
from picojoule.io.extras import EXTRA_OF

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
IMPORTED_AS = {
    "lightning-fabric": "lightning_fabric",
    "pillow": "PIL",
    "pytorch-lightning": "pytorch_lightning",
    "scikit-learn": "sklearn",
    "tomli-w": "tomli_w",
    "vl-convert-python": "vl_convert",
}
# Runs picojoule where some packages cannot be imported.
WITHOUT = """
import sys

sys.modules.update(dict.fromkeys({packages!r}))  # they are then looked for in vain, by whatever means
sys.argv = ["picojoule", *{arguments!r}]
from picojoule.__main__ import main
main()
"""


def without(packages: list[str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(packages=packages, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", sorted(EXTRA_OF))
def test_the_extra_that_is_named_has_the_package(package: str) -> None:
    declared = {Requirement(line).name for line in EXTRAS[EXTRA_OF[package]]}
    names = {IMPORTED_AS.get(name, name) for name in declared}
    assert package in names | ({"llvmlite"} if "numba" in names else set())


def test_every_package_of_an_extra_is_known() -> None:
    declared = {Requirement(line).name for extra, lines in EXTRAS.items() if extra != "dev" for line in lines}
    assert {IMPORTED_AS.get(name, name) for name in declared} - {"picojoule"} <= set(EXTRA_OF)


def test_all_has_every_extra() -> None:
    (everything,) = EXTRAS["all"]
    assert Requirement(everything).extras == set(EXTRAS) - {"all", "dev"}


def test_every_package_that_is_imported_is_of_the_core_or_an_extra() -> None:
    imports = re.compile(r"^\s*(?:import|from) ([A-Za-z_]\w*)", flags=re.MULTILINE)
    sources = (ROOT / "src").rglob("*.py")
    found = {name for path in sources for name in imports.findall(_code(path.read_text(encoding="utf-8")))}
    further = found - set(sys.stdlib_module_names) - {"picojoule", "torch", "numpy", "rich", "tomllib"}
    optional = {"onnxruntime"}  # compares exported files where it is installed
    assert further - optional - {"pydantic_core", "typing_extensions"} <= set(EXTRA_OF)


def _code(text: str) -> str:
    return re.sub(r'"""[\s\S]*?"""', "", text)


COMMANDS = {
    "typer": ("profile", "cnn7"),
    "pydantic": ("profile", "cnn7"),
    "altair": ("report", "."),
}


@pytest.mark.slow
@pytest.mark.parametrize("package", COMMANDS)
def test_a_command_says_what_it_lacks(package: str, tmp_path: Path) -> None:
    ended = without([package], *COMMANDS[package], cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert (
        f"needs the package {package}: install it with `pip install 'picojoule[{EXTRA_OF[package]}]'`" in ended.stderr
    )


@pytest.mark.slow
def test_commands_that_need_none_of_them_work_without_them(tmp_path: Path) -> None:
    packages = ["altair", "numba", "nir", "onnx", "ray", "tensorboard", "kornia", "scipy", "sklearn"]
    assert set(packages) <= set(EXTRA_OF)
    ended = without(packages, "profile", "cnn7", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_a_name_of_the_package_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'altair'", name="altair")

    monkeypatch.delitem(vars(pj), "report", raising=False)
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(
        pj.PicojouleError, match=r"^picojoule.report needs the package altair: .*picojoule\[report\]'`$"
    ):
        _ = pj.report


def test_a_module_of_nobodys_extra_is_missing_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(pj), "report", raising=False)
    monkeypatch.setitem(sys.modules, "picojoule.report", None)
    with pytest.raises(ModuleNotFoundError, match=r"picojoule\.report"):
        _ = pj.report
