"""Commands on one network: its synapses, its bill, its answers, and handing it on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
import typer
from torch import nn

from picojoule import zoo
from picojoule.cli.options import AsJson, FinishedRun, FolderOfRuns, Trusted, TrustedModel, consent, one_of
from picojoule.cli.streams import note, show, show_json, show_path, standard_output_kept, tell, tell_all
from picojoule.deploy import export
from picojoule.energy import hardware as price_lists
from picojoule.energy.hardware import PriceList
from picojoule.energy.side_by_side import By, SideBySide
from picojoule.errors import PicojouleError
from picojoule.io.factories import accepted
from picojoule.neurons.lif import LIF
from picojoule.neurons.spike import Spike
from picojoule.recipe.sections import MOST_STEPS
from picojoule.runs import evaluate as evaluation
from picojoule.runs.deployment import deployment_facts
from picojoule.runs.folder import Run
from picojoule.runs.model import Trust, load_model
from picojoule.runs.result import Split
from picojoule.runs.verdict import missed
from picojoule.search.limits import Limits
from picojoule.search.pick import pick
from picojoule.synapses.rules import ChainsOfLayers
from picojoule.synapses.trace import trace

_PSI: tuple[Literal["exact", "uniform", "paper"], ...] = ("exact", "uniform", "paper")
_SPLITS: tuple[Split, ...] = get_args(Split)
_ENGINES: tuple[Literal["events", "onnx", "dense", "auto"], ...] = ("events", "onnx", "dense", "auto")
_WEIGHTS: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")


def profile(
    model: Annotated[str, typer.Argument(help="A model of the zoo, or `package.module:factory` of your own.")],
    psi: Annotated[str, typer.Option(help="How synapses are counted: exact, uniform or paper.")] = "exact",
    chains: Annotated[
        str, typer.Option(help="How layers without a neuron between them are billed: run or merged.")
    ] = "run",
    input_shape: Annotated[
        str | None,
        typer.Option("--input", help="Shape of one input, such as 3,32,32 (needed for a model of your own)."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Time steps T; a network that takes steps= is built with it.")
    ] = None,
    frames: Annotated[
        bool, typer.Option("--frames", help="Give the network [T, B, …], a frame of the shape of --input in each step.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print the table in LaTeX alone, for a paper.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show ψ, neurons, synapses and Ω(1) of a network, layer by layer, products and analog synapses with them.

    Example: `picojoule profile cnn7 --psi uniform --json`

    Example: `picojoule profile spikformer --steps 4 --latex`

    Example: `picojoule profile mypackage.nets:build --input 3,32,32 --steps 4 --frames`
    """
    if latex and as_json:
        raise PicojouleError("--latex and --json exclude each other: give one of them")
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise PicojouleError(f"--steps {steps} is not allowed: give a whole number from 1 to {MOST_STEPS:,}")
    net, shape = _model(model, input_shape, steps)
    example = torch.zeros(*((steps or 1,) if frames else ()), 1, *shape)
    with standard_output_kept():  # a model may print; standard output is the command's
        synapses = trace(
            net,
            example,
            psi=one_of("--psi", psi, _PSI),
            steps=steps or 1,
            chains=one_of("--chains", chains, get_args(ChainsOfLayers)),
        )
    synapses.input_shape = shape  # where layers fold time into the batch, a frame and an image look alike
    if as_json:
        show_json({"model": model, **synapses.to_dict()})
    elif latex:
        tell_all(synapses.latex().rstrip())
    else:
        show(synapses.table())


