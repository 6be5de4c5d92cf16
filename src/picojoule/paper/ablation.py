"""The ablations over λ, λ_WD and B_BN: accuracy, energy, dead neurons and firing rate."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from picojoule.io.tables import Cell, Column, Estimate, Sheet
from picojoule.paper import comparison, published
from picojoule.paper.context import Context, Experiment, Results
from picojoule.paper.published import Ablated
from picojoule.paper.scales import Scale
from picojoule.paper.settings import setting
from picojoule.recipe import Recipe
from picojoule.runs.result import SplitResult

_PERCENT = 100


@dataclass(frozen=True)
class Ablation(Experiment):
    """An ablation over λ, λ_WD and B_BN, with the raw λ of a penalty that is not normalised, p = 1.

    Energy is relative to λ = λ_WD = B_BN = 0.

    Attributes:
        base: The paper's setting.
        label: The label of the paper's table.
        grid: The label of the table whose λ, λ_WD and B_BN are taken, where the own table is misprinted.
    """

    base: str
    label: str
    grid: str = ""

    def rows(self, scale: Scale) -> Sequence[Ablated]:
        """Return the rows of the paper's table that a scale has.

        Args:
            scale: How much of it is run.
        """
        rows = published.ablation(self.grid or self.label)
        if scale.name != "smoke":
            return rows
        return [rows[0], next(row for row in rows if all(row.setting))]

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs that it needs (see `Experiment`)."""
        return tuple(recipe for row in self.rows(scale) for recipe in self._seeds(row, scale))

    def _seeds(self, row: Ablated, scale: Scale) -> list[Recipe]:
        """Return the runs of one row, one per seed."""
        penalty = {"normalized": False, "strength": row.strength}
        optimizer = {"weight_decay": row.weight_decay, "decay_batch_norm": row.decay_batch_norm}
        return [
            scale.adapt(setting(self.base, penalty=penalty, optimizer=optimizer, seed=seed)) for seed in scale.seeds
        ]

    def results(self, context: Context) -> Results:
        """Make the tables of accuracy and energy and of activity (see `Experiment`)."""
        rows = self.rows(context.scale)
        printed = {row.setting: row for row in published.ablation(self.label)}
        tests = context.tests(self._seeds(rows[0], context.scale))
        baseline = [test.joules for test in tests if test.joules is not None]
        joules = statistics.fmean(baseline) if baseline else 0.0
        made = [
            (row, _measured(context.tests(self._seeds(row, context.scale)), joules), printed.get(row.setting))
            for row in rows
        ]
        names = {"accuracy": "accuracy", "energy": "energy / baseline", "dead_rate": "dead rate", "rate": "R"}
        return Results(
            {
                "energy": self._sheet(made, {key: names[key] for key in ("accuracy", "energy")}),
                "activity": self._sheet(made, {key: names[key] for key in ("dead_rate", "rate")}),
            }
        )

    def _sheet(
        self, made: list[tuple[Ablated, dict[str, Estimate | None], Ablated | None]], names: dict[str, str]
    ) -> Sheet:
        triples = {key: comparison.columns(name, " [%]", scale=_PERCENT) for key, name in names.items()}
        misprinted = published.is_misprinted(self.label)
        lines: list[tuple[Cell, ...]] = []
        for row, ours, paper in made:
            line: list[Cell] = [f"{row.strength:.0e}" if row.strength else "0"]
            line += [f"{row.weight_decay:.0e}" if row.weight_decay else "0", str(int(row.decay_batch_norm))]
            for key, (column, *_) in triples.items():
                line += comparison.cells(ours[key], getattr(paper, key, None), column, misprinted)
            lines.append(tuple(line))
        first = (Column("λ"), Column("λ_WD"), Column("B_BN"))
        return Sheet((*first, *(column for triple in triples.values() for column in triple)), tuple(lines))


def _measured(tests: list[SplitResult], baseline: float) -> dict[str, Estimate | None]:
    """Return the figures of one row over its seeds; None where no run is finished."""

    def over_seeds(values: Iterable[float | None]) -> Estimate | None:
        known = [value for value in values if value is not None]
        return Estimate.of(known) if known else None

    return {
        "accuracy": over_seeds(test.accuracy for test in tests),
        "energy": over_seeds([test.joules / baseline for test in tests if test.joules is not None] if baseline else []),
        "dead_rate": over_seeds(test.dead_rate for test in tests),
        "rate": over_seeds(test.rate_mean for test in tests),
    }
