"""The command line. Commands only: what they do lives in the modules they call."""

from __future__ import annotations

import errno
import sys
from typing import Annotated, NoReturn

import typer

import picojoule
from picojoule.cli import data, machine, networks, packs, pages, runs, schemas, streams, template
from picojoule.errors import PicojouleError, memory_ran_out
from picojoule.io.extras import explained
from picojoule.io.signals import CTRL_C, Interrupted, started

app = typer.Typer(
    name="picojoule",
    help="Train spiking neural networks that spend less energy, and measure what they spend.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


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


app.command()(networks.profile)
app.command("demo")(runs.run_demo)
app.command("init")(template.begin_project)
app.command()(runs.train)
app.command()(runs.sweep)
app.command()(networks.evaluate)
app.command()(networks.infer)
app.command("report")(pages.write_report)
app.command("show")(pages.show_run)
app.command("doctor")(machine.examine)
app.command("export")(networks.export_run)
app.command("frontier")(runs.walk_frontier)
app.command("pick")(networks.pick_network)
app.command("pack")(packs.pack_runs)
app.command("schema")(schemas.print_schema)
app.add_typer(data.data_app, name="data", rich_help_panel="Commands")
app.add_typer(pages.paper_app, name="paper", rich_help_panel="Commands")


def main() -> NoReturn:
    """Run a command and end the process: status 0, 2 for a user's mistake (one sentence), or 1 for a failure."""
    streams.prepare()
    try:
        status = _status()
        streams.flush()
    except BrokenPipeError:
        streams.give_up()
        status = 1
    except OSError as fault:
        if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        streams.give_up()
        streams.note(f"picojoule: there is no room for the output ({fault.strerror}): free some space")
        status = 1
    sys.exit(status)


def _status() -> int:
    try:
        started()
        status = app(standalone_mode=False)  # None, or what a command raised typer.Exit with
        if status == CTRL_C:  # what Typer makes of it
            raise KeyboardInterrupt
        return status or 0
    except typer.TyperException as mistake:  # an unknown option, a missing argument
        if mistake.format_message():  # a group without a command has shown its help
            streams.note(f"picojoule: {_usage_mistake(mistake)}")
        return mistake.exit_code
    except PicojouleError as error:
        streams.note(f"picojoule: {error}")
        return 2
    except ModuleNotFoundError as fault:
        told = explained(fault, "this command")
        if not isinstance(told, PicojouleError):
            raise
        streams.note(f"picojoule: {told}")
        return 2
    except Interrupted as stop:
        streams.note(f"picojoule: {stop}")
        return 1
    except KeyboardInterrupt:
        streams.note("picojoule: stopped")
        return 1
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # what Typer and Rich make of it
            raise end.__context__ from None
        streams.note(f"picojoule: {_exit_reason(end)}")
        return 1
    except (MemoryError, RuntimeError, OSError) as fault:
        sentence = memory_ran_out(fault)
        if sentence is None:
            raise
        streams.note(f"picojoule: {sentence}")
        return 1


def _exit_reason(end: SystemExit) -> str:
    """Say why a model of the user's own ended the process; as a sentence, if its builder made one."""
    return end.code if isinstance(end.code, str) else f"the model ended the process (SystemExit: {end.code})"


def _usage_mistake(mistake: typer.TyperException) -> str:
    """Say a mistake on the command line as Typer does, but on one line, and where to read on."""
    text = " ".join(mistake.format_message().split()).removesuffix(".")
    context = getattr(mistake, "ctx", None)
    hint = f" (`{context.command_path} --help` says what it takes)" if context is not None else ""
    return f"{text[:1].lower()}{text[1:]}{hint}"