def evaluate(
    run: FinishedRun,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    convert_steps: Annotated[
        int | None,
        typer.Option(help="Convert a run with quantised ReLUs to spikes over so many time steps, and measure that."),
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="Another price list, several with commas side by side, or all of them.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="Layers in --latex, --csv and side by side: firing, or weights as papers list them.")
    ] = "firing",
    latex: Annotated[bool, typer.Option("--latex", help="Print the energy as a LaTeX table alone.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the energy as CSV alone.")] = False,
    trust: Trusted = False,
    model: TrustedModel = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained network: accuracy, energy by layer, firing rates, dead neurons, parameters and bytes.

    Example: `picojoule evaluate runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --json`

    Example: `picojoule evaluate runs/cnn7-fashion-mnist-target0.8-10-s0-0123456789ab --convert-steps 5`

    Example: `picojoule evaluate runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --hardware all --latex`
    """
    chips = None if hardware is None else _chips(hardware)
    if sum((latex, as_csv, as_json)) > 1:
        raise PicojouleError("--latex, --csv and --json exclude each other: give one of them")
    with standard_output_kept():  # a model may print; standard output is the command's
        result = evaluation.evaluate(
            run, one_of("--split", split, _SPLITS), convert_steps=convert_steps, trust=consent(trust, model)
        )
    try:
        remark = missed(Run.at(run))
    except PicojouleError as fault:  # the weights were measured, whatever became of the result
        remark = str(fault)
    if remark is not None:
        note(f"picojoule: {remark}")
    energy, footprint = result.energy, result.footprint
    if (latex or as_csv or chips is not None) and energy is None:
        raise PicojouleError("a network without spikes has no energy of spikes to be shown: leave the options out")
    if as_json:
        priced = {} if chips is None or energy is None else {"chips": [energy.priced(c).to_dict() for c in chips]}
        show_json({**result.to_dict(), **(footprint.to_dict() if footprint is not None else {}), **priced})
        return
    if energy is not None:
        bill = energy if chips is None else SideBySide(tuple(energy.priced(chip) for chip in chips))
        layers = one_of("--by", by, get_args(By))
        if latex or as_csv:
            tell_all((bill.latex(layers) if latex else bill.csv(layers)).rstrip())
            return
        show(bill.table() if layers == "firing" else bill.sheet(layers).table())
    tell(f"accuracy {result.accuracy:.2%}, cross-entropy {result.loss:.4f} on {result.samples:,} {result.split} images")
    if footprint is not None:
        tell(footprint.line())


def infer(
    run: FinishedRun,
    images: Annotated[list[str] | None, typer.Argument(metavar="IMAGE", help="PNG or JPEG files.")] = None,
    split: Annotated[str | None, typer.Option(help="Instead of files: test or validation of its data set.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many images of the split.")] = None,
    engine: Annotated[
        str, typer.Option(help="events (walks only spikes), onnx (ONNX Runtime), dense (PyTorch), auto (the fastest).")
    ] = "events",
    weights: Annotated[str, typer.Option(help="float32, or int8 for the event engine.")] = "float32",
    trust: Trusted = False,
    model: TrustedModel = None,
    as_json: AsJson = False,
) -> None:
    """Let a trained network answer images: class, confidence, and the operations, energy, time and memory it took.

    An image that cannot be read is named and the rest go on; the exit status is then 1.

    Example: `picojoule infer runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab shoe.png shirt.jpg`

    Example: `picojoule infer runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --split test --limit 100 --json`

    Example: `picojoule infer runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --split test --engine auto`
    """
    from picojoule.runs import infer as inference

    part = None if split is None else one_of("--split", split, _SPLITS)
    with standard_output_kept():  # a model may print; standard output is the command's
        result = inference.infer(
            run,
            images or (),
            split=part,
            limit=limit,
            engine=one_of("--engine", engine, _ENGINES),
            weights=one_of("--weights", weights, _WEIGHTS),
            trust=consent(trust, model),
        )
    if as_json:
        show_json(result.to_dict())
    else:
        for line in result.lines():
            tell(line)
    for image, reason in result.failed:
        note(f"picojoule: {image} was left out: {reason}")
    if result.failed:
        raise typer.Exit(1)


def pick_network(
    folder: FolderOfRuns,
    max_loss: Annotated[float | None, typer.Option(help="Points of accuracy below the baseline.")] = None,
    max_energy: Annotated[str | None, typer.Option(help="Such as 2uJ, or 30% of the baseline's.")] = None,
    min_accuracy: Annotated[float | None, typer.Option(help="Percent.")] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the cheapest trained network within limits (the most accurate one if only energy is limited).

    The choice is made on validation figures; the bill shown is that of the test split. Exit status 1 if none satisfies.

    Example: `picojoule pick frontier --max-loss 1.0`

    Example: `picojoule pick frontier --max-energy 2uJ --min-accuracy 88`
    """
    choice = pick(folder, Limits.read(max_loss, max_energy, min_accuracy))
    if as_json:
        show_json(choice.to_dict())
    elif choice.chosen is not None:
        show(choice.table())
        show_path(choice.chosen.best.path)
        if choice.export is not None:
            tell(choice.export)
    if choice.lacks_weights is not None:
        note(f"picojoule: {choice.lacks_weights}")
    if choice.chosen is None:
        note(f"picojoule: none of {choice.networks} networks satisfies the limits; the nearest:")
        for miss in choice.nearest:
            note(f"  {miss}")
        raise typer.Exit(1)


def export_run(
    run: FinishedRun,
    to: Annotated[str, typer.Option(help="nir (chips and simulators) or onnx (everything else).")],
    out: Annotated[
        Path | None,
        typer.Option(help="The file; without it, network.nir or network.onnx in RUN; of a shipped network, here."),
    ] = None,
    reader: Annotated[
        str, typer.Option(help="For NIR, who is to read it: norse, snntorch, spikingjelly, sinabs; nir for all others.")
    ] = "nir",
    trust: Trusted = False,
    model: TrustedModel = None,
    as_json: AsJson = False,
) -> None:
    """Hand a trained network to chips and other tools. Prints the file's path.

    Example: `picojoule export runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --to nir --out cnn7.nir`

    Example: `picojoule export runs/cnn7-fashion-mnist-syn1-64-s0-0123456789ab --to nir --reader sinabs`
    """
    one_of("--to", to, export.names())
    finished = Run.at(run)
    if to == "onnx" and finished.recipe.frames is not None:
        raise PicojouleError(
            f"the network of {run} takes recordings over time, and picojoule writes ONNX files of networks that take "
            "images: use the run itself, with `picojoule infer --engine dense`"
        )
    example = finished.recipe.example()
    with standard_output_kept():  # a model may print; standard output is the command's
        network = load_model(finished, consent(trust, model))
        place = out or (run if run.is_dir() else Path()) / f"network.{to}"
        facts = _facts(finished, consent(trust, model))
        path = export.write(network, example, "onnx" if to == "onnx" else "nir", place, note, facts, reader)
    if as_json:
        written = {
            "run": str(run),
            "to": to,
            "path": str(path),
            "bytes": path.stat().st_size,
            "input_shape": list(finished.recipe.input_shape),
            "normalized_input": finished.recipe.data.normalize,
            "facts": None if facts is None else str(export.beside(path)),
        }
        show_json(written)
    else:
        show_path(path)


def _facts(run: Run, trust: Trust) -> dict[str, Any] | None:
    """Collect what inference needs; where the data are not at hand, the network is exported without it, with a word."""
    try:
        return deployment_facts(run, trust)
    except PicojouleError as fault:
        note(f"picojoule: the file has no mean, deviation and names of classes, for its data cannot be loaded: {fault}")
        return None


def _model(name: str, input_shape: str | None, steps: int | None) -> tuple[nn.Module, tuple[int, ...]]:
    shape = _shape(input_shape) if input_shape is not None else None
    if ":" not in name:
        neuron = Spike if steps in (None, 1) else LIF
        net = zoo.create(name, in_channels=shape[0] if shape else None, neuron=neuron, steps=steps or 1)
        return net, shape or net.input_shape
    settings: dict[str, Any] = {"in_channels": shape[0]} if shape else {}
    if steps is not None:  # what does not take it has its own number of steps, or is given frames
        settings |= accepted(zoo.imported.find(name), {"steps": steps})
    model = zoo.imported.build(name, **settings)
    shape = shape or getattr(model, "input_shape", None)
    if shape is None:
        raise PicojouleError(f"{name} does not say what it takes in: give --input, for example --input 3,32,32")
    return model, tuple(shape)


def _chips(text: str) -> list[PriceList]:
    """Read names of price lists with commas; "all" is every one."""
    names = price_lists.names() if text == "all" else [name.strip() for name in text.split(",")]
    return [price_lists.get(name) for name in names]


_LARGEST_INPUT = 10**9


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise PicojouleError(
            f"--input {text!r} is not a valid shape: give whole numbers above 0 with commas, as in --input 3,32,32"
        )
    if math.prod(shape) > _LARGEST_INPUT:
        raise PicojouleError(f"--input {text} has more than {_LARGEST_INPUT:,} values: give the shape of one input")
    return shape
