"""The bill is the clock: event-driven inference against dense engines, over networks that fire more or less.

Every network answers the same images one after the other, and in batches, on one core and on two; all engines take
turns in one run. Reported: milliseconds an image, synaptic operations a second, the straight line of time against
operations (R²), and the break-even: the operations at which the fastest dense engine would be as fast. Before the race
the answers are compared with PyTorch's on more of the test images: classes, accuracy, spikes, synaptic operations.

Rivals of the float32 engine are PyTorch and ONNX Runtime; the int8 engine also meets ONNX Runtime with weights and
activations quantised to bytes (by its own static quantisation, a scale for each output channel, on the images of the
race; VNNI instructions where the machine has them), whose answers are compared with PyTorch's too. And the network runs
by the kernels that training skips silence with, to show what one set of kernels for both would cost.

Networks are finished runs of one model (folders), or, without any, random ones that fire at given rates. ONNX Runtime
takes part where it is installed: pip install -c constraints.txt onnx onnxruntime

python benchmarks/inference.py [RUN …] [--model cnn7] [--rates 0.005 0.02 0.1] [--turns 9] [--out docs/images/inference]
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import torch
from activity import firing_at
from numpy.typing import NDArray
from timing import Timings, console, describe_machine, interleaved
from torch import Tensor, nn

import picojoule as pj
from picojoule.deploy import events
from picojoule.io.files import write_atomically
from picojoule.kernels.event_driven.geometry import geometry_of
from picojoule.report.curve import budget_label

IMAGES = 64
DENSE = ("PyTorch", "PyTorch channels-last", "ONNX Runtime")
DENSE_INT8 = "ONNX Runtime int8"
RIVALS = {"fp32": DENSE, "int8": (*DENSE, DENSE_INT8)}
TRAINING = "by the kernels of training"
Answer = Callable[[Tensor], object]


@dataclass(frozen=True)
class Measured:
    """One network: what it does on the images, and its engines."""

    label: str
    net: nn.Module
    images: Tensor
    accuracy: float | None
    float32: events.Engine
    int8: events.Engine
    compared: Tensor
    labels: Tensor
    """Images that the answers are compared on, and their classes."""
    known: bool
    """Whether the network was trained for these classes."""

    @property
    def synops(self) -> float:
        return self.float32(self.images).synops.double().mean().item()

    def agreement(self) -> dict[str, Any]:
        """Answers and spikes against PyTorch's, on all images that were given for it."""
        engines = {"fp32": lambda x: self.float32(x).logits, "int8": lambda x: self.int8(x).logits}
        if has_onnx():
            file = quantised(onnx_file(self.net), self.images)
            in_bytes: Any = in_onnx(file, 1)
            engines[DENSE_INT8] = lambda x: torch.from_numpy(in_bytes(x)[0])
        same, right = dict.fromkeys(engines, 0), dict.fromkeys(("PyTorch", *engines), 0)
        differing = spikes = alike = equal = 0
        meter = {name: layer.fan_out.double() for name, layer in self.float32.synapses.items()}
        for images, labels in zip(self.compared.split(100), self.labels.split(100), strict=True):
            with torch.inference_mode(), pj.watch(self.net) as dense:
                classes = self.net(images).argmax(1)
            right["PyTorch"] += int((classes == labels).sum())
            result = self.float32(images)
            for name, engine in engines.items():
                logits = engine(images)
                same[name] += int((logits.argmax(1) == classes).sum())
                right[name] += int((logits.argmax(1) == labels).sum())
            own = self.float32.watch(images)
            flips = sum((own[layer.name] != dense[layer.name]).flatten(1).sum(1) for layer in self.spiking)
            differing += int(flips.sum())
            spikes += sum(int(dense[layer.name].sum()) for layer in self.spiking)
            metered = sum((dense[name].double() * fan_out).flatten(1).sum(1) for name, fan_out in meter.items())
            alike += int((flips == 0).sum())
            equal += int(((flips == 0) & (result.synops.double() == metered)).sum())
        samples = len(self.compared)
        return {
            "images": samples,
            "same_class": {name: count / samples for name, count in same.items()},
            "accuracy": {name: count / samples for name, count in right.items()} if self.known else None,
            "differing_spikes": differing / max(spikes, 1),
            "images_with_equal_spikes": alike,
            "of_them_with_equal_synops": equal,
        }

    @property
    def spiking(self) -> list[pj.Layer]:
        return list(self.float32.synapses.spiking)


