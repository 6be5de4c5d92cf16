"""The comparison with conversion (Sorbaro et al., 2020): quantised-ReLU networks made spiking ones over T steps."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

from picojoule.data import DATASETS
from picojoule.paper import conversion_chain, reference
from picojoule.paper.context import Bench, Findings, Work
from picojoule.paper.curves import ONLY_SYN, Tradeoff, drawn_as, empty_curve, finished_curves, scored
from picojoule.paper.scales import Scale
from picojoule.paper.settings import setting
from picojoule.paper.step_time import Paces
from picojoule.recipe import Recipe
from picojoule.report import Curve, Point
from picojoule.runs import evaluate
from picojoule.runs.folder import Run
from picojoule.runs.result import SplitResult

STEPS = (1, 5, 10)
_COEFFICIENT = 10
"""Of ((S − S0)/S0)²; the paper does not say."""
_STAGES = {"full": (28, 0.85), "small": (8, 0.6), "smoke": (2, 0.6)}
"""How many, and by what each lowers the budget of synaptic operations."""
_SMALL_TEST = 2000
"""T = 10 takes ten times as long to show as T = 1."""


@dataclass(frozen=True)
class Conversion(Work):
    """One chain of stages a seed, each warm-started from the one before; energy is relative to the baseline of Ω_syn.

    How the intensity grows is our reading of the paper: stage k is pulled towards r^k of the first stage's synaptic
    operations.
    """

    tradeoff: Tradeoff
    label: str

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        return (*self._spiking(scale), *(stage for stages in self.chains(scale) for stage in stages))

    def _spiking(self, scale: Scale) -> tuple[Recipe, ...]:
        curves = (self.tradeoff.curve(scale, kind, p) for kind, p in (*ONLY_SYN, ("syn", 2)))
        return (*self.tradeoff.baseline(scale), *(recipe for curve in curves for recipe in curve))

    def chains(self, scale: Scale) -> list[tuple[Recipe, ...]]:
        count, ratio = _STAGES[scale.name]
        changes = ["neuron.kind=qrelu", f"penalty.strength={_COEFFICIENT}", "penalty.schedule=constant"]
        chains = []
        for seed in scale.seeds:
            recipe = scale.adapt(setting(self.tradeoff.base, *changes, f"seed={seed}"))
            if scale.name == "small":
                recipe = recipe.override(f"data.limit_test={_SMALL_TEST}")
            chains.append(conversion_chain.stages(recipe, ratio, count))
        return chains

    def seconds_beside(self, scale: Scale, paces: Paces) -> float:
        recipes = [stage for stages in self.chains(scale) for stage in stages]
        images = sum(recipe.data.limit_test or DATASETS[recipe.data.name].splits[2] for recipe in recipes)
        return images * sum(STEPS) * paces[recipes[0].model.name].shown

    def findings(self, bench: Bench) -> Findings:
        printed = reference.scores(self.label)
        baseline = statistics.fmean(
            [t.joules for t in bench.tests(self.tradeoff.baseline(bench.scale)) if t.joules is not None] or [0.0]
        )
        curves = list(finished_curves(bench, self._spiking(bench.scale)))
        if baseline:
            curves += [self._converted(bench, steps, baseline) for steps in STEPS]
        drawn = {curve.label: curve for curve in curves}
        everything = [drawn.get(label) or empty_curve(label) for label in printed]
        note = (
            "How the penalty of the quantised network grows is our reading of the paper: each stage starts from the "
            "one before and is pulled towards a smaller share of the first one's synaptic operations."
        )
        return Findings(scored(everything, printed), drawn_as("conversion", everything), (note,))

    def _converted(self, bench: Bench, steps: int, baseline: float) -> Curve:
        points = []
        for stages in self.chains(bench.scale):
            for run in bench.finished(stages):
                recipe = run.recipe
                test = SplitResult.parse(bench.kept(f"{recipe.name}-T{steps}", partial(_measured, run, steps)))
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
    return evaluate.evaluate(run, "test", convert_steps=steps).to_dict()
