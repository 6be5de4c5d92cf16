"""Choosing a network: the cheapest, or the most accurate, of all trained ones that satisfies the limits given.

Convention: the choice is made on validation figures, averaged over seeds (runs whose recipes differ only in the seed
are one network); the bill is that of the test split. Accuracies are fractions in data and percent in words. The
baseline is the most accurate network without a penalty in the folder.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError
from picojoule.io import packs
from picojoule.io.factories import is_factory
from picojoule.io.tables import Estimate
from picojoule.runs.folder import Run, find_runs
from picojoule.runs.result import RunResult, Split
from picojoule.search.limits import Limits

_SPLITS: tuple[Split, ...] = ("validation", "test")
_FIGURES = ("accuracy", "joules", "synops", "rate_mean", "dead_rate")
NEAREST = 3
"""How many networks are named where none satisfies the limits."""


@dataclass(frozen=True)
class Network:
    """One recipe, trained with one or several seeds.

    Attributes:
        runs: One run per seed.
        results: Their results, in the same order.
        penalised: Whether anything but accuracy was trained for.
    """

    runs: tuple[Run, ...]
    results: tuple[RunResult, ...]
    penalised: bool

    def figures(self, split: Split, key: str) -> list[float]:
        """Return one figure of every seed.

        Args:
            split: "validation" or "test".
            key: Its key in `result.json`.
        """
        return [getattr(result.on(split), key) for result in self.results]

    def mean(self, split: Split, key: str) -> float:
        """Return the mean of a figure over seeds.

        Args:
            split: "validation" or "test".
            key: Its key in `result.json`.
        """
        return statistics.fmean(self.figures(split, key))

    def spread(self, split: Split, key: str) -> float | None:
        """Return the sample standard deviation of a figure over seeds; None for a single seed.

        Args:
            split: "validation" or "test".
            key: Its key in `result.json`.
        """
        return statistics.stdev(self.figures(split, key)) if len(self.runs) > 1 else None

    def total(self, split: Split) -> Estimate | None:
        """Return what the network costs with all that is not spikes, over seeds; None where a part has no price.

        Args:
            split: "validation" or "test".
        """
        totals = [result.on(split).total_joules for result in self.results]
        known = [total for total in totals if total is not None]
        return Estimate.of(known) if len(known) == len(totals) else None

    @property
    def best(self) -> Run:
        """The seed that is most accurate on the validation images."""
        accuracies = self.figures("validation", "accuracy")
        return self.runs[accuracies.index(max(accuracies))]

    def to_dict(self) -> dict[str, Any]:
        """Return runs and figures as plain values: mean and spread over seeds, on both splits."""
        return {
            "runs": [str(run.path) for run in self.runs],
            "best": str(self.best.path),
            **{split: self._figures(split) for split in _SPLITS},
        }

    def _figures(self, split: Split) -> dict[str, Any]:
        total = self.total(split)
        return {
            **{key: {"mean": self.mean(split, key), "spread": self.spread(split, key)} for key in _FIGURES},
            "total_joules": total and {"mean": total.mean, "spread": total.deviation},
        }


@dataclass(frozen=True)
class Miss:
    """A network that fails a limit, and by how much.

    Attributes:
        network: The network.
        accuracy: Missing fraction of accuracy.
        joules: Joules too many.
    """

    network: Network
    accuracy: float
    joules: float

    def __str__(self) -> str:
        missing = f"{100 * self.accuracy:.2f} points of accuracy too few" if self.accuracy > 0 else ""
        surplus = f"{format_joules(self.joules)} too many" if self.joules > 0 else ""
        return f"{self.network.best.path.name}: {' and '.join(filter(None, (missing, surplus)))}"


@dataclass(frozen=True)
class Pick:
    """The network that was chosen, or those that came nearest.

    Attributes:
        limits: What was asked for.
        networks: How many there were to choose from.
        baseline: The most accurate network without a penalty; None where there is none.
        chosen: The network; None where none satisfies the limits.
        nearest: Where none does, those that came nearest.
    """

    limits: Limits
    networks: int
    baseline: Network | None
    chosen: Network | None
    nearest: tuple[Miss, ...] = ()

    @property
    def export(self) -> str | None:
        """The command that exports the network chosen; None where there is nothing to export."""
        if self.chosen is None or self.lacks_weights is not None:
            return None
        best = self.chosen.best
        form = "nir" if best.recipe.neuron.kind == "spike" else "onnx"  # NIR takes few of the other neurons
        trust = " --trust" if is_factory(best.recipe.model.name) else ""
        return f"picojoule export {shlex.quote(str(best.path))} --to {form}{trust}"

    @property
    def lacks_weights(self) -> str | None:
        """Why the network chosen cannot be used as it is; None if it can."""
        if self.chosen is None or self.chosen.best.has_weights:
            return None
        path = self.chosen.best.path
        if packs.split(path) is not None:
            return (
                f"{path} is in a pack, which keeps no weights, so it cannot be exported or evaluated: train it again "
                f"with `picojoule train {shlex.quote(str(path / 'recipe.toml'))} --into ANOTHER_FOLDER`"
            )
        return (
            f"{path} has no weights.safetensors, so it cannot be exported or evaluated: bring the file back, or train "
            f"it again with `picojoule train {shlex.quote(str(path / 'recipe.toml'))} --into ANOTHER_FOLDER`"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain values, as `picojoule pick --json` prints it."""
        return {
            "satisfied": self.chosen is not None,
            "networks": self.networks,
            "chosen": self.chosen and self.chosen.to_dict(),
            "baseline": self.baseline and self.baseline.to_dict(),
            "nearest": [
                {"accuracy_missing": miss.accuracy, "joules_too_many": miss.joules, **miss.network.to_dict()}
                for miss in self.nearest
            ],
            "export": self.export,
        }

    def table(self) -> Table:
        """Return the figures of the chosen network on the test split, beside the baseline's, for the terminal."""
        assert self.chosen is not None
        columns = {"chosen": self.chosen} | ({"baseline": self.baseline} if self.baseline is not None else {})
        table = Table(title=f"{self.chosen.best.path.name}: the bill on the test split")
        for heading in ("", *columns):
            table.add_column(heading, justify="right" if heading else "left")
        rows: tuple[tuple[str, Callable[[Network], str]], ...] = (
            ("accuracy", lambda n: _shown(n, "accuracy", lambda x: f"{x:.2%}")),
            ("energy per image", lambda n: _shown(n, "joules", format_joules)),
            ("everything together", lambda n: _with_spread(n.total("test"), format_joules)),
            ("synaptic operations", lambda n: _shown(n, "synops", lambda x: f"{x:,.0f}")),
            ("mean firing rate", lambda n: _shown(n, "rate_mean", lambda x: f"{x:.2%}")),
            ("dead neurons", lambda n: _shown(n, "dead_rate", lambda x: f"{x:.2%}")),
            ("seeds", lambda n: str(len(n.runs))),
        )
        for label, cell in rows:
            table.add_row(label, *(cell(network) for network in columns.values()))
        if self.baseline is not None and self.baseline.mean("test", "joules"):
            share = self.chosen.mean("test", "joules") / self.baseline.mean("test", "joules")
            table.add_row("share of the baseline's energy", f"{share:.1%}", "100.0%")
        return table


