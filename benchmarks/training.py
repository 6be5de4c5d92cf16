"""What a penalised training step costs, against the least it could cost and against the peers.

--parts steps:
(a) ours : the same network with ReLU, which shares our dropout and batch norm, but has PyTorch's Adam
(b) ours : its convolutions and linears alone (pools stay, for they give the shapes)
(c) ours : the faster of SpikingJelly and snnTorch on the same network, in the same precision and layout
(d) ours as `picojoule train` runs it here : the faster peer as it comes (fp32, channels first)
(e) drawing, augmenting and normalising the batches, as a share of our step (ten batches are augmented at a time)
(f) peak memory of a step: ours : the leaner peer, : the ReLU twin and : our dense path, each in a process of its own

The other parts show what skipping silence brings, and are the tables of docs/how-to/training-speed.md (--page):
silence   a step by how silent the network is (`silence`), on networks that were trained (--trained, `trained`)
runs      whole runs of `picojoule train`, by events and dense (`trained`)
scaling   the layers' kernels on two threads against one (`scaling`)
memory    peak memory of a step: ours, our dense path and the ReLU twin
curve     a step's time over the share of active synapses, and its chart (`curve`)

Ours is the network with `pj.sparse`, as `picojoule train` runs it; but for trained networks with fresh weights, firing
at 16 %. Where the conditions are the same, all contestants keep freed memory between steps, as `picojoule train` does;
in (d) only ours does, and four steps are one turn. The peers are those that are installed:
pip install -c constraints.txt spikingjelly snntorch

python benchmarks/training.py [--models cnn7 vgg11] [--precisions fp32 bf16] [--turns 15] [--parts steps] [--threads 2]

Everything about silence, in half an hour on two idle cores, as long again where FOLDER lacks networks. Each section of
the page is measured by itself and replaces the one of its title, so that parts and models can be had one by one:

python benchmarks/training.py --parts silence runs scaling memory curve --trained FOLDER --turns 5 \\
    --models cnn7 vgg11 resnet18 --page docs/how-to/training-speed.md --chart docs/images/training-silence.png
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import curve
import peak
import scaling
import silence
import torch
import torch.nn.functional as F
import trained
from timing import Timings, console, describe_machine, interleaved
from torch import Tensor, nn

import picojoule as pj
from picojoule.data import Batches, Images, Normalization, RandAugment
from picojoule.data.batches import POOL
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.event_driven.layers import choices
from picojoule.training.optimizers import Adam

BATCH = 100
Step = Callable[[], None]
Loss = Callable[[Tensor, Tensor], Tensor]


def replaced(net: nn.Module, kinds: tuple[type[nn.Module], ...], build: Callable[[nn.Module], nn.Module]) -> nn.Module:
    for name, module in list(net.named_modules()):
        if isinstance(module, kinds):
            parent, _, leaf = name.rpartition(".")
            setattr(net.get_submodule(parent), leaf, build(module))
    return net


def stepper(
    net: nn.Module,
    loss: Loss,
    batches: Iterator[tuple[Tensor, Tensor]],
    layout: torch.memory_format,
    lr: float = 1e-4,
    optimizer: type[torch.optim.Adam] = Adam,
) -> Step:
    net = net.to(memory_format=layout)
    adam = optimizer(net.parameters(), lr=lr)

    def step() -> None:
        images, labels = next(batches)
        adam.zero_grad()
        loss(images.contiguous(memory_format=layout), labels).backward()
        adam.step()

    return step


def same_batch(shape: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    images, labels = torch.randn(BATCH, *shape), torch.randint(10, (BATCH,))
    for layout in (torch.contiguous_format, torch.channels_last):
        images = images.contiguous(memory_format=layout)
    while True:
        yield images, labels


def data(shape: tuple[int, ...]) -> Step:
    """Ten batches as `picojoule train` makes them with `data.augment = true`."""
    pixels = torch.randint(256, (POOL * BATCH, *shape), dtype=torch.uint8)
    part = Images(pixels, torch.randint(10, (len(pixels),)))
    mean, deviation = ((value,) * shape[0] for value in (0.3, 0.3))
    batches = Batches(part, BATCH, Normalization(mean, deviation), seed=0, augment=RandAugment())
    epochs = itertools.count()

    def draw() -> None:
        for images, _ in batches.epoch(next(epochs)):
            images.contiguous(memory_format=torch.channels_last)

    return draw


def cross_entropy(net: nn.Module, precision: str) -> Loss:
    def loss(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            return F.cross_entropy(net(images), labels)

    return loss


def penalised(net: nn.Module, precision: str, shape: tuple[int, ...]) -> Loss:
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, *shape)))
    packed = bool(choices(net))  # as `picojoule train` does it

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            with pj.watch(net, packed=packed) as activity:
                logits = net(images)
            return F.cross_entropy(logits, labels) + penalty(activity)

    return loss


def alone(name: str) -> nn.Module:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.ReLU)
    return replaced(pj.zoo.create(name, neuron=nn.ReLU), kinds, lambda module: nn.Identity())


def as_peers_write_it(name: str, neuron: Callable[[], nn.Module]) -> nn.Module:
    """The same network with a peer's neuron and PyTorch's dropout."""
    return replaced(pj.zoo.create(name, neuron=neuron), (nn.Dropout,), lambda module: nn.Dropout(module.p))


def spikingjelly(name: str, precision: str) -> tuple[nn.Module, Loss]:
    from spikingjelly.activation_based import functional, neuron, surrogate

    net = as_peers_write_it(name, lambda: neuron.IFNode(v_reset=None, surrogate_function=surrogate.Sigmoid()))
    loss = cross_entropy(net, precision)

    def fresh(images: Tensor, labels: Tensor) -> Tensor:
        functional.reset_net(net)  # one step a batch: no potential is carried over
        return loss(images, labels)

    return net, fresh


def snntorch(name: str, precision: str) -> tuple[nn.Module, Loss]:
    import snntorch as snn
    from snntorch import surrogate, utils

    net = as_peers_write_it(name, lambda: snn.Leaky(beta=0.0, spike_grad=surrogate.sigmoid(), init_hidden=True))
    loss = cross_entropy(net, precision)

    def fresh(images: Tensor, labels: Tensor) -> Tensor:
        utils.reset(net)
        return loss(images, labels)

    return net, fresh


PEERS = {"spikingjelly": spikingjelly, "snntorch": snntorch}


def contestant(who: str, name: str, precision: str, layout: torch.memory_format = torch.channels_last) -> Step:
    """A training step of one of them, ready to be taken again and again."""
    torch.manual_seed(0)
    shape = pj.zoo.create(name).input_shape
    if who in ("ours", "ours, dense"):
        net = pj.zoo.create(name)
        if who == "ours":
            pj.sparse(net)
        loss = penalised(net, precision, shape)
    elif who in PEERS:
        net, loss = PEERS[who](name, precision)
    else:
        net = alone(name) if who == "convs and linears" else pj.zoo.create(name, neuron=nn.ReLU)
        loss = cross_entropy(net, precision)
    return stepper(net, loss, same_batch(shape), layout, optimizer=optimizer_of(who))


def optimizer_of(who: str) -> type[torch.optim.Adam]:
    """The twin and the peers train as PyTorch users train them; what shares our kernels has our Adam too."""
    return torch.optim.Adam if who == "relu twin" or who in PEERS else Adam


def alike(name: str, precision: str, peers: list[str], turns: int) -> Timings:
    """Everybody in the same precision, layout and treatment of memory."""
    steps = {
        who: contestant(who, name, precision)
        for who in ("ours", "ours, dense", "relu twin", "convs and linears", *peers)
    }
    steps["ten batches"] = data(pj.zoo.create(name).input_shape)
    with retain_freed_memory():
        return interleaved(steps, turns, title=f"{name} {precision}")


def as_they_come(name: str, precision: str, peers: list[str], turns: int) -> Timings:
    ours = contestant("ours", name, precision)
    theirs = {who: contestant(who, name, "fp32", torch.contiguous_format) for who in peers}

    def four(step: Step) -> None:
        for _ in range(4):
            step()

    def four_kept() -> None:
        with retain_freed_memory():
            four(ours)

    peers_turns = {who: lambda step=step: four(step) for who, step in theirs.items()}
    return interleaved({"ours": four_kept, **peers_turns}, -(-turns // 4), title=f"{name} as it comes")


def fastest(times: Timings, names: list[str]) -> str:
    return min(names, key=times.median)


def native_bfloat16() -> bool:
    """Whether the machine computes in it itself: emulated, a step takes many times as long."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    native = native_bfloat16()
    parser.add_argument("--models", nargs="+", default=["cnn7", "vgg11"], choices=pj.zoo.names())
    parser.add_argument("--precisions", nargs="+", default=["fp32", *(["bf16"] * native)], choices=["fp32", "bf16"])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=[*CLOCKS], default="wall", help="processor: on a busy machine, one thread")
    parser.add_argument("--parts", nargs="+", default=["steps"], choices=["steps", *SILENCE])
    parser.add_argument("--kinds", nargs="+", default=[*silence.RATES], choices=[*silence.RATES])
    parser.add_argument("--trained", type=Path, help="folder of networks to measure, trained there where it lacks them")
    parser.add_argument("--runs", nargs="+", type=Path, default=[], help="other runs to measure")
    parser.add_argument("--seeds", nargs="+", type=int, default=[*trained.SEEDS], help="of whole runs")
    parser.add_argument("--chart", type=Path, help="where the curve is drawn, such as docs/images/training-silence.png")
    parser.add_argument("--page", type=Path, help="a page whose sections of these titles are replaced")
    options = parser.parse_args()
    if options.clock == "processor" and (options.threads > 1 or {*options.parts} - {"silence", "curve", "memory"}):
        parser.error("processor time says what a step takes on one thread: --threads 1, --parts silence curve memory")
    if options.page is not None:
        measured_sections(options.page.read_text(encoding="utf-8"))  # refused before hours are spent
    torch.set_num_threads(options.threads)
    default_precision = "bf16" if native else "fp32"
    machine = f"{describe_machine()}; batch {BATCH}, forward, backward and Adam"
    console.print(machine)
    if not native:
        console.print("no native bfloat16 here: what `picojoule train` takes by itself is fp32")
    peers = [peer for peer in PEERS if importlib.util.find_spec(peer) is not None]
    for peer in PEERS.keys() - set(peers):
        console.print(f"{peer} is not installed and not measured")
    for name in options.models if "steps" in options.parts else ():
        for precision in options.precisions:
            report(f"{name:9} {precision}", name, precision, peers, options.turns)
        if peers:
            times = as_they_come(name, default_precision, peers, options.turns)
            console.print(f"{name:9} (d) as they come, {times.line('ours', fastest(times, peers))}")
    measured = f"Measured by `{_command()}` on {machine}. "
    if options.clock == "processor":
        measured += "Others used the machine, so seconds are processor time. "
    measured += f"Medians of {options.turns} interleaved turns, in brackets the quartiles of the single turns' ratios."
    for part in (part for part in SILENCE if part in options.parts):
        for title, lines in _sections(part, options, peers):
            if options.page is not None:  # after every section, for the next one may be stopped
                page = options.page.read_text(encoding="utf-8")
                text = "\n".join([measured, "", *lines])
                options.page.write_text(with_measured(page, title, text), encoding="utf-8")


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
SILENCE = {
    "silence": "A training step of {model}, by how silent it is",
    "runs": "Whole runs of CNN7 on Fashion-MNIST",
    "scaling": "Two threads",
    "memory": "Peak memory of a step in float32",
    "curve": "A step's time over the share of active synapses",
}
"""The parts about silence, in their order, and the titles of their sections."""


