"""The command line. Commands only: what they do lives in the modules they call."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NoReturn, get_args

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table
from torch import nn

import picojoule
from picojoule import data as datasets
from picojoule import engine, evaluation, export, zoo
from picojoule import sweep as sweeping
from picojoule.display import Display, TensorBoard
from picojoule.errors import PicojouleError, unknown
from picojoule.frontier import Plan, Schedule, frontier
from picojoule.interruption import Interrupted
from picojoule.pick import Limits, pick
from picojoule.recipe import Recipe
from picojoule.record import Run
from picojoule.rules import Psi
from picojoule.sweep import Where
from picojoule.synapse import trace
from picojoule.training import Reporter

app = typer.Typer(
    name="picojoule",
    help="Train spiking neural networks that spend less energy, and measure what they spend.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(picojoule.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None: ...


@app.command()
def profile(
    model: Annotated[str, typer.Argument(help="A model of the zoo, or `package.module:factory` of your own.")],
    psi: Annotated[str, typer.Option(help="How synapses are counted: exact, uniform or paper.")] = "exact",
    input_shape: Annotated[
        str | None,
        typer.Option("--input", help="Shape of one input, such as 3,32,32 (needed for a model of your own)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show ψ, neurons, synapses and Ω(1) of a network, layer by layer.

    Example: `picojoule profile cnn7 --psi uniform --json`

    Example: `picojoule profile mypackage.nets:build --input 3,32,32`
    """
    net, shape = _model(model, input_shape)
    with contextlib.redirect_stdout(sys.stderr):  # a model may print; standard output is the command's
        synapses = trace(net, torch.zeros(1, *shape), psi=_psi(psi))
    if as_json:
        print(json.dumps({"model": model, **synapses.to_dict()}, indent=2))
    else:
        Console().print(synapses.table())


