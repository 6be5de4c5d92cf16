"""What a second worker brings: runs per hour of two workers with one core each against one worker with one core.

python benchmarks/sweep.py [--runs 4] [--turns 3]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial

from timing import console, describe_machine, interleaved

import picojoule as pj
from picojoule.search.sweep import Job

RECIPE = """
model.name = "cnn7"
data.name = "digits"
data.limit = 100
training.epochs = 1
training.batch_size = 50
training.precision = "32"
training.threads = 1
[[axes]]
seed = {seeds}
"""


class Nobody:
    """A watcher that does not look."""

    def begin(self, jobs: Sequence[Job]) -> None: ...
    def change(self, job: Job) -> None: ...
    def progress(self, job: Job) -> None: ...
    def say(self, job: Job, text: str) -> None: ...
    def end(self) -> None: ...


def sweep(recipes: Sequence[pj.Recipe], workers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="picojoule-sweep-") as folder:
        outcome = pj.sweep.run(recipes, folder, workers=workers, watcher=Nobody())
        assert len(outcome.runs) == len(recipes), outcome.failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    recipes = pj.sweep.loads(RECIPE.format(seeds=list(range(options.runs))))
    one, two = "one worker", "two workers"
    console.print(f"{describe_machine()}; {options.runs} runs of CNN7 on 100 images, 1 epoch, one thread each")
    sweep(recipes[:2], 2)  # starts the server that workers are forked from
    times = interleaved(
        {one: partial(sweep, recipes, 1), two: partial(sweep, recipes, 2)}, options.turns, warmup=0, title="sweeps"
    )
    hourly = {name: options.runs * 3600 / times.median(name) for name in (one, two)}
    for name, rate in hourly.items():
        console.print(f"{name:12} {rate:.0f} runs an hour")
    console.print(f"time: {times.line(one, two)}")


if __name__ == "__main__":
    main()