def trained(folder: Path, compared: int) -> Measured:
    run = pj.Run.at(folder)
    recipe = run.recipe
    data = pj.data.load(recipe.data.name, limit=recipe.data.limit, pad=recipe.data.pad)
    images = data.test.images[: max(compared, IMAGES)].float() / 255
    images = data.normalization(images) if recipe.data.normalize else images
    labels = data.test.labels[:compared]
    net, accuracy = pj.load_model(run), run.result.test.accuracy
    asked = f"λ' = {recipe.penalty.strength:g}" if recipe.penalty.budget is None else f"budget {budget_label(recipe)}"
    return measured(f"{asked}, seed {recipe.seed}", net, images, labels, accuracy)


def synthetic(name: str, rate: float, images: Tensor) -> Measured:
    labels = torch.zeros(len(images), dtype=torch.long)
    return measured(f"rate {rate:.2%}", firing_at(name, rate, images[:IMAGES]), images, labels, None)


def measured(label: str, net: nn.Module, images: Tensor, labels: Tensor, accuracy: float | None) -> Measured:
    float32, int8 = (events.compile(net, images[:1], weights=weights) for weights in ("float32", "int8"))
    compared = images[: len(labels)]
    return Measured(label, net, images[:IMAGES], accuracy, float32, int8, compared, labels, accuracy is not None)


def pictures(name: str, compared: int) -> Tensor:
    """Real images where they are in the cache, else noise."""
    shape = pj.zoo.create(name).input_shape
    try:
        data = pj.data.load("fashion-mnist" if shape[0] == 1 else "cifar-10")
    except pj.PicojouleError:
        return torch.randn(max(compared, IMAGES), *shape)
    return data.normalization(data.test.images[: max(compared, IMAGES)].float() / 255)


# --- Engines ---------------------------------------------------------------------------------------------------------


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def dense_engines(net: nn.Module, images: Tensor, threads: int) -> dict[str, Answer]:
    def in_torch(layout: torch.memory_format) -> Answer:
        laid_out: Any = copy.deepcopy(net).to(memory_format=layout)  # type: ignore[call-overload]

        def answer(x: Tensor) -> object:
            with torch.inference_mode():
                return laid_out(x.contiguous(memory_format=layout))

        return answer

    engines = dict(zip(DENSE, (in_torch(torch.contiguous_format), in_torch(torch.channels_last)), strict=False))
    if has_onnx():
        engines[DENSE[2]] = in_onnx(onnx_file(net), threads)
        engines[DENSE_INT8] = in_onnx(quantised(onnx_file(net), images), threads)
    return engines


