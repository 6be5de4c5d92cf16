"""Commands that write pages, figures and tables: the report on any runs, and the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from picojoule.cli.options import (
    Address,
    AsJson,
    FinishedRun,
    FolderOfRuns,
    On,
    Trusted,
    TrustedModel,
    Workers,
    consent,
    one_of,
)
from picojoule.cli.streams import note, show, show_json, show_path, standard_output_kept, tell, transfer_bar
from picojoule.errors import PicojouleError
from picojoule.runs.result import Split
from picojoule.search.sweep import Where

paper_app = typer.Typer(
    help="The paper's tables and figures, each by one command.\n\nExample: `picojoule paper run totals`",
    no_args_is_help=True,
)

PaperRuns = Annotated[Path, typer.Option(help="The folder of run folders, which all experiments share.")]


def write_report(
    folder: FolderOfRuns,
    out: Annotated[Path | None, typer.Option(help="Where the report goes; FOLDER/report unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page on all runs in a folder, with figures (PNG, SVG, PDF) and tables (CSV, LaTeX) beside it.

    Example: `picojoule report runs --out report`
    """
    from picojoule import paper, report  # they bring the plotting library, which few commands need

    written = report.write(folder, out, paper.printed_scores)
    if as_json:
        show_json(written.to_dict())
        return
    for sheet in written.scores:
        show(sheet.table())
    note(", ".join(f"{number:,} {state}" for state, number in written.collection.counts.items() if number))
    show_path(written.page)


def show_run(
    run: FinishedRun,
    images: Annotated[int, typer.Option(help="How many images of the split it is shown, the first.")] = 32,
    at: Annotated[
        str | None, typer.Option(metavar="N,N,N", help="Instead of the first, these images, counted from 0: 3,17.")
    ] = None,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    out: Annotated[Path | None, typer.Option(help="The folder of the pictures; RUN/pictures unless given.")] = None,
    trust: Trusted = False,
    model: TrustedModel = None,
    as_json: AsJson = False,
) -> None:
    """Draw a trained network at work: raster, firing rates, dead neurons, rate and energy maps, potentials.

    Writes each picture as SVG, PDF and PNG, and prints their paths. `picojoule report` shows those beside a run.

    Example: `picojoule show runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --images 16 --out pictures`

    Example: `picojoule show runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --at 3,17`
    """
    from picojoule.report.network_pictures import show_network  # brings the plotting library

    part = one_of("--split", split, get_args(Split))
    with standard_output_kept():  # a model may print; standard output is the command's
        pictures = show_network(run, out, images=images, at=_positions(at), split=part, trust=consent(trust, model))
    if as_json:
        show_json({"run": str(run), "pictures": [str(path) for path in pictures]})
        return
    for path in pictures:
        show_path(path)


def _positions(text: str | None) -> list[int] | None:
    """Read the positions of images."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise PicojouleError(
            f"--at {text!r} names no images: give whole numbers with commas, as in --at 3,17"
        ) from None


@paper_app.command("list")
def paper_list(into: PaperRuns = Path("runs/paper"), as_json: AsJson = False) -> None:
    """List the experiments: what of the paper each makes, its runs, and about how long it takes here and on a GPU.

    Each network trains for a moment to find out, so this takes some seconds. For a GPU it is arithmetic.

    Example: `picojoule paper list`
    """
    from picojoule import paper  # brings the plotting library, which few commands need

    lines = paper.estimates(into)
    if as_json:
        show_json([line.to_dict() for line in lines])
    else:
        show(paper.table(lines).table())
        tell(paper.remark(lines))


@paper_app.command("run")
def paper_run(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Of `picojoule paper list`, or `all`.")],
    scale: Annotated[
        str, typer.Option(help="full (the paper's), small or mini (hours), quick (minutes) or smoke.")
    ] = "small",
    into: PaperRuns = Path("runs/paper"),
    out: Annotated[Path, typer.Option(help="Tables and figures go to OUT/NAME.")] = Path("paper"),
    seeds: Annotated[int | None, typer.Option(help="Runs of each setting; full has 3 of them, the others 1.")] = None,
    tables_only: Annotated[bool, typer.Option("--tables-only", help="Train nothing: of the runs there are.")] = False,
    workers: Workers = None,
    on: On = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures of the paper; the same command again does only what is missing.

    Example: `picojoule paper run tradeoff-cnn7-adam --scale quick`
    """
    from picojoule import paper  # brings the plotting library, which few commands need

    size = paper.find_scale(scale).name
    place: Where = one_of("--on", on, get_args(Where))
    wanted = list(paper.EXPERIMENTS.values()) if names == ["all"] else [paper.find(name) for name in names]
    produced = []
    for experiment in wanted:
        with standard_output_kept():  # Ray prints what happens to its tasks
            made = paper.run(
                experiment,
                size,
                into,
                out,
                seeds=seeds,
                train=not tables_only,
                workers=workers,
                on=place,
                address=address,
                say=note,
                transfer=transfer_bar,
            )
        produced.append(made)
        if not as_json:
            for sheet in made.results.tables.values():
                show(sheet.table())
            for remark in made.results.notes:
                tell(remark)
            for path in made.files:
                show_path(path)
    if as_json:
        show_json([made.to_dict() for made in produced])
    failures = [failure for made in produced for failure in made.failures]
    for failure in failures:
        note(f"picojoule: {failure.recipe.name} failed: {failure.reason}")
    if failures:
        raise typer.Exit(1)
