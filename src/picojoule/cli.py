"""The command line. Commands only: what they do lives in the modules they call."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal, NoReturn

import torch
import typer
from rich.console import Console
from torch import nn

import picojoule
from picojoule import zoo
from picojoule.errors import PicojouleError
from picojoule.rules import Psi
from picojoule.synapse import trace

app = typer.Typer(
    name="picojoule",
    help="Train spiking neural networks that spend less energy, and measure what they spend.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(picojoule.__version__)
        raise typer.Exit


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
    synapses = trace(net, torch.zeros(1, *shape), psi=_psi(psi))
    if as_json:
        print(json.dumps({"model": model, **synapses.to_dict()}, indent=2))
    else:
        Console().print(synapses.table())


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


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise PicojouleError(
            f"--input {text!r} is no shape: give whole numbers above 0 with commas, for example --input 3,32,32"
        )
    return shape


def _psi(text: str) -> Psi:
    known: dict[str, Literal["exact", "uniform", "paper"]] = {"exact": "exact", "uniform": "uniform", "paper": "paper"}
    if text not in known:
        raise PicojouleError(f"--psi {text!r} is not known: choose one of {', '.join(known)}")
    return known[text]


def main() -> NoReturn:
    """Run a command: 0, or 2 for a user's mistake (one sentence on standard error), or 1 for a failure."""
    try:
        app()
    except PicojouleError as error:
        print(f"picojoule: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("picojoule: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)
