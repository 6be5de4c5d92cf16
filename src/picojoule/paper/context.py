"""What every experiment consists of: runs, and the tables and figures that are made of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from picojoule.errors import PicojouleError
from picojoule.io import files, packs
from picojoule.io.tables import Sheet
from picojoule.paper.scales import Scale
from picojoule.paper.step_time import StepTimes
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.pack import MEASURED
from picojoule.runs.result import SplitResult

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Results:
    """The tables and figures of an experiment.

    Attributes:
        tables: By the names of their files.
        figures: By the names of their files.
        notes: What a reader has to know, one sentence or more each.
    """

    tables: Mapping[str, Sheet]
    figures: Mapping[str, alt.TopLevelMixin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """Where an experiment finds its runs and stores what else it measures.

    Attributes:
        scale: How much of it is run.
        folder: The folder of runs.
        say: Told in a sentence what is measured.
    """

    scale: Scale
    folder: Path
    say: Callable[[str], None]

    def finished(self, recipes: Iterable[Recipe]) -> list[Run]:
        """Return those runs that are finished, in the same order.

        Args:
            recipes: What was to be trained.
        """
        runs = [Run.of(recipe, self.folder) for recipe in recipes]
        return [run for run in runs if run.finished]

    def tests(self, recipes: Iterable[Recipe]) -> list[SplitResult]:
        """Return the figures on the test split of each run that is finished.

        Args:
            recipes: What was to be trained.
        """
        return [run.result.test for run in self.finished(recipes)]

    def measured(self, name: str, measure: Callable[[], Any]) -> Any:
        """Measure something once: what is stored under this name is read, else it is measured and stored.

        Args:
            name: The name of its file.
            measure: Returns plain values, as in JSON.

        Returns:
            What was measured.

        Raises:
            PicojouleError: If the stored file cannot be read.
        """
        path = packs.locate(self.folder, f"{MEASURED}/{name}.json")
        if not files.is_file(path):
            self.say(f"measuring {name}")
            files.make_folder(path.parent)
            files.write_atomically(path, json.dumps(measure(), allow_nan=False).encode())
        try:
            return files.read_json(path)
        except (OSError, ValueError) as fault:
            raise PicojouleError(
                f"{path} cannot be read ({files.reason(fault)}): remove it, and it is measured again"
            ) from None


class Experiment(ABC):
    """What is trained and measured for one table or figure; a frozen value."""

    scaled: ClassVar[bool] = True
    """Whether it depends on the scale."""

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs that it needs.

        Args:
            scale: How much of it is run.

        Returns:
            The recipes; a run comes after those that it builds on.
        """
        return ()

    def extra_seconds(self, scale: Scale, step_times: StepTimes) -> float:
        """Estimate the time that it takes on one core beside its runs.

        Args:
            scale: How much of it is run.
            step_times: The times of a training step on this machine.

        Returns:
            Seconds.
        """
        return 0.0

    @abstractmethod
    def results(self, context: Context) -> Results:
        """Make the tables and figures from the runs that are finished.

        Args:
            context: Where the runs are.

        Returns:
            The tables and figures.
        """
