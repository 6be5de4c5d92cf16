"""Machine code that was kept is not taken for that of other sources."""

from __future__ import annotations

from pathlib import Path

from picojoule.deploy.events import kernels
from picojoule.deploy.events.kernels import interpreter
from picojoule.kernels.jit import source_digest


def test_kept_machine_code_is_bound_to_the_sources_it_was_made_of() -> None:
    own = {path.stem for path in Path(kernels.__file__).parent.glob("*.py")} - {"__init__", "interpreter"}
    assert {*interpreter.SOURCES} == {f"picojoule.deploy.events.kernels.{name}" for name in own} | {
        "picojoule.deploy.events.program",
        "picojoule.kernels.lanes",
    }
    cells = kernels.execute.py_func.__closure__  # type: ignore[attr-defined]
    assert [cell.cell_contents for cell in cells] == [source_digest(*interpreter.SOURCES)]
    for left_out in interpreter.SOURCES:
        others = [name for name in interpreter.SOURCES if name != left_out]
        assert source_digest(*others) != source_digest(*interpreter.SOURCES)