def _shown(network: Network, key: str, form: Callable[[float], str]) -> str:
    """Write the mean of a figure on the test split, with its spread over seeds."""
    return _with_spread(Estimate.of(network.figures("test", key)), form)


def _with_spread(estimate: Estimate | None, form: Callable[[float], str]) -> str:
    """Write a mean with its spread over seeds."""
    if estimate is None:
        return "not priced"
    return form(estimate.mean) + ("" if estimate.deviation is None else f" ± {form(estimate.deviation)}")


def pick(folder: str | os.PathLike[str], limits: Limits) -> Pick:
    """Choose the cheapest network that satisfies the limits; the most accurate one where only energy is limited.

    Args:
        folder: A folder in or below which finished runs are.
        limits: What the network must satisfy on the validation images, averaged over seeds.

    Returns:
        The choice, or the networks that came nearest.

    Raises:
        PicojouleError: If there is no finished run, figures cannot be compared, or a baseline is wanted and missing.

    >>> choice = pick(finished_run.path.parent, Limits(max_joules=1.0))  # a folder of runs
    >>> choice.chosen.best.path == finished_run.path
    True
    """
    networks = gather(folder)
    plain = [network for network in networks if not network.penalised]
    baseline = max(plain, key=lambda n: n.mean("validation", "accuracy"), default=None)
    if baseline is None and (limits.max_loss is not None or limits.max_share is not None):
        raise PicojouleError(
            f"{os.fspath(folder)} holds no network without a penalty to compare with: train one with "
            "penalty.strength=0 into it, or give --max-energy in joules and --min-accuracy"
        )
    misses = [_miss(network, limits, baseline) for network in networks]
    good = [miss.network for miss in misses if miss.accuracy <= 0 and miss.joules <= 0]
    if not good:
        return Pick(limits, len(networks), baseline, None, _nearest(misses))
    if limits.on_accuracy:
        return Pick(limits, len(networks), baseline, min(good, key=lambda n: n.mean("validation", "joules")))
    return Pick(limits, len(networks), baseline, max(good, key=lambda n: n.mean("validation", "accuracy")))


