"""The whole trade-off curve for the cost of a few runs: one network whose penalty is raised step by step.

Convention: point 0 is the recipe without a penalty, trained in full. Point k begins with the weights of point k − 1 and
is trained for a short stretch at the strength first · ratio^(k − 1), so the points go from 100 % of the energy down to
where the accuracy breaks. Every point is an ordinary run, named by a recipe of its own whose `training.start_from` is
the point before: it can be evaluated, reported, exported, and resumed after any interruption like any other. The
optimiser begins each stretch afresh. Schedules:

* `"restarts"`: one strength in each stretch; each begins again with lr/2. It won where they were compared
  (results/README.md);
* `"steps"`: the same, but the learning rate of the stretches falls evenly from lr/2 to lr/10;
* `"ramp"`: as "steps", but within a stretch the strength rises from batch to batch, from the one before to its own.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rich.table import Table

from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError, unknown
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.training.fit import fit
from picojoule.training.reporters import Reporter

Schedule = Literal["restarts", "steps", "ramp"]

AFFORDED = 1.5
"""Epochs of all stretches together, as a multiple of the baseline's, unless the length of a stretch is given."""
BROKEN = 0.5
"""The curve ends below this share of the baseline's accuracy on the validation images."""


@dataclass(frozen=True)
class Plan:
    """How a frontier is walked."""

    points: int = 11
    """At most so many, the baseline among them."""
    first: float = 2.0
    """The strength of point 1, on the normalised penalty."""
    ratio: float = 2.0
    stretch: int | None = None
    """Epochs of each point after the baseline."""
    schedule: Schedule = "restarts"

    def __post_init__(self) -> None:
        if self.points < 2:
            raise PicojouleError(f"{self.points} points are no curve: take 2 or more")
        if not (0 < self.first < math.inf and 1 < self.ratio < math.inf):
            raise PicojouleError(
                f"strengths from {self.first:g} by a ratio of {self.ratio:g} do not rise: take a first strength above "
                "0 and a ratio above 1"
            )
        if math.log(self.first) + (self.points - 2) * math.log(self.ratio) > math.log(sys.float_info.max):
            raise PicojouleError(
                f"{self.points} points from {self.first:g} by a ratio of {self.ratio:g} end at no finite strength: "
                "take a smaller ratio or fewer points"
            )
        if self.stretch is not None and self.stretch < 1:
            raise PicojouleError(f"a stretch of {self.stretch} epochs is none: take 1 or more")
        if self.schedule not in get_args(Schedule):
            raise unknown("schedule", self.schedule, get_args(Schedule))

    def stretch_of(self, epochs: int) -> int:
        """Epochs of a stretch after a baseline of so many: what 1.5 times them afford, at least one.

        >>> Plan().stretch_of(10), Plan().stretch_of(150), Plan(stretch=3).stretch_of(10)
        (1, 22, 3)
        """
        return self.stretch or max(1, int(AFFORDED * epochs / (self.points - 1)))


def recipes(recipe: Recipe, plan: Plan | None = None) -> tuple[Recipe, ...]:
    """The points as recipes, to be trained in this order into one folder.

    >>> base = Recipe.loads('model.name = "cnn7"\\ndata.name = "digits"\\ntraining.epochs = 10')
    >>> chain = recipes(base)
    >>> [point.penalty.strength for point in chain[:4]], chain[10].penalty.strength
    ([0.0, 2.0, 4.0, 8.0], 1024.0)
    >>> chain[2].training.start_from == chain[1].name, sum(point.training.epochs for point in chain)
    (True, 20)
    """
    plan = plan or Plan()
    if recipe.penalty.budget is not None or recipe.penalty.kind == "target" or recipe.neuron.kind == "relu":
        raise PicojouleError(
            "a frontier raises the strength of a penalty on spikes: take a recipe without penalty.budget, with a "
            "penalty.kind other than 'target' and a neuron.kind other than 'relu'"
        )
    if not recipe.penalty.normalized:
        raise PicojouleError("a frontier's strengths are those of the normalised penalty: take penalty.normalized=true")
    chain = [recipe.unpenalised]
    stretch = plan.stretch_of(recipe.training.epochs)
    for k in range(1, plan.points):
        strength = plan.first * plan.ratio ** (k - 1)
        passed = (k - 1) / max(plan.points - 2, 1) if plan.schedule != "restarts" else 0.0
        rises = [f"penalty.rise_from={chain[-1].penalty.strength!r}"] if plan.schedule == "ramp" else []
        chain.append(
            recipe.unpenalised.override(
                f"penalty.strength={strength!r}",
                "penalty.schedule=constant",
                *rises,
                f"optimizer.lr={recipe.optimizer.lr * (0.5 - 0.4 * passed)!r}",
                f"training.epochs={stretch}",
                f"training.start_from={chain[-1].name}",
            )
        )
    return tuple(chain)