def _sections(part: str, options: argparse.Namespace, peers: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Measure one of these parts; for each section its title, and its tables as Markdown."""
    if part != "silence":
        console.print(f"\n{SILENCE[part]}\n")
        yield SILENCE[part], _table(part, options)
        return
    runs = options.runs + (trained.trained(options.models, options.trained) if options.trained else [])
    for model in options.models:
        title = SILENCE[part].format(model=model)
        console.print(f"\n{title}\n")
        rows = silence.rows_for([model], options.kinds, runs)
        lines: list[str] = []
        for chosen in ([row for row in rows if row.kind != "busy"], [row for row in rows if row.kind == "busy"]):
            if chosen:
                lines += [
                    *silence.table(chosen, options.precisions, BATCH, peers, options.turns, CLOCKS[options.clock]),
                    "",
                ]
        yield title, lines[:-1]


def _table(part: str, options: argparse.Namespace) -> list[str]:
    """Measure a part of one section."""
    if part == "scaling":
        return scaling.table(options.precisions, options.turns)
    if part == "curve":
        clock = CLOCKS[options.clock]
        chart = curve.table(options.models[0], options.precisions, BATCH, options.turns, clock, options.chart)
        return [*_picture(options), *chart]
    lines = trained.whole_runs(options.threads, options.seeds) if part == "runs" else memory(options.models)
    for line in lines:
        console.print(line, highlight=False)
    return lines


def _picture(options: argparse.Namespace) -> list[str]:
    """The chart, as the page shows it."""
    if options.chart is None or options.page is None:
        return []
    text = "A step's time over active synapses: a falling line beside flat ones"
    return [f"![{text}]({Path(os.path.relpath(options.chart, options.page.parent)).as_posix()})", ""]


def _command() -> str:
    """This command, as somebody else can repeat it."""
    places = {"--trained": "FOLDER", "--runs": "RUN…"}
    words: list[str] = []
    option = ""
    for word in sys.argv[1:]:
        option = word if word.startswith("--") else option
        if option not in places or word == option:
            words.append(word)
        elif words[-1] == option:  # for all that stand behind it
            words.append(places[option])
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measured_sections(page: str) -> tuple[str, dict[str, str], str]:
    """What stands before a page's measured part, its sections by their titles, and what stands behind."""
    before, begin, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page has no {BEGIN} with {END} behind it: give docs/how-to/training-speed.md")
    _, *parts = re.split(r"^### (.+)\n", inside, flags=re.MULTILINE)
    sections = {title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}
    return before, sections, after


def with_measured(page: str, title: str, text: str) -> str:
    """The page with one measured section in place of what it had under this title; the others stay."""
    before, sections, after = measured_sections(page)
    sections[title] = text
    inside = "\n\n".join(f"### {title}\n\n{text}" for title, text in sections.items())
    return f"{before}{BEGIN}\n\n{inside}\n\n{END}{after}"


def memory(models: list[str]) -> list[str]:
    """Peak memory of a penalised step in float32, each contestant in a process of its own, as a Markdown table."""
    lines = [
        "| network | skips silence, packed spikes [MiB] | dense layers [MiB] | ratio | ReLU twin [MiB] |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in models:
        peaks = [peak.growth(contestant, who, name, "fp32", warmup=2) for who in ("ours", "ours, dense", "relu twin")]
        ours, dense, twin = (bytes_of / 2**20 for bytes_of in peaks)
        lines.append(f"| {name} | {ours:.0f} | {dense:.0f} | {ours / dense:.2f} | {twin:.0f} |")
    return lines


def report(title: str, name: str, precision: str, peers: list[str], turns: int) -> None:
    times = alike(name, precision, peers, turns)
    console.print(f"{title} (a) {times.line('ours', 'relu twin')}")
    console.print(f"{title}     {times.line('ours', 'ours, dense')}")
    console.print(f"{title} (b) {times.line('ours', 'convs and linears')}")
    for peer in peers:
        first = " (c)" if peer == fastest(times, peers) else "    "
        console.print(f"{title}{first} {times.line('ours', peer)}")
    share = times.median("ten batches") / POOL / times.median("ours")
    console.print(f"{title} (e) data and augmentation take {share:.2%} of our step")
    rivals = ("ours, dense", "relu twin", *peers)
    peaks = {who: peak.growth(contestant, who, name, precision, warmup=2) for who in ("ours", *rivals)}
    for who in rivals:
        megabytes = f"{peaks['ours'] / 2**20:.0f} MiB : {peaks[who] / 2**20:.0f} MiB"
        console.print(f"{title} (f) peak memory, ours : {who} = {peaks['ours'] / peaks[who]:.3f}; {megabytes}")


if __name__ == "__main__":
    main()
