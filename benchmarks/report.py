"""What a report on many runs costs: the time to make it, and the time until it is open in a browser.

python benchmarks/report.py [--runs 2000] [--epochs 150] [--folder KEPT]

The run folders are made up. A browser is looked for as in the tests; without one only the making is timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import count, product
from pathlib import Path

from rich.progress import track
from timing import console, describe_machine

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
import browser
import picojoule as pj
import synthetic
from picojoule import report

OPENINGS = 5


def recipes(runs: int, epochs: int) -> list[pj.Recipe]:
    """Four settings of six curves each, with as many seeds as it takes."""
    base = pj.Recipe.loads(synthetic.RECIPE.format(epochs=epochs))
    strengths = [0, *(2**i for i in range(14))]
    made = []
    for seed in count():
        for decay, strength, kind, p in product((0, 1e-5, 1e-4, 1e-3), strengths, synthetic.REACH, (1, 2)):
            if strength or (kind, p) == ("syn", 1):
                penalty = {"strength": strength, "kind": kind, "p": p}
                made.append(base.with_values(optimizer={"weight_decay": decay}, penalty=penalty, seed=seed))
                if len(made) == runs:
                    return made
    raise AssertionError("count() ends never")


def fill(folder: Path, runs: int, epochs: int) -> None:
    for recipe in track(recipes(runs, epochs), description="making up runs", transient=True):
        if not (folder / recipe.name).exists():
            synthetic.write(folder, recipe)


def opening(page: Path) -> list[float]:
    """Seconds until every chart is drawn, in a fresh window each time."""
    seconds = []
    for _ in range(OPENINGS):
        with browser.find().opened() as driver:
            start = time.perf_counter()
            driver.get(page.as_uri())
            while driver.execute_script("return document.documentElement.dataset.ready") != "yes":
                time.sleep(0.01)
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--folder", type=Path, help="made-up runs that are kept for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "runs"
        fill(folder, options.runs, options.epochs)
        console.print(f"{describe_machine()}; {options.runs} runs of {options.epochs} epochs")
        start = time.perf_counter()
        written = report.write(folder, Path(scratch) / "report")
        console.print(
            f"made in {time.perf_counter() - start:.1f} s (limit 30): {written.page.stat().st_size / 1e6:.1f} MB page, "
            f"{len(written.files)} figures and tables"
        )
        try:
            seconds = opening(written.page)
        except browser.NoBrowser as reason:
            console.print(f"not opened: {reason}")
            return
        console.print(f"open in {seconds[OPENINGS // 2]:.2f} s (limit 3), {seconds[0]:.2f} – {seconds[-1]:.2f} s")


if __name__ == "__main__":
    main()