def _miss(network: Network, limits: Limits, baseline: Network | None) -> Miss:
    """Say by how much a network fails the limits; 0 where it satisfies them."""
    accuracies, energies = [limits.min_accuracy or 0.0], [math.inf if limits.max_joules is None else limits.max_joules]
    if baseline is not None and limits.max_loss is not None:
        accuracies.append(baseline.mean("validation", "accuracy") - limits.max_loss)
    if baseline is not None and limits.max_share is not None:
        energies.append(baseline.mean("validation", "joules") * limits.max_share)
    missing = max(accuracies) - network.mean("validation", "accuracy")
    surplus = network.mean("validation", "joules") - min(energies)
    # A limit that was written as a decimal fraction must not fail by its last binary digit.
    return Miss(network, missing if missing > 1e-12 else 0.0, surplus if surplus > 1e-24 else 0.0)


def _nearest(misses: Sequence[Miss]) -> tuple[Miss, ...]:
    """Sort by how little a network fails, those first that fail one limit only."""

    def order(miss: Miss) -> tuple[int, float]:
        joules = miss.network.mean("validation", "joules")
        excess = math.log(joules / (joules - miss.joules)) if 0 < miss.joules < joules else float(miss.joules > 0) * 99
        return (miss.accuracy > 0) + (miss.joules > 0), miss.accuracy + excess / 10

    return tuple(sorted(misses, key=order)[:NEAREST])


def gather(folder: str | os.PathLike[str]) -> list[Network]:
    """Find every finished spiking network in or below a folder, with its seeds together.

    Args:
        folder: The folder.

    Returns:
        The networks.

    Raises:
        PicojouleError: If there is none, or their figures cannot be compared.
    """
    runs = [run for run in find_runs(folder) if run.exists and run.finished and _spends(run)]
    if not runs:
        raise PicojouleError(
            f"{os.fspath(folder)} holds no finished run of a spiking network: name a folder that `picojoule train`, "
            "`sweep` or `frontier` filled"
        )
    scales = {_scale(run) for run in runs}
    if len(scales) > 1:
        raise PicojouleError(
            f"{os.fspath(folder)} holds networks whose figures cannot be compared ({'; '.join(sorted(scales))}): name "
            "a folder, such as the one that `frontier --into` filled, with one data set, one psi and one hardware"
        )
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_identity_without_seed(run), []).append(run)
    return [
        Network(tuple(same), tuple(run.result for run in same), same[0].recipe.penalised) for same in groups.values()
    ]


def _scale(run: Run) -> str:
    """Say in words what figures must have in common to be compared."""
    data, energy = run.recipe.data, run.recipe.energy
    parts = [(data.limit_validation, "validation"), (data.limit_test, "test")]
    images = "".join(f", {limit} {part} images" for limit, part in parts if limit is not None)
    return f"{data.name}{images}, ψ {energy.psi}, {energy.hardware}"


def _spends(run: Run) -> bool:
    """Return whether a run is of a spiking network, which has an energy."""
    return run.result.validation.joules is not None


def _identity_without_seed(run: Run) -> str:
    """Return what the runs of one network share; a run that it starts from counts by what it is, not by its name."""
    content = run.recipe.model_dump(exclude_none=True)
    del content["seed"]
    for section, key in (("training", "start_from"), ("penalty", "reference")):
        name = content[section].get(key)
        other = Run.named(name, run.path.parent) if name else None
        if other is not None and other.exists:
            content[section][key] = _identity_without_seed(other)
    return json.dumps(content, sort_keys=True)
