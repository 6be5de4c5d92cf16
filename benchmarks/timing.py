"""Timing on a noisy machine: contestants take turns, ratios are taken within each turn, medians are reported."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import track

from picojoule.kernels.event_driven.calibration import processor_name
from picojoule.kernels.torch_private import cpu_has_bfloat16

console = Console(soft_wrap=True)


def quartiles(values: Sequence[float], digits: int = 2) -> str:
    """The median, and in brackets the quartiles, as a cell of a table; one value alone stands for itself."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f} – {high:.{digits}f})"


@dataclass(frozen=True)
class Timings:
    """Seconds of every turn, by contestant."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def cell(self, name: str, base: str) -> str:
        """The median of name : base with its quartiles, as a cell of a table."""
        return quartiles([a / b for a, b in zip(self.seconds[name], self.seconds[base], strict=True)])

    def ratio(self, name: str, base: str) -> tuple[float, float, float]:
        """Quartiles of name : base, each ratio taken within one turn."""
        ratios = [a / b for a, b in zip(self.seconds[name], self.seconds[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, middle, high

    def line(self, name: str, base: str) -> str:
        """The ratio of the medians, with the quartiles of the single turns' ratios to show the noise."""
        low, _, high = self.ratio(name, base)
        seconds = f"{self.median(name):.4f} s : {self.median(base):.4f} s"
        overall = self.median(name) / self.median(base)
        return f"{name} : {base} = {overall:.3f} (single turns: quartiles {low:.3f} – {high:.3f}); {seconds}"


Clock = Callable[[], float]


def interleaved(
    contestants: Mapping[str, Callable[[], object]],
    turns: int,
    warmup: int = 2,
    title: str = "",
    clock: Clock = time.perf_counter,
) -> Timings:
    """Run everybody once a turn, in alternating order, so that drift and neighbours hit all alike.

    On a machine that others use, the clock may be the processor time of a process of one thread.
    """
    for _ in range(warmup):
        for run in contestants.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in track(range(turns), description=title, console=Console(stderr=True), transient=True):
        order = list(contestants) if turn % 2 == 0 else list(reversed(contestants))
        for name in order:
            start = clock()
            contestants[name]()
            seconds[name].append(clock() - start)
    return Timings(seconds)


def describe_machine() -> str:
    """One line for the top of every result."""
    capability = torch.backends.cpu.get_cpu_capability()
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}"
    bfloat16 = f"bfloat16 {'native' if cpu_has_bfloat16() else 'emulated'}"
    cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return f"{processor_name()} ({platform.machine()}), {cores}, {capability}, {bfloat16}, {versions}"