@dataclass(frozen=True)
class Frontier:
    """The points that were reached, each a finished run."""

    runs: tuple[Run, ...]
    planned: int

    @property
    def broken(self) -> bool:
        """Whether the accuracy broke before all planned points were reached."""
        return len(self.runs) < self.planned

    @property
    def cost(self) -> float:
        """Epochs of all points as a multiple of the baseline's."""
        epochs = [run.recipe.training.epochs for run in self.runs]
        return sum(epochs) / epochs[0]

    def to_dict(self) -> dict[str, Any]:
        baseline = self.runs[0].result
        points, epochs = [], 0
        for run in self.runs:
            epochs += run.recipe.training.epochs
            result = run.result
            entry: dict[str, Any] = {"run": str(run.path), "strength": run.recipe.penalty.strength, "epochs": epochs}
            for split in ("validation", "test"):
                ours, whole = result.on(split), baseline.on(split).joules
                share = ours.joules / whole if ours.joules is not None and whole else None
                entry[split] = {"accuracy": ours.accuracy, "joules": ours.joules, "energy": share}
            points.append(entry)
        return {"cost": self.cost, "broken": self.broken, "points": points}

    def table(self) -> Table:
        table = Table(title=f"Frontier: {len(self.runs)} points for {self.cost:.2f} times the epochs of one run")
        for heading in ("λ'", "epochs so far", "test accuracy", "energy per image", "of the baseline's", "run"):
            name = heading == "run"  # whole, to be copied
            table.add_column(heading, justify="left" if name else "right", overflow="fold", no_wrap=name)
        content = self.to_dict()
        for point in content["points"]:
            test = point["test"]
            table.add_row(
                f"{point['strength']:g}",
                str(point["epochs"]),
                f"{test['accuracy']:.2%}",
                format_joules(test["joules"]),
                "–" if test["energy"] is None else f"{test['energy']:.1%}",
                os.path.basename(point["run"]),
            )
        return table


def frontier(
    recipe: Recipe,
    into: str | os.PathLike[str] = "runs",
    plan: Plan | None = None,
    *,
    reporters: Callable[[str], Sequence[Reporter]] = lambda title: (),
    say: Callable[[str], None] = lambda text: None,
    accelerator: str = "auto",
    devices: int = 1,
) -> Frontier:
    """Walk the curve; the same call again resumes where it was, and returns at once if all is done.

    `reporters` gives those of each point by its title.
    """
    chain = recipes(recipe, plan)
    runs: list[Run] = []
    for number, point in enumerate(chain):
        title = f"point {number} of {len(chain) - 1}, λ' = {point.penalty.strength:g}"
        runs.append(fit(point, into, reporters=reporters(title), accelerator=accelerator, devices=devices))
        if runs[-1].result.validation.joules is None:
            raise PicojouleError(
                f"{runs[-1].path / 'result.json'} is no result of a frontier (it has no joules): remove it and run the "
                "same command again"
            )
        accuracy, least = (run.result.validation.accuracy for run in (runs[-1], runs[0]))
        if accuracy < BROKEN * least:
            say(
                f"the accuracy broke at λ' = {point.penalty.strength:g}: {accuracy:.1%} on the validation images, less "
                f"than half of the baseline's {least:.1%}; the curve ends here"
            )
            break
    return Frontier(tuple(runs), len(chain))
