"""Commands that train: one network, many, a whole curve, or the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from picojoule.cli.options import Address, AsJson, On, Overrides, RunsInto, Workers, one_of
from picojoule.cli.streams import note, show, show_json, show_path, standard_output_kept, transfer_bar
from picojoule.data import runs_code
from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.search import sweep as sweeping
from picojoule.search.frontier import Plan, Schedule, frontier
from picojoule.search.sweep import Where
from picojoule.training import fit
from picojoule.training.display import Display, TensorBoard
from picojoule.training.reporters import Reporter


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML), or the name of a shipped one.")],
    overrides: Overrides = None,
    into: RunsInto = Path("runs"),
    budget: Annotated[
        str | None, typer.Option(help="The energy to end with, in place of a strength: 30% of the unpenalised, or 2uJ.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Never end above the budget, not even by 3 %.")] = False,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[int, typer.Option(help="How many devices share each batch.")] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log for TensorBoard too.")] = False,
) -> None:
    """Train one network; the same command again resumes it. The last line printed is the run's folder.

    Example: `picojoule train small/cnn7-fashion-mnist penalty.strength=64 seed=3`

    Example: `picojoule train small/cnn7-fashion-mnist --budget 30%`
    """
    reporters: list[Reporter] = [Display(), *([TensorBoard()] if tensorboard else [])]
    changes = [*(overrides or ())]
    if budget is not None:  # the strength of the file gives way, one on the command line would contradict it
        if any(change.partition("=")[0].strip() == "penalty.budget" for change in changes):
            raise PicojouleError("--budget and penalty.budget=… say the same: give one of the two")
        changes = ["penalty.strength=0", *changes, f"penalty.budget={budget}"]
    if strict:
        changes.append("penalty.strict=true")
    run = fit.fit(Recipe.load(recipe, *changes), into, reporters=reporters, accelerator=accelerator, devices=devices)
    test = run.result.test
    energy = "" if test.joules is None else f", {format_joules(test.joules)} per image"
    if test.total_joules is not None:
        energy += f" ({format_joules(test.total_joules)} with all that is not spikes)"
    foreign = ":" in run.recipe.model.name or runs_code(run.recipe.data.name)
    consent = " --trust" if foreign else ""
    note(f"test: accuracy {test.accuracy:.1%}{energy}; layer by layer: picojoule evaluate {run.path}{consent}")
    show_path(run.path)


def sweep(
    file: Annotated[Path, typer.Argument(help="A recipe with `[[axes]]` (TOML).")],
    overrides: Overrides = None,
    into: RunsInto = Path("runs"),
    workers: Workers = None,
    on: On = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Train every run of a sweep, several at once; the same command again does only what is missing.

    Example: `picojoule sweep smoke/digits-sweep training.epochs=4 --workers 2`
    """
    place: Where = one_of("--on", on, get_args(Where))
    with standard_output_kept():  # Ray prints what happens to its tasks
        outcome = sweeping.run(
            sweeping.load(file, *(overrides or ())),
            into,
            workers=workers,
            on=place,
            address=address,
        )
    if as_json:
        show_json(outcome.to_dict())
    else:
        show(outcome.table())
    for failure in outcome.failures:
        note(f"picojoule: {failure.recipe.name} failed: {failure.reason}")
    if outcome.failures:
        raise typer.Exit(1)


def walk_frontier(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML); its strength plays no part.")],
    overrides: Overrides = None,
    into: RunsInto = Path("runs"),
    points: Annotated[int, typer.Option(help="At most so many, the baseline among them.")] = 11,
    first: Annotated[float, typer.Option(help="The strength of the first point after the baseline.")] = 2.0,
    ratio: Annotated[float, typer.Option(help="By which it is multiplied from point to point.")] = 2.0,
    stretch: Annotated[int | None, typer.Option(help="Epochs of each point; by default, for 2.5 runs in all.")] = None,
    schedule: Annotated[str, typer.Option(help="restarts, steps or ramp.")] = "restarts",
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train the whole trade-off curve: the baseline, then a stretch at each of ever higher strengths.

    Each point is an ordinary run that begins where the one before ended; the same command again resumes.

    Example: `picojoule frontier small/cnn7-fashion-mnist training.epochs=10 --into frontier`
    """
    plan = Plan(points, first, ratio, stretch, one_of("--schedule", schedule, get_args(Schedule)))
    curve = frontier(
        Recipe.load(recipe, *(overrides or ())),
        into,
        plan,
        reporters=lambda title: (Display(title),),
        say=note,
        accelerator=accelerator,
    )
    if as_json:
        show_json(curve.to_dict())
    else:
        show(curve.table())


def run_demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the runs and the report go.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Train a network without and with the penalty, print the two bills, and write a report page. Takes minutes.

    Example: `picojoule demo --out demo`
    """
    from picojoule.cli.demo import demo  # brings the plotting library, which few commands need

    with transfer_bar() as progress:
        comparison = demo(folder, progress, note)
    if as_json:
        before, after = comparison.results
        show_json({"baseline": before.to_dict(), "penalised": after.to_dict(), "energy_ratio": comparison.energy_ratio})
    else:
        show(comparison.table())
        show_path(folder / "report.html")
        show_path(folder / "report.png")
