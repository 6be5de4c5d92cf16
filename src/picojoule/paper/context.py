"""What every experiment consists of: runs, and what is made of them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from picojoule.errors import PicojouleError
from picojoule.io import files
from picojoule.io.tables import Sheet
from picojoule.paper.scales import Scale
from picojoule.paper.step_time import Paces
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.result import SplitResult

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Findings:
    """Tables and figures by the names of their files, and what a reader has to know beside them."""

    tables: Mapping[str, Sheet]
    figures: Mapping[str, alt.TopLevelMixin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """Where an experiment finds its runs and keeps what else it measured."""

    scale: Scale
    folder: Path
    say: Callable[[str], None]

    def finished(self, recipes: Iterable[Recipe]) -> list[Run]:
        """Those runs that are done, in that order."""
        runs = [Run.of(recipe, self.folder) for recipe in recipes]
        return [run for run in runs if run.finished]

    def tests(self, recipes: Iterable[Recipe]) -> list[SplitResult]:
        """The `test` object of each run that is done."""
        return [run.result.test for run in self.finished(recipes)]

    def kept(self, name: str, measure: Callable[[], Any]) -> Any:
        """What was measured under this name before, or is now; plain values, as in JSON."""
        path = self.folder / "measured" / f"{name}.json"
        if not os.path.exists(path):
            self.say(f"measuring {name}")
            files.made(path.parent)
            files.write_atomically(path, json.dumps(measure(), allow_nan=False).encode())
        try:
            return files.read_json(path)
        except (OSError, ValueError) as fault:
            raise PicojouleError(
                f"{path} cannot be read ({files.reason(fault)}): remove it, and it is measured again"
            ) from None


class Work(ABC):
    """What is done for one table or figure; a frozen value."""

    scaled: ClassVar[bool] = True
    """Whether it depends on the scale."""

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        """The runs that it needs."""
        return ()

    def seconds_beside(self, scale: Scale, paces: Paces) -> float:
        """About what it takes on one core beside its runs."""
        return 0.0

    @abstractmethod
    def findings(self, bench: Bench) -> Findings:
        """Tables and figures from the runs that are done."""
