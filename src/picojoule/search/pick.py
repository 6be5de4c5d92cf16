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

from picojoule.energy.units import format_joules, parse_joules
from picojoule.errors import PicojouleError
from picojoule.runs.folder import Run, find_runs
from picojoule.runs.result import RunResult, Split

_SPLITS: tuple[Split, ...] = ("validation", "test")
_FIGURES = ("accuracy", "joules", "synops", "rate_mean", "dead_rate")
NEAREST = 3


@dataclass(frozen=True)
class Limits:
    """What a network must satisfy; None is no limit."""

    max_loss: float | None = None
    """Fraction of accuracy below the baseline."""
    max_joules: float | None = None
    max_share: float | None = None
    """Energy as a share of the baseline's."""
    min_accuracy: float | None = None

    @classmethod
    def read(cls, max_loss: float | None, max_energy: str | None, min_accuracy: float | None) -> Limits:
        """From the command line: points of accuracy, an energy with its unit or a percentage, percent.

        >>> Limits.read(None, "2uJ", 88)
        Limits(max_loss=None, max_joules=2e-06, max_share=None, min_accuracy=0.88)
        """
        if max_loss is None and max_energy is None and min_accuracy is None:
            raise PicojouleError("nothing to choose by: give --max-loss, --max-energy or --min-accuracy")
        if max_loss is not None and not 0 <= max_loss <= 100:
            raise PicojouleError(f"--max-loss {max_loss:g} is no number of points: take one from 0 to 100")
        if min_accuracy is not None and not 1 < min_accuracy <= 100:
            raise PicojouleError(f"--min-accuracy {min_accuracy:g} is no percentage: take one above 1 and up to 100")
        joules = share = None
        if max_energy is not None and max_energy.strip().endswith("%"):
            share = _percentage(max_energy)
        elif max_energy is not None:
            joules = parse_joules(max_energy)
        return cls(
            None if max_loss is None else max_loss / 100,
            joules,
            share,
            None if min_accuracy is None else min_accuracy / 100,
        )

    @property
    def on_accuracy(self) -> bool:
        return self.max_loss is not None or self.min_accuracy is not None


def _percentage(text: str) -> float:
    try:
        share = float(text.strip()[:-1]) / 100
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share > 0):
        raise PicojouleError(f"--max-energy {text!r} is no percentage: write a number above 0 and %, as in '30%'")
    return share


@dataclass(frozen=True)
class Network:
    """One recipe, trained with one or several seeds."""

    runs: tuple[Run, ...]
    results: tuple[RunResult, ...]
    penalised: bool

    def figures(self, split: Split, key: str) -> list[float]:
        return [getattr(result.on(split), key) for result in self.results]

    def mean(self, split: Split, key: str) -> float:
        return statistics.fmean(self.figures(split, key))

    def spread(self, split: Split, key: str) -> float | None:
        """The sample standard deviation over seeds; None for a single one."""
        return statistics.stdev(self.figures(split, key)) if len(self.runs) > 1 else None

    @property
    def best(self) -> Run:
        """The seed that is most accurate on the validation images."""
        accuracies = self.figures("validation", "accuracy")
        return self.runs[accuracies.index(max(accuracies))]

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": [str(run.path) for run in self.runs],
            "best": str(self.best.path),
            **{s: {k: {"mean": self.mean(s, k), "spread": self.spread(s, k)} for k in _FIGURES} for s in _SPLITS},
        }


@dataclass(frozen=True)
class Miss:
    """A network that fails a limit, and by how much."""

    network: Network
    accuracy: float
    """Missing fraction of accuracy."""
    joules: float
    """Joules too many."""

    def __str__(self) -> str:
        missing = f"{100 * self.accuracy:.2f} points of accuracy too few" if self.accuracy > 0 else ""
        surplus = f"{format_joules(self.joules)} too many" if self.joules > 0 else ""
        return f"{self.network.best.path.name}: {' and '.join(filter(None, (missing, surplus)))}"


