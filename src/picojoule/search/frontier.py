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

from picojoule.data import Given
from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError, unknown
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.training.fit import fit, with_own_data
from picojoule.training.reporters import Reporter

Schedule = Literal["restarts", "steps", "ramp"]

AFFORDED = 1.5
"""Epochs of all stretches together, as a multiple of the baseline's, unless the length of a stretch is given."""
BROKEN = 0.5
"""The curve ends below this share of the baseline's accuracy on the validation images."""


@dataclass(frozen=True)
class Plan:
    """The points of a frontier and how they are trained.

    Attributes:
        points: The largest number of points, the baseline among them.
        first: The strength of point 1, on the normalised penalty.
        ratio: By what the strength is multiplied from point to point.
        stretch: Epochs of each point after the baseline; by default, 1.5 times the baseline's epochs shared out.
        schedule: "restarts", "steps" or "ramp", as the module's docstring says.

    Raises:
        PicojouleError: If there is no such curve: fewer than two points, or strengths that do not rise.

    >>> Plan(points=5, stretch=3).stretch_of(epochs=10)
    3
    """

    points: int = 11
    first: float = 2.0
    ratio: float = 2.0
    stretch: int | None = None
    schedule: Schedule = "restarts"

    def __post_init__(self) -> None:
        if self.points < 2:
            raise PicojouleError(f"{self.points} points are not a curve: take 2 or more")
        if not (0 < self.first < math.inf and 1 < self.ratio < math.inf):
            raise PicojouleError(
                f"strengths from {self.first:g} by a ratio of {self.ratio:g} do not rise: take a first strength above "
                "0 and a ratio above 1"
            )
        if math.log(self.first) + (self.points - 2) * math.log(self.ratio) > math.log(sys.float_info.max):
            raise PicojouleError(
                f"{self.points} points from {self.first:g} by a ratio of {self.ratio:g} end at a strength that is not "
                "finite: take a smaller ratio or fewer points"
            )
        if self.stretch is not None and self.stretch < 1:
            raise PicojouleError(f"a stretch of {self.stretch} epochs is not a stretch: take 1 or more")
        if self.schedule not in get_args(Schedule):
            raise unknown("schedule", self.schedule, get_args(Schedule))

    def stretch_of(self, epochs: int) -> int:
        """Return the epochs of each stretch.

        Args:
            epochs: Those of the baseline.

        Returns:
            The stretch that was given, or what 1.5 times the baseline's epochs afford, at least one.

        >>> Plan().stretch_of(10), Plan().stretch_of(150), Plan(stretch=3).stretch_of(10)
        (1, 22, 3)
        """
        return self.stretch or max(1, int(AFFORDED * epochs / (self.points - 1)))


def recipes(recipe: Recipe, plan: Plan | None = None) -> tuple[Recipe, ...]:
    """Return the points of a frontier as recipes, to be trained in this order into one folder.

    Args:
        recipe: The recipe of the network; its own strength plays no part.
        plan: Which points; the default plan unless given.

    Returns:
        The baseline, then the points of rising strength.

    Raises:
        PicojouleError: If the recipe has a budget or a target, no spikes, or a penalty that is not normalised.

    >>> base = Recipe.loads('model.name = "cnn7"', "data.name=digits", "training.epochs=10")
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
        rise_from = chain[-1].penalty.strength if plan.schedule == "ramp" else None
        chain.append(
            recipe.unpenalised.with_values(
                penalty={"strength": strength, "schedule": "constant", "rise_from": rise_from},
                optimizer={"lr": recipe.optimizer.lr * (0.5 - 0.4 * passed)},
                training={"epochs": stretch, "start_from": chain[-1].name},
            )
        )
    return tuple(chain)


@dataclass(frozen=True)
class Frontier:
    """The points of a trade-off curve that were reached, each a finished run.

    Attributes:
        runs: The baseline, then the points of rising strength.
        planned: How many points were planned.
    """

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
        """Return the curve as plain values, as `picojoule frontier --json` prints it.

        Returns:
            The cost, whether the accuracy broke, and the points with their accuracy and energy on both splits.
        """
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
        """Return the curve as a table for the terminal, with figures of the test split."""
        table = Table(
            title=f"Frontier: {len(self.runs)} points for {self.cost:.2f} times the epochs of one run",
            caption="On the test images: accuracy, energy per image and its share of the baseline's; epochs so far.",
        )
        for heading in ("λ'", "epochs", "accuracy", "energy", "share", "run"):
            table.add_column(heading, justify="left" if heading == "run" else "right")
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
    data: Given | None = None,
    reporters: Callable[[str], Sequence[Reporter]] = lambda title: (),
    say: Callable[[str], None] = lambda text: None,
    accelerator: str = "auto",
    devices: int = 1,
) -> Frontier:
    r"""Train the points of a trade-off curve one after the other, until the accuracy breaks.

    The same call again resumes where it was, and returns at once if all is done.

    Args:
        recipe: The recipe of the network; its own strength plays no part.
        into: The folder of runs.
        plan: Which points; the default plan unless given.
        data: As in `fit`.
        reporters: Gives the reporters of each point by its title.
        say: Told in a sentence where the accuracy broke.
        accelerator: As in `fit`.
        devices: As in `fit`.

    Returns:
        The points that were reached.

    Raises:
        PicojouleError: If there is no frontier of this recipe, or a point cannot be trained.

    >>> import tempfile
    >>> few = Recipe.loads(
    ...     'model.name = "cnn7"\ndata.name = "digits"',
    ...     "data.limit=10",
    ...     "data.limit_validation=10",
    ...     "data.limit_test=10",
    ...     "training.epochs=1",
    ...     "training.batch_size=10",
    ... )
    >>> curve = frontier(few, tempfile.mkdtemp(), Plan(points=2, stretch=1), accelerator="cpu")
    >>> [run.recipe.penalty.strength for run in curve.runs]
    [0.0, 2.0]
    """
    recipe, _ = with_own_data(recipe, data)
    chain = recipes(recipe, plan)
    runs: list[Run] = []
    for number, point in enumerate(chain):
        title = f"point {number} of {len(chain) - 1}, λ' = {point.penalty.strength:g}"
        runs.append(fit(point, into, data=data, reporters=reporters(title), accelerator=accelerator, devices=devices))
        if runs[-1].result.validation.joules is None:
            raise PicojouleError(
                f"{runs[-1].path / 'result.json'} is not the result of a frontier (it has no joules): remove it and "
                "run the same command again"
            )
        accuracy, least = (run.result.validation.accuracy for run in (runs[-1], runs[0]))
        if accuracy < BROKEN * least:
            say(
                f"the accuracy broke at λ' = {point.penalty.strength:g}: {accuracy:.1%} on the validation images, less "
                f"than half of the baseline's {least:.1%}; the curve ends here"
            )
            break
    return Frontier(tuple(runs), len(chain))