def has_onnx() -> bool:
    return bool(importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"))


def by_training_kernels(net: nn.Module) -> Answer:
    """The network with every layer of synapses behind spikes computed by `pj.sparse`'s kernels, whatever its activity.

    They take weights as training leaves them, anew in every call, for there they change from step to step.
    """
    from picojoule.kernels.event_driven.convolution import event_convolution

    laid_out: Any = copy.deepcopy(net).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    layers = [module for module in laid_out.modules() if isinstance(module, nn.Conv2d | nn.Linear)]

    def by_events(layer: Any, x: Tensor) -> Tensor:
        flat, weight = (t if t.dim() == 4 else t[:, :, None, None] for t in (x, layer.weight))
        shape = geometry_of(layer, flat)
        assert shape is not None
        y, _ = event_convolution(flat, weight, layer.bias, shape)
        return y if x.dim() == 4 else y.flatten(1)

    for layer in layers[1:]:  # the first is fed by pixels
        layer.forward = partial(by_events, layer)

    def answer(x: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = laid_out(x.contiguous(memory_format=torch.channels_last))
            return logits

    return answer


def quantised(file: bytes, images: Tensor) -> bytes:
    """The same network with weights and activations of 8 bits, as ONNX Runtime's own tool makes it of some images."""
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(images.split(1))

        def get_next(self) -> dict[str, Any] | None:
            x = next(self._left, None)
            return None if x is None else {"x": x.numpy()}

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float32.onnx"), Path(folder, "int8.onnx")
        source.write_bytes(file)
        quantization.quantize_static(source, target, Samples(), per_channel=True)
        return target.read_bytes()


def onnx_file(net: nn.Module) -> bytes:
    """The network as ONNX knows it, in evaluation."""

    class Threshold(nn.Module):
        """`Spike` without its gradient, which ONNX has no word for."""

        def __init__(self, threshold: float) -> None:
            super().__init__()
            self.threshold = threshold

        def forward(self, u: Tensor) -> Tensor:
            return (u >= self.threshold).float()

    plain: Any = copy.deepcopy(net).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    for name, module in list(plain.named_modules()):
        if isinstance(module, pj.Spike):
            parent, _, leaf = name.rpartition(".")
            setattr(plain.get_submodule(parent), leaf, Threshold(module.threshold))
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's advice to its own users
        example = torch.zeros(1, *net.input_shape)
        torch.onnx.export(plain, (example,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
    return file.getvalue()


def in_onnx(file: bytes, threads: int) -> Answer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x.numpy()})


def turn(answer: Answer, images: Tensor, batch: int, threads: int) -> Callable[[], None]:
    """One contestant's turn: all images, in batches."""
    batches = [part.contiguous() for part in images.split(batch)]

    def run() -> None:
        with torch_threads(threads):
            for part in batches:
                answer(part)

    return run


# --- Results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """seconds = fixed + synops / pace, fitted by least squares."""

    fixed: float
    slope: float
    r_squared: float

    @classmethod
    def through(cls, synops: NDArray[Any], seconds: NDArray[Any]) -> Line:
        slope, fixed = np.polyfit(synops, seconds, 1)
        left = seconds - (fixed + slope * synops)
        return cls(float(fixed), float(slope), float(1 - (left**2).sum() / ((seconds - seconds.mean()) ** 2).sum()))

    def reaches(self, seconds: float) -> float:
        """The operations at which the line takes so long."""
        return (seconds - self.fixed) / self.slope


def race(networks: list[Measured], batch: int, threads: int, turns: int) -> Timings:
    """Seconds for all images of every dense engine (on the first network: they do not care) and every network."""
    contestants = {
        name: turn(answer, networks[0].images, batch, threads)
        for name, answer in dense_engines(networks[0].net, networks[0].images, threads).items()
    }
    for network in networks:
        for weights, engine in (("fp32", network.float32), ("int8", network.int8)):
            shared = (
                engine
                if threads == 1
                else events.compile(
                    network.net, network.images[:1], weights="float32" if weights == "fp32" else "int8", threads=threads
                )
            )
            contestants[f"{network.label} {weights}"] = turn(shared, network.images, batch, threads)
        answer = by_training_kernels(network.net)
        contestants[f"{network.label} {TRAINING}"] = turn(answer, network.images, batch, threads)
    return interleaved(contestants, turns, title=f"batch {batch}, {threads} threads")


def summary(networks: list[Measured], timings: Timings, batch: int, threads: int) -> dict[str, Any]:
    everybody = [name for name in RIVALS["int8"] if name in timings.seconds]
    dense = {name: timings.median(name) / IMAGES for name in everybody}
    fastest = {w: min((n for n in everybody if n in rivals), key=timings.median) for w, rivals in RIVALS.items()}
    cores = f"{threads} core{'s' * (threads > 1)}"
    console.print(f"\nbatch {batch}, {cores}: " + ", ".join(f"{n} {s * 1e3:.3f} ms" for n, s in dense.items()))
    rows = []
    for network in networks:
        row: dict[str, Any] = {"network": network.label, "synops": network.synops, "accuracy": network.accuracy}
        for weights in ("fp32", "int8"):
            own = f"{network.label} {weights}"
            seconds = timings.median(own) / IMAGES
            row[weights] = {"milliseconds": seconds * 1e3, "faster": timings.ratio(fastest[weights], own)[1]}
            row[weights]["per_second"] = network.synops / seconds
        trained_by = f"{network.label} {TRAINING}"
        row["training"] = {
            "milliseconds": timings.median(trained_by) / IMAGES * 1e3,
            "slower": timings.ratio(trained_by, f"{network.label} fp32")[1],
        }
        rows.append(row)
        console.print(
            f"  {row['network']:14} {row['synops']:12,.0f} synops"
            + (f"  accuracy {row['accuracy']:.2%}" if row["accuracy"] is not None else "")
            + "".join(
                f"  {name} {row[name]['milliseconds']:7.3f} ms, {row[name]['per_second'] / 1e9:5.1f} G/s, "
                f"{row[name]['faster']:5.1f} ×"
                for name in ("fp32", "int8")
            )
            + f"  {TRAINING} {row['training']['milliseconds']:7.3f} ms, {row['training']['slower']:.2f} : fp32"
        )
    result: dict[str, Any] = {"batch": batch, "threads": threads, "dense": dense, "networks": rows}
    if len(networks) > 2:
        synops = np.array([row["synops"] for row in rows])
        for weights in ("fp32", "int8"):
            rival = fastest[weights]
            line = Line.through(synops, np.array([row[weights]["milliseconds"] / 1e3 for row in rows]))
            even = line.reaches(dense[rival])
            share = even / networks[0].float32.synapses.synapses
            result[weights] = {"line": vars(line), "break_even_synops": even, "break_even_rate": share}
            console.print(
                f"  {weights}: {line.fixed * 1e6:.0f} µs + synops / {1 / line.slope / 1e9:.1f} G/s, R² = "
                f"{line.r_squared:.4f}; as slow as {rival} at {even:,.0f} synops, {share:.1%} of all synapses"
            )
    return result


def figure(model: str, result: dict[str, Any], machine: str) -> dict[str, bytes]:
    """Time against synaptic operations, by the ending of the file: a line for the events, flat ones for the rest."""
    import vl_convert

    points = [
        {"synops": row["synops"] / 1e6, "milliseconds": row[weights]["milliseconds"], "engine": f"events, {weights}"}
        for row in result["networks"]
        for weights in ("fp32", "int8")
    ]
    rules = [{"milliseconds": seconds * 1e3, "engine": name} for name, seconds in result["dense"].items()]
    order = [*result["dense"], "events, fp32", "events, int8"]
    colour = alt.Color(
        "engine:N",
        sort=order,
        title=None,
        scale=alt.Scale(domain=order, scheme="tableau10"),
        legend=alt.Legend(orient="top"),
    )
    x = alt.X("synops:Q", title="synaptic operations an image (millions)")
    y = alt.Y("milliseconds:Q", title="milliseconds an image")
    dots = alt.Chart({"values": points}).mark_point(filled=True, size=60).encode(x, y, colour)
    lines = alt.Chart({"values": points}).transform_regression("synops", "milliseconds", groupby=["engine"])
    flat = alt.Chart({"values": rules}).mark_rule(strokeDash=[6, 3], strokeWidth=2).encode(y, colour)
    fit = result["fp32"]["line"]["r_squared"]
    chart = (flat + lines.mark_line().encode(x, y, colour) + dots).properties(
        width=620,
        height=330,
        title=alt.Title(
            f"The bill is the clock: {model}, one image, one core",
            subtitle=[
                f"events fp32: R² of the straight line = {fit:.3f}; dense engines: timed on one network",
                machine,
            ],
            anchor="start",
        ),
    )
    description = chart.to_json()
    png: bytes = vl_convert.vegalite_to_png(description, scale=2)
    svg: str = vl_convert.vegalite_to_svg(description)
    return {".png": png, ".svg": svg.encode()}


def table(results: list[dict[str, Any]]) -> list[str]:
    """Milliseconds an image of everybody in every setting, as Markdown."""
    heads = [f"batch {r['batch']}, {r['threads']} core{'s' * (r['threads'] > 1)}" for r in results]
    lines = [f"| engine | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    lines += [
        f"| {name} | {' | '.join(format(r['dense'][name] * 1e3, '.3f') for r in results)} |"
        for name in results[0]["dense"]
    ]
    for i, row in enumerate(results[0]["networks"]):
        for weights in ("fp32", "int8"):
            cells = [r["networks"][i][weights] for r in results]
            numbers = " | ".join(f"{cell['milliseconds']:.3f} ({cell['faster']:.1f} ×)" for cell in cells)
            lines.append(f"| events {weights}, {row['network']}, {row['synops'] / 1e6:.2f} M synops | {numbers} |")
        cells = [r["networks"][i]["training"] for r in results]
        numbers = " | ".join(f"{cell['milliseconds']:.3f} ({cell['slower']:.2f} × events fp32)" for cell in cells)
        lines.append(f"| {TRAINING}, {row['network']} | {numbers} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--model", default="cnn7", choices=pj.zoo.names())
    parser.add_argument("--rates", nargs="+", type=float, default=[0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--settings", nargs="+", default=["1x1", "1x2", "64x1", "64x2"], help="batch x threads")
    parser.add_argument("--compared", type=int, default=1000, help="test images that answers are compared on")
    parser.add_argument("--out", type=Path, help="PNG and SVG of time against synaptic operations, without the ending")
    parser.add_argument("--json", type=Path, help="all figures as JSON")
    options = parser.parse_args()
    if options.out and (len(options.runs or options.rates) < 3 or options.settings[0] != "1x1"):
        parser.error("the figure needs three networks or more, and 1x1 as the first setting")
    with torch_threads(1):
        if options.runs:
            networks = [trained(folder, options.compared) for folder in options.runs]
            if len({network.label for network in networks}) < len(networks):
                raise SystemExit("two of the runs have the same strength or budget and the same seed: name one of them")
            model = pj.Run.at(options.runs[0]).recipe.model.name
        else:
            images = pictures(options.model, options.compared)
            networks, model = [synthetic(options.model, rate, images) for rate in options.rates], options.model
        networks.sort(key=lambda network: network.synops)
        machine = describe_machine()
        seconds = max(network.float32.compilation_seconds for network in networks)
        console.print(f"{machine}; {model}, {IMAGES} images; machine code, compiled or from the cache: {seconds:.1f} s")
        agreements = []
        for network in networks:
            found = network.agreement()
            agreements.append({"network": network.label, **found})
            same, right = (
                ", ".join(f"{name} {share:.2%}" for name, share in (found[key] or {}).items())
                for key in ("same_class", "accuracy")
            )
            alike, equal = found["images_with_equal_spikes"], found["of_them_with_equal_synops"]
            console.print(
                f"  {network.label:14} {found['images']:,} images, PyTorch's class: {same}; "
                f"{found['differing_spikes']:.1e} of the fp32 spikes differ; of {alike:,} images with equal spikes "
                f"{equal:,} have the meter's synops{'; accuracy ' + right if right else ''}"
            )
        results = []
        for setting in options.settings:
            batch, threads = map(int, setting.split("x"))
            timings = race(networks, batch, threads, options.turns)
            results.append(summary(networks, timings, batch, threads))
    console.print("\nmilliseconds an image (times faster than the fastest dense engine)\n")
    for line in table(results):
        console.print(line, highlight=False)
    if options.json:
        document = {"machine": machine, "model": model, "agreement": agreements, "settings": results}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.json, json.dumps(document, indent=2).encode())
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        for ending, content in figure(model, results[0], machine).items():
            write_atomically(options.out.with_name(options.out.name + ending), content)


if __name__ == "__main__":
    main()