@dataclass(frozen=True)
class Choice:
    """The network that was picked, or those that came nearest."""

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
        form = "nir" if best.recipe.neuron.kind == "spike" else "onnx"  # NIR has no node for the other neurons
        return f"picojoule export {shlex.quote(str(best.path))} --to {form}"

    @property
    def lacks_weights(self) -> str | None:
        """Why the network chosen cannot be used as it is; None if it can."""
        if self.chosen is None or self.chosen.best.has_weights:
            return None
        path = self.chosen.best.path
        return (
            f"{path} has no weights.safetensors, so it cannot be exported or evaluated: bring the file back, or train "
            f"it again with `picojoule train {shlex.quote(str(path / 'recipe.toml'))} --into ANOTHER_FOLDER`"
        )

    def to_dict(self) -> dict[str, Any]:
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
        """The bill of the network chosen, on the test split, beside the baseline's."""
        assert self.chosen is not None
        columns = {"chosen": self.chosen} | ({"baseline": self.baseline} if self.baseline is not None else {})
        table = Table(title=f"{self.chosen.best.path.name}: the bill on the test split")
        for heading in ("", *columns):
            table.add_column(heading, justify="right" if heading else "left")
        rows: tuple[tuple[str, Callable[[Network], str]], ...] = (
            ("accuracy", lambda n: _shown(n, "accuracy", lambda x: f"{x:.2%}")),
            ("energy per image", lambda n: _shown(n, "joules", format_joules)),
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
    spread = network.spread("test", key)
    return form(network.mean("test", key)) + ("" if spread is None else f" ± {form(spread)}")


def pick(folder: str | os.PathLike[str], limits: Limits) -> Choice:
    """The cheapest network that satisfies the limits; the most accurate one where only energy is limited."""
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
        return Choice(limits, len(networks), baseline, None, _nearest(misses))
    if limits.on_accuracy:
        return Choice(limits, len(networks), baseline, min(good, key=lambda n: n.mean("validation", "joules")))
    return Choice(limits, len(networks), baseline, max(good, key=lambda n: n.mean("validation", "accuracy")))


def _miss(network: Network, limits: Limits, baseline: Network | None) -> Miss:
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
    """First those that fail one limit only, by how little they fail it, then the others."""

    def order(miss: Miss) -> tuple[int, float]:
        joules = miss.network.mean("validation", "joules")
        excess = math.log(joules / (joules - miss.joules)) if 0 < miss.joules < joules else float(miss.joules > 0) * 99
        return (miss.accuracy > 0) + (miss.joules > 0), miss.accuracy + excess / 10

    return tuple(sorted(misses, key=order)[:NEAREST])


def gather(folder: str | os.PathLike[str]) -> list[Network]:
    """Every finished spiking network in or below a folder, seeds together."""
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
        groups.setdefault(_but_for_the_seed(run), []).append(run)
    return [
        Network(tuple(same), tuple(run.result for run in same), same[0].recipe.penalised) for same in groups.values()
    ]


def _scale(run: Run) -> str:
    """What figures must have in common to be compared, in words."""
    data, energy = run.recipe.data, run.recipe.energy
    parts = [(data.limit_validation, "validation"), (data.limit_test, "test")]
    images = "".join(f", {limit} {part} images" for limit, part in parts if limit is not None)
    return f"{data.name}{images}, ψ {energy.psi}, {energy.hardware}"


def _spends(run: Run) -> bool:
    return run.result.validation.joules is not None


def _but_for_the_seed(run: Run) -> str:
    """What the runs of one network share; a run that it starts from counts by what it is, not by its name."""
    content = run.recipe.model_dump(exclude_none=True)
    del content["seed"]
    for section, key in (("training", "start_from"), ("penalty", "reference")):
        name = content[section].get(key)
        other = Run(run.path.parent / name) if name else None
        if other is not None and other.exists:
            content[section][key] = _but_for_the_seed(other)
    return json.dumps(content, sort_keys=True)
