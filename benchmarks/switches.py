"""What each native trick gains in a training step: the step as it is against the step without that trick.

(a) time, all taking turns
(b) page faults of a step (Linux)
(c) peak memory of a step, each in a process of its own (Linux)

The tricks are those of `picojoule.kernels.switches`, each switched off by its environment variable. A step is forward,
backward and Adam on 100 images, with Ω_syn, channels last; four steps are one turn, during which freed memory stays
with the process, as in `picojoule train`.

python benchmarks/switches.py [--models vgg11] [--precision fp32] [--measures time faults memory] [--turns 9]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import peak
from timing import console, describe_machine, interleaved

import picojoule as pj
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.switches import Switch
from training import BATCH, Step, contestant

STEPS = 4
AS_IT_IS = "as it is"
MEASURES = ("time", "faults", "memory")


@contextmanager
def without(switch: Switch | None) -> Iterator[None]:
    """Switch one of them off while the block runs."""
    if switch is not None:
        os.environ[switch.value] = "0"
    try:
        yield
    finally:
        if switch is not None:
            del os.environ[switch.value]


def turn(step: Step, switch: Switch | None) -> Callable[[], None]:
    def steps() -> None:
        with without(switch), retain_freed_memory():
            for _ in range(STEPS):
                step()

    return steps


def called(switch: Switch | None) -> str:
    return AS_IT_IS if switch is None else f"{switch.value}=0"


def contestants(name: str, precision: str) -> dict[str, Callable[[], None]]:
    return {called(switch): turn(contestant("ours", name, precision), switch) for switch in (None, *Switch)}


def faults(name: str, precision: str, switch: Switch | None) -> float:
    """Pages per step that the system had to give to a process that has taken some steps already."""
    import resource  # not on Windows

    def given() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    step = contestant("ours", name, precision)
    with without(switch), retain_freed_memory():
        for _ in range(STEPS):
            step()
        before = given()
        for _ in range(STEPS):
            step()
        return (given() - before) / STEPS


def build(switch: Switch | None, name: str, precision: str) -> Step:
    if switch is not None:  # for as long as the process lives
        os.environ[switch.value] = "0"
    return contestant("ours", name, precision)


def report(name: str, precision: str, measures: list[str], turns: int) -> None:
    title = f"{name:9} {precision}"
    if "time" in measures:
        times = interleaved(contestants(name, precision), turns, title=title)
        for who in map(called, Switch):
            console.print(f"{title} (a) {times.line(who, AS_IT_IS)}")
    for switch in (None, *Switch):
        if "faults" in measures:
            console.print(f"{title} (b) {called(switch)}: {faults(name, precision, switch):.0f} page faults per step")
        if "memory" in measures:
            grown = peak.growth(build, switch, name, precision, warmup=2)
            console.print(f"{title} (c) {called(switch)}: {grown / 2**20:.0f} MiB at the peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vgg11"], choices=pj.zoo.names())
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--measures", nargs="+", default=list(MEASURES), choices=MEASURES)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    console.print(f"{describe_machine()}; batch {BATCH}, forward, backward and Adam")
    for name in options.models:
        report(name, options.precision, options.measures, options.turns)


if __name__ == "__main__":
    main()
