"""Ctrl-C while the command imports its libraries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import picojoule as pj

# Presses Ctrl-C in the process that is about to import a module.
PRESSING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PRESSED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""
# As installers write it.
SCRIPT = "import sys\nfrom picojoule.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a process cannot press its own Ctrl-C there")


def pressed(folder: Path, at: str, *command: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(PRESSING)
    (folder / "bin").mkdir()
    (folder / "bin" / "picojoule").write_text(SCRIPT)
    path = os.pathsep.join([str(folder), str(Path(pj.__file__).parents[1])])
    # What a process ignores its children ignore too, and some shells let jobs in the background ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PRESSED_AT": at},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("command", [("-m", "picojoule"), ("bin/picojoule",)], ids=["module", "script"])
@pytest.mark.parametrize("at", ["torch", pytest.param("typer", marks=pytest.mark.slow)])
def test_ctrl_c_while_the_command_starts_ends_it_without_a_word(tmp_path: Path, at: str, command: tuple[str]) -> None:
    finished = pressed(tmp_path, at, *command, "--version")
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "", "")


def test_a_program_that_imports_picojoule_keeps_its_own_ctrl_c(tmp_path: Path) -> None:
    code = "try:\n    import picojoule\nexcept KeyboardInterrupt:\n    print('mine')"
    finished = pressed(tmp_path, "torch", "-c", code)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "mine\n", "")


@pytest.mark.slow
def test_a_command_that_ignores_ctrl_c_goes_on(tmp_path: Path) -> None:
    finished = pressed(tmp_path, "torch", "-m", "picojoule", "--version", ignored=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, f"{pj.__version__}\n", "")


@pytest.mark.slow
def test_the_command_itself_is_told_of_ctrl_c_by_an_exception(tmp_path: Path) -> None:
    """Here at an import that a command does when it needs it."""
    (tmp_path / "recipe.toml").write_text('model.name = "cnn7"\ndata.name = "digits"\n')
    finished = pressed(tmp_path, "sklearn.datasets", "-m", "picojoule", "train", "recipe.toml")
    assert (finished.returncode, finished.stdout, finished.stderr) == (1, "", "picojoule: stopped\n")
