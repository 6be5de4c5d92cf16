"""The comparison with conversion (Sorbaro et al., 2020): quantised-ReLU networks made spiking ones over T steps."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

from picojoule.data import DATASETS
from picojoule.paper import conversion_chain, published
from picojoule.paper.context import Context, Experiment, Results
from picojoule.paper.curves import ONLY_SYN, Tradeoff, drawn_as, empty_curve, finished_curves, scored
from picojoule.paper.scales import Scale
from picojoule.paper.settings import setting
from picojoule.paper.step_time import StepTimes
from picojoule.recipe import Recipe
from picojoule.report import Curve, Point
from picojoule.runs import evaluate
from picojoule.runs.folder import Run
from picojoule.runs.result import SplitResult

STEPS = (1, 5, 10)
_COEFFICIENT = 10
"""The coefficient of ((S − S0)/S0)²; ours, because the paper does not say."""
_STAGES = {"full": (28, 0.85), "small": (8, 0.6), "smoke": (2, 0.6)}
"""How many, and by what each lowers the budget of synaptic operations."""
_SMALL_TEST = 2000
"""T = 10 takes ten times as long to show as T = 1."""


@dataclass(frozen=True)
class Conversion(Experiment):
    """The comparison of Ω_syn with conversion: one chain of stages per seed, each warm-started from the one before.

    Energy is relative to the baseline of Ω_syn.

    Attributes:
        tradeoff: The curves of Ω_syn.
        label: The label of the paper's table of scores.

    How the intensity grows is our reading of the paper: stage k is pulled towards r^k of the first stage's synaptic
    operations.
    """

    tradeoff: Tradeoff
    label: str

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs that it needs (see `Experiment`)."""
        return (*self._spiking(scale), *(stage for stages in self.chains(scale) for stage in stages))

    def _spiking(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs of Ω_syn, to which conversion is compared."""
        curves = (self.tradeoff.curve(scale, kind, p) for kind, p in (*ONLY_SYN, ("syn", 2)))
        return (*self.tradeoff.baseline(scale), *(recipe for curve in curves for recipe in curve))

    def chains(self, scale: Scale) -> list[tuple[Recipe, ...]]:
        """Return the chain of stages of each seed.

        Args:
            scale: How much of it is run.
        """
        count, ratio = _STAGES[scale.name]
        penalty = {"strength": _COEFFICIENT, "schedule": "constant"}
        chains = []
        for seed in scale.seeds:
            recipe = scale.adapt(setting(self.tradeoff.base, neuron={"kind": "qrelu"}, penalty=penalty, seed=seed))
            if scale.name == "small":
                recipe = recipe.with_values(data={"limit_test": _SMALL_TEST})
            chains.append(conversion_chain.stages(recipe, ratio, count))
        return chains

    def extra_seconds(self, scale: Scale, step_times: StepTimes) -> float:
        """Estimate the time beside its runs (see `Experiment`)."""
        recipes = [stage for stages in self.chains(scale) for stage in stages]
        images = sum(recipe.data.limit_test or DATASETS[recipe.data.name].splits[2] for recipe in recipes)
        return images * sum(STEPS) * step_times[recipes[0].model.name].evaluation

    def results(self, context: Context) -> Results:
        """Make the scores and the figure of the curves (see `Experiment`)."""
        printed = published.scores(self.label)
        baseline = statistics.fmean(
            [t.joules for t in context.tests(self.tradeoff.baseline(context.scale)) if t.joules is not None] or [0.0]
        )
        curves = list(finished_curves(context, self._spiking(context.scale)))
        if baseline:
            curves += [self._converted(context, steps, baseline) for steps in STEPS]
        drawn = {curve.label: curve for curve in curves}
        everything = [drawn.get(label) or empty_curve(label) for label in printed]
        note = (
            "How the penalty of the quantised network grows is our reading of the paper: each stage starts from the "
            "one before and is pulled towards a smaller share of the first one's synaptic operations."
        )
        return Results(scored(everything, printed), drawn_as("conversion", everything), (note,))

    def _converted(self, context: Context, steps: int, baseline: float) -> Curve:
        """Evaluate every stage as a spiking network over so many time steps."""
        points = []
        for stages in self.chains(context.scale):
            for run in context.finished(stages):
                recipe = run.recipe
                test = SplitResult.parse(context.measured(f"{recipe.name}-T{steps}", partial(_measured, run, steps)))
                assert test.joules is not None  # a converted network spikes
                points.append(
                    Point(
                        energy=test.joules / baseline,
                        accuracy=test.accuracy,
                        strength=1 / (recipe.penalty.target or 1.0),  # how far the budget was lowered
                        seed=recipe.seed,
                        run=recipe.name,
                        joules=test.joules,
                        dead_rate=test.dead_rate,
                        rate_mean=test.rate_mean,
                    )
                )
        return Curve("conversion", f"T = {steps}", tuple(points))


def _measured(run: Run, steps: int) -> dict[str, Any]:
    """Evaluate the conversion of a run on the test split."""
    return evaluate.evaluate(run, "test", convert_steps=steps).to_dict()
