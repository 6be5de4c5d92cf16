"""The comparison with conversion (Sorbaro et al., 2020): quantised-ReLU networks made spiking ones over T steps.

The penalty of one network grows stage by stage, and the paper does not say for how long it is trained in all. Two
readings bound the answer: the whole chain is trained for the epochs of one run of Ω_syn ("conversion"), or each of its
stages is ("longer conversion").
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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
_STAGES = {"full": (28, 0.85), "small": (6, 0.55), "mini": (6, 0.55), "quick": (3, 0.4), "smoke": (2, 0.6)}
"""How many, and by what each lowers the budget of synaptic operations."""


@dataclass(frozen=True)
class Conversion(Experiment):
    """The comparison of Ω_syn with conversion: chains of stages, each warm-started from the one before.

    Energy is relative to the baseline of Ω_syn; all networks are shown the same test images.

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
        stages = (stage for chains in self.chains(scale).values() for chain in chains for stage in chain)
        return (*dict.fromkeys((*self._spiking(scale), *stages)),)

    def _spiking(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs of Ω_syn, to which conversion is compared."""
        curves = (self.tradeoff.curve(scale, kind, p) for kind, p in (*ONLY_SYN, ("syn", 2)))
        return (*self.tradeoff.baseline(scale), *(recipe for curve in curves for recipe in curve))

    def chains(self, scale: Scale) -> dict[str, list[tuple[Recipe, ...]]]:
        """Return the chain of stages of each seed.

        Args:
            scale: How much of it is run.

        Returns:
            For either length of training, by the name of its curves, a chain per seed.
        """
        count, ratio = _STAGES[scale.name]
        chains: dict[str, list[tuple[Recipe, ...]]] = {"conversion": [], "longer conversion": []}
        for seed in scale.seeds:
            penalty = {"strength": _COEFFICIENT, "schedule": "constant"}
            whole = scale.adapt(setting(self.tradeoff.base, neuron={"kind": "qrelu"}, penalty=penalty, seed=seed))
            chains["conversion"].append(_within_one_run(whole, ratio, count))
            chains["longer conversion"].append(conversion_chain.stages(whole, ratio, count))
        return chains

    def extra_seconds(self, scale: Scale, step_times: StepTimes) -> float:
        """Estimate the time beside its runs (see `Experiment`)."""
        recipes = [stage for chains in self.chains(scale).values() for chain in chains for stage in chain]
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
            chains = self.chains(context.scale)
            curves += [_converted(context, kind, chains[kind], t, baseline) for kind in chains for t in STEPS]
        drawn = {curve.label: curve for curve in curves if curve.points}
        everything = [drawn.get(label) or empty_curve(label) for label in dict.fromkeys((*printed, *drawn))]
        note = (
            "How the penalty of the quantised network grows is our reading of the paper: each stage starts from the "
            "one before and is pulled towards a smaller share of the first one's synaptic operations. The whole chain "
            "is trained for the epochs of one run of Ω_syn; in longer conversion, each of its stages is."
        )
        return Results(scored(everything, printed), drawn_as("conversion", everything), (note,))


def _within_one_run(recipe: Recipe, ratio: float, count: int) -> tuple[Recipe, ...]:
    """Share the epochs of one run out to stages that lower the budget as far as `count` stages do.

    A stage of a single epoch has no room for the learning rate to fall, so it is trained at half of it, which is the
    mean over a whole run.
    """
    stages = max(2, min(count, recipe.training.epochs))
    each = max(1, recipe.training.epochs // stages)
    rate = recipe.optimizer.lr * (1 if each > 1 else 0.5)
    shared = recipe.with_values(training={"epochs": each}, optimizer={"lr": rate})
    return conversion_chain.stages(shared, ratio ** ((count - 1) / (stages - 1)), stages)


def _converted(context: Context, kind: str, chains: Sequence[tuple[Recipe, ...]], steps: int, baseline: float) -> Curve:
    """Evaluate every stage as a spiking network over so many time steps."""
    points = []
    for run in context.finished(stage for chain in chains for stage in chain):
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
    return Curve(kind, f"T = {steps}", tuple(points))


def _measured(run: Run, steps: int) -> dict[str, Any]:
    """Evaluate the conversion of a run on the test split."""
    return evaluate.evaluate(run, "test", convert_steps=steps).to_dict()