@app.command("demo")
def run_demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the runs and the report go.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Train a network without and with the penalty, print the two bills, and write a report page. Takes minutes.

    Example: `picojoule demo --out demo`
    """
    from picojoule.demo import demo  # brings the plotting library, which few commands need

    with _transfer_bar() as progress:
        comparison = demo(folder, progress, _note)
    if as_json:
        before, after = comparison.results
        print(json.dumps({"baseline": before, "penalised": after, "energy_ratio": comparison.energy_ratio}, indent=2))
    else:
        Console().print(comparison.table())
        print(f"{folder / 'report.html'}\n{folder / 'report.png'}")


data_app = typer.Typer(
    help="Data sets: what is where, and getting one.\n\nExample: `picojoule data fetch fashion-mnist`"
)
app.add_typer(data_app, name="data", rich_help_panel="Commands")


@data_app.callback(invoke_without_command=True)
def data_list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the data sets, where each was found, and where it can be had.

    Example: `picojoule data`
    """
    if context.invoked_subcommand is not None:
        return
    listings = datasets.listing()
    if as_json:
        print(json.dumps([entry.to_dict() for entry in listings], indent=2))
        return
    table = Table()
    for column in ("data set", "what", "train / validation / test", "here", "can be had from"):
        table.add_column(column, overflow="fold")
    for entry in listings:
        sources = ", ".join(title if at_hand else f"{title} (tool not installed)" for title, at_hand in entry.sources)
        table.add_row(entry.name, entry.title, " / ".join(f"{n:,}" for n in entry.splits), entry.here or "–", sources)
    Console().print(table)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="fashion-mnist, cifar-10, cifar-100 or digits.")],
    folder: Annotated[Path | None, typer.Option("--from", help="A folder that may already hold the files.")] = None,
) -> None:
    """Get a data set, check it, and keep it in the cache.

    Example: `picojoule data fetch cifar-10 --from ~/Downloads`
    """
    with _transfer_bar() as progress:
        fetched = datasets.fetch(name, folder, progress=progress)
    print(fetched)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML).")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Changes to it.")] = None,
    into: Annotated[Path, typer.Option(help="The folder of run folders.")] = Path("runs"),
    budget: Annotated[
        str | None, typer.Option(help="The energy to end with, in place of a strength: 30% of the unpenalised, or 2uJ.")
    ] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[int, typer.Option(help="How many devices share each batch.")] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log for TensorBoard too.")] = False,
) -> None:
    """Train one network; the same command again resumes it. The last line printed is the run's folder.

    Example: `picojoule train recipes/small/cnn7-fashion-mnist.toml penalty.strength=64 seed=3`

    Example: `picojoule train recipes/small/cnn7-fashion-mnist.toml --budget 30%`
    """
    reporters: list[Reporter] = [Display(), *([TensorBoard()] if tensorboard else [])]
    changes = [*(overrides or ())]
    if budget is not None:  # the strength of the file gives way, one on the command line would contradict it
        changes = ["penalty.strength=0", *changes, f"penalty.budget={budget}"]
    run = engine.fit(Recipe.load(recipe, *changes), into, reporters=reporters, accelerator=accelerator, devices=devices)
    print(run.path)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A recipe with `[[axes]]` (TOML).")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Changes to it.")] = None,
    into: Annotated[Path, typer.Option(help="The folder of run folders.")] = Path("runs"),
    workers: Annotated[
        int | None, typer.Option(help="Runs at once; by default, as many as there are cores for.")
    ] = None,
    on: Annotated[str, typer.Option(help="local (processes of this machine) or ray (a cluster).")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster; by default, the one that Ray finds.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train every run of a sweep, several at once; the same command again does only what is missing.

    Example: `picojoule sweep recipes/smoke/digits-sweep.toml training.epochs=4 --workers 2`
    """
    if on not in get_args(Where):
        raise unknown("--on", on, get_args(Where))
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints what happens to its tasks
        outcome = sweeping.run(
            sweeping.load(file, *(overrides or ())),
            into,
            workers=workers,
            on="ray" if on == "ray" else "local",
            address=address,
        )
    if as_json:
        print(json.dumps(outcome.to_dict(), indent=2))
    else:
        Console().print(outcome.table())
    for failure in outcome.failures:
        _note(f"picojoule: {failure.recipe.name} failed: {failure.reason}")
    if outcome.failures:
        raise typer.Exit(1)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    convert_steps: Annotated[
        int | None,
        typer.Option(help="Convert a run with quantised ReLUs to spikes over so many time steps, and measure that."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained network: accuracy, energy by layer, firing rates, dead neurons.

    Example: `picojoule evaluate runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --json`

    Example: `picojoule evaluate runs/cnn7-fashion-mnist-target0.8-10-s0-0123456789ab --convert-steps 5`
    """
    with contextlib.redirect_stdout(sys.stderr):  # a model may print; standard output is the command's
        result = evaluation.evaluate(run, _split(split) or "test", convert_steps=convert_steps)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    if result.energy is not None:
        Console().print(result.energy.table())
    print(
        f"accuracy {result.accuracy:.2%}, cross-entropy {result.loss:.4f} on {result.samples:,} {result.split} images"
    )


@app.command()
def infer(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    images: Annotated[list[str] | None, typer.Argument(metavar="[IMAGES]…", help="PNG or JPEG files.")] = None,
    split: Annotated[str | None, typer.Option(help="Instead of files: test or validation of its data set.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many images of the split.")] = None,
    engine: Annotated[str, typer.Option(help="events (walks only spikes) or dense (PyTorch).")] = "events",
    as_json: AsJson = False,
) -> None:
    """Let a trained network answer images: class, confidence, and the synaptic operations, energy and time it took.

    An image that cannot be read is named and the rest go on; the exit status is then 1.

    Example: `picojoule infer runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab shoe.png shirt.jpg`

    Example: `picojoule infer runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --split test --limit 100 --json`
    """
    from picojoule import inference

    with contextlib.redirect_stdout(sys.stderr):  # a model may print; standard output is the command's
        result = inference.infer(run, images or (), split=_split(split), limit=limit, engine=_engine(engine))
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        for line in result.lines():
            print(line)
    for image, reason in result.failed:
        _note(f"picojoule: {image} was left out: {reason}")
    if result.failed:
        raise typer.Exit(1)


@app.command("report")
def write_report(
    folder: Annotated[Path, typer.Argument(help="A folder of run folders, at any depth.")],
    out: Annotated[Path | None, typer.Option(help="Where the report goes; FOLDER/report unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page on all runs in a folder, with figures (PNG, SVG, PDF) and tables (CSV, LaTeX) beside it.

    Example: `picojoule report runs --out report`
    """
    from picojoule import paper, report  # they bring the plotting library, which few commands need

    written = report.write(folder, out, paper.printed_scores)
    if as_json:
        print(json.dumps(written.to_dict(), indent=2))
        return
    for sheet in written.scores:
        print(sheet.text())
    _note(", ".join(f"{number:,} {state}" for state, number in written.collection.counts.items() if number))
    print(written.page)


paper_app = typer.Typer(
    help="The paper's tables and figures, each by one command.\n\nExample: `picojoule paper run totals`",
    no_args_is_help=True,
)
app.add_typer(paper_app, name="paper", rich_help_panel="Commands")

PaperRuns = Annotated[Path, typer.Option(help="The folder of run folders, which all experiments share.")]


@paper_app.command("list")
def paper_list(into: PaperRuns = Path("runs/paper"), as_json: AsJson = False) -> None:
    """List the experiments: what of the paper each makes, its runs, and about how long it takes on this machine.

    Each network trains for a moment to find out, so this takes some seconds.

    Example: `picojoule paper list`
    """
    from picojoule import paper  # brings the plotting library, which few commands need

    lines = paper.estimates(into)
    if as_json:
        print(json.dumps([line.to_dict() for line in lines], indent=2))
    else:
        Console().print(paper.table(lines).table())


@paper_app.command("run")
def paper_run(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Of `picojoule paper list`, or `all`.")],
    scale: Annotated[str, typer.Option(help="full (the paper's), small (hours on 2 cores) or smoke.")] = "small",
    into: PaperRuns = Path("runs/paper"),
    out: Annotated[Path, typer.Option(help="Tables and figures go to OUT/NAME.")] = Path("paper"),
    workers: Annotated[
        int | None, typer.Option(help="Runs at once; by default, as many as there are cores for.")
    ] = None,
    on: Annotated[str, typer.Option(help="local (processes of this machine) or ray (a cluster).")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster; by default, the one that Ray finds.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures of the paper; the same command again does only what is missing.

    Example: `picojoule paper run tradeoff-cnn7-adam --scale small`
    """
    from picojoule import paper  # brings the plotting library, which few commands need

    size = paper.find_scale(scale).name
    if on not in get_args(Where):
        raise unknown("--on", on, get_args(Where))
    wanted = list(paper.EXPERIMENTS.values()) if names == ["all"] else [paper.find(name) for name in names]
    produced = []
    for experiment in wanted:
        with _transfer_bar() as progress:
            paper.fetch_data(experiment, paper.SCALES[size], _note, progress)
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints what happens to its tasks
            made = paper.run(
                experiment,
                size,
                into,
                out,
                workers=workers,
                on="ray" if on == "ray" else "local",
                address=address,
                say=_note,
            )
        produced.append(made)
        if not as_json:
            for sheet in made.findings.tables.values():
                Console().print(sheet.table())
            print("\n".join([*made.findings.notes, *map(str, made.files)]))
    if as_json:
        print(json.dumps([made.to_dict() for made in produced], indent=2))
    failures = [failure for made in produced for failure in made.failures]
    for failure in failures:
        _note(f"picojoule: {failure.recipe.name} failed: {failure.reason}")
    if failures:
        raise typer.Exit(1)


@app.command("export")
def export_run(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    to: Annotated[str, typer.Option(help="nir (chips and simulators) or onnx (everything else).")],
    out: Annotated[Path | None, typer.Option(help="The file; without it, network.nir or network.onnx in RUN.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hand a trained network to chips and other tools. Prints the file's path.

    Example: `picojoule export runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --to nir --out cnn7.nir`
    """
    if to not in export.names():
        raise unknown("--to", to, export.names())
    finished = Run.at(run)
    example = torch.zeros(1, *finished.recipe.input_shape)
    with contextlib.redirect_stdout(sys.stderr):  # a model may print; standard output is the command's
        model = evaluation.load_model(finished)
        path = export.write(model, example, "onnx" if to == "onnx" else "nir", out or run / f"network.{to}", _note)
    if as_json:
        facts = {
            "run": str(run),
            "to": to,
            "path": str(path),
            "bytes": path.stat().st_size,
            "input_shape": list(finished.recipe.input_shape),
            "normalized_input": finished.recipe.data.normalize,
        }
        print(json.dumps(facts, indent=2))
    else:
        print(path)


def _split(text: str | None) -> evaluation.Split | None:
    known: dict[str, evaluation.Split] = {"test": "test", "validation": "validation"}
    if text is not None and text not in known:
        raise unknown("--split", text, known)
    return None if text is None else known[text]


def _engine(text: str) -> Literal["events", "dense"]:
    known: dict[str, Literal["events", "dense"]] = {"events": "events", "dense": "dense"}
    if text not in known:
        raise unknown("--engine", text, known)
    return known[text]


@app.command("frontier")
def walk_frontier(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML); its strength plays no part.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Changes to it.")] = None,
    into: Annotated[Path, typer.Option(help="The folder of run folders.")] = Path("runs"),
    points: Annotated[int, typer.Option(help="At most so many, the baseline among them.")] = 11,
    first: Annotated[float, typer.Option(help="The strength of the first point after the baseline.")] = 2.0,
    ratio: Annotated[float, typer.Option(help="By which it is multiplied from point to point.")] = 2.0,
    stretch: Annotated[int | None, typer.Option(help="Epochs of each point; by default, for 2.5 runs in all.")] = None,
    schedule: Annotated[str, typer.Option(help="steps, restarts or ramp.")] = "steps",
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train the whole trade-off curve: the baseline, then a stretch at each of ever higher strengths.

    Each point is an ordinary run that begins where the one before ended; the same command again resumes.

    Example: `picojoule frontier recipes/small/cnn7-fashion-mnist.toml training.epochs=10 --into frontier`
    """
    if schedule not in get_args(Schedule):
        raise unknown("--schedule", schedule, get_args(Schedule))
    plan = Plan(points, first, ratio, stretch, next(s for s in get_args(Schedule) if s == schedule))
    curve = frontier(
        Recipe.load(recipe, *(overrides or ())),
        into,
        plan,
        reporters=lambda title: (Display(title),),
        say=_note,
        accelerator=accelerator,
    )
    if as_json:
        print(json.dumps(curve.to_dict(), indent=2))
    else:
        Console().print(curve.table())


@app.command("pick")
def pick_network(
    folder: Annotated[Path, typer.Argument(help="A folder of run folders, at any depth.")],
    max_loss: Annotated[float | None, typer.Option(help="Points of accuracy below the baseline.")] = None,
    max_energy: Annotated[str | None, typer.Option(help="Such as 2uJ, or 30% of the baseline's.")] = None,
    min_accuracy: Annotated[float | None, typer.Option(help="Percent.")] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the cheapest trained network within limits (the most accurate one if only energy is limited).

    The choice is made on validation figures; the bill shown is that of the test split. Exit status 1 if none satisfies.

    Example: `picojoule pick runs --max-loss 1.0`

    Example: `picojoule pick runs --max-energy 2uJ --min-accuracy 88`
    """
    choice = pick(folder, Limits.read(max_loss, max_energy, min_accuracy))
    if as_json:
        print(json.dumps(choice.to_dict(), indent=2))
    elif choice.chosen is not None:
        Console().print(choice.table())
        print(f"{choice.chosen.best.path}\n{choice.export}")
    if choice.chosen is None:
        _note(f"picojoule: none of {choice.networks} networks satisfies the limits; the nearest:")
        for miss in choice.nearest:
            _note(f"  {miss}")
        raise typer.Exit(1)


def _model(name: str, input_shape: str | None) -> tuple[nn.Module, tuple[int, ...]]:
    shape = _shape(input_shape) if input_shape is not None else None
    if ":" not in name:
        net = zoo.create(name, in_channels=shape[0] if shape else None)
        return net, shape or net.input_shape
    model = zoo.imported.build(name, **({"in_channels": shape[0]} if shape else {}))
    shape = shape or getattr(model, "input_shape", None)
    if shape is None:
        raise PicojouleError(f"{name} does not say what it takes in: give --input, for example --input 3,32,32")
    return model, tuple(shape)


_LARGEST_INPUT = 10**9


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise PicojouleError(
            f"--input {text!r} is no shape: give whole numbers above 0 with commas, for example --input 3,32,32"
        )
    if math.prod(shape) > _LARGEST_INPUT:
        raise PicojouleError(f"--input {text} has more than {_LARGEST_INPUT:,} values: give the shape of one input")
    return shape


def _psi(text: str) -> Psi:
    known: dict[str, Literal["exact", "uniform", "paper"]] = {"exact": "exact", "uniform": "uniform", "paper": "paper"}
    if text not in known:
        raise unknown("--psi", text, known)
    return known[text]


def _note(text: str) -> None:
    print(text, file=sys.stderr)


@contextlib.contextmanager
def _transfer_bar() -> Iterator[datasets.Progress]:
    """A bar for downloads on standard error, where somebody watches it."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield progress


def main() -> NoReturn:
    """Run a command: 0, or 2 for a user's mistake (one sentence on standard error), or 1 for a failure."""
    try:
        app()
    except PicojouleError as error:
        print(f"picojoule: {error}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stop:
        print(f"picojoule: {stop}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("picojoule: stopped", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
