"""Write a page with a row for each recipe that was trained: minutes, memory, accuracy and energy, failures among them.

    python scripts/recipe_table.py results results/recipes.md

Seeds of one recipe share a row. Minutes are those of training and say on how many threads; memory is the most that the
process held, where the run noted it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from pathlib import Path

from picojoule.energy.units import format_joules
from picojoule.io.files import write_atomically
from picojoule.io.packs import SUFFIX
from picojoule.report import Entry, gather
from picojoule.report.curve import budget_label

_HEAD = """# Every recipe that was trained

Made by `python scripts/recipe_table.py {folder} {out}` from the packs in `{folder}`, which have every
recipe in full. Accuracy and energy are means over seeds on the test images; minutes are the training's, on the threads
named, beside whatever else the machine did; memory is blank where the run did not note it. A row that failed or did not
finish says so.

| pack | network, data | images × epochs, batch, rate | penalty | seeds | threads | min | memory | accuracy | energy |
|---|---|---|---|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    lines = [_HEAD.format(folder=options.folder.name, out=options.out.as_posix())]
    for pack in sorted(options.folder.rglob(f"*{SUFFIX}")):
        name = pack.relative_to(options.folder).as_posix().removesuffix(SUFFIX)
        groups: dict[str, list[Entry]] = {}
        for entry in gather(pack):
            groups.setdefault(_row_key(entry), []).append(entry)
        lines += [f"| {name} | {key} {_outcome(entries)} |\n" for key, entries in groups.items()]
    write_atomically(options.out, "".join(lines).encode())
    print(f"{len(lines) - 1} rows")
    print(options.out)


def _row_key(entry: Entry) -> str:
    """The cells that say what was trained; runs that differ in the seed alone share them."""
    recipe = entry.recipe
    if recipe is None:
        return f"{entry.name} | | |"
    data, training, optimizer = recipe.data, recipe.training, recipe.optimizer
    neuron = recipe.neuron.surrogate if recipe.neuron.kind == "spike" else recipe.neuron.kind
    amount = f"{data.limit or 'all'} × {training.epochs}, {training.batch_size}, {optimizer.name} {optimizer.lr:g}"
    amount += " falling by the batch" if optimizer.anneal == "batches" else ""
    penalty = recipe.penalty
    if not recipe.penalised:
        wanted = "none"
    elif penalty.target is not None:
        wanted = f"target {penalty.target:.3g}"
    else:
        wanted = f"Ω_{penalty.kind}, p = {penalty.p:g}, {budget_label(recipe) or f'{penalty.strength:g}'}"
        wanted += "" if penalty.normalized else " (not normalised)"
    if optimizer.weight_decay != 1e-4:
        wanted += f", weight decay {optimizer.weight_decay:g}"
    if training.start_from is not None:
        wanted += ", continued"
    return f"{recipe.model.name} ({neuron}), {data.name} | {amount} | {wanted} |"


def _outcome(entries: list[Entry]) -> str:
    """The cells that say what came of it."""
    recipes = [entry.recipe for entry in entries if entry.recipe is not None]
    seeds = len({recipe.seed for recipe in recipes})
    threads = ", ".join(sorted({str(recipe.training.threads) for recipe in recipes}))
    minutes = _mean(sum(epoch.seconds for epoch in entry.training) / 60 for entry in entries if entry.training)
    peaks = [epoch.peak_bytes for entry in entries for epoch in entry.training if epoch.peak_bytes is not None]
    tests = [entry.test for entry in entries if entry.test is not None]
    spent = [test.joules for test in tests if test.joules is not None]
    if tests:
        accuracy, energy = f"{statistics.fmean(test.accuracy for test in tests):.1%}", format_joules(_or_none(spent))
    else:
        accuracy, energy = entries[0].state, entries[0].reason.replace("|", "/")
    memory = f"{max(peaks) / 1e9:.2f} GB" if peaks else ""
    shown = "" if minutes is None else f"{minutes:.1f}"
    return f"{seeds} | {threads} | {shown} | {memory} | {accuracy} | {energy}"


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


def _or_none(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


if __name__ == "__main__":
    main()
