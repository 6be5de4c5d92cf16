"""One table of what picojoule and its peers take for the same network: step, memory, inference, metering.

For each network: a training step of 100 images (forward, backward, Adam; ours with Ω_syn), its peak memory in a process
of its own, inference of 100 images, and what each tool's counter makes of the inference of one and the same network,
ours (snnTorch has no counter). All channels last, taking turns, in float32; steps in bfloat16 too, where the machine
has it. The event engine answers one image after the other on one core, for a network that fires at 2 %. The peers are
those that are installed (`make peers` does it).

python benchmarks/comparison.py [--models cnn7 vgg11 resnet18] [--turns 9] [--out results/speed.md]
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path

import peak
import torch
from activity import firing_at
from counters import COUNTERS, installed
from timing import Timings, console, describe_machine, interleaved
from torch import nn

import picojoule as pj
from agreement import measuring, plain
from picojoule.deploy import events
from picojoule.kernels.allocator import retain_freed_memory
from training import BATCH, PEERS, contestant, native_bfloat16

QUIET = 0.02
Turns = dict[str, Callable[[], None]]
Row = tuple[str, ...]
TITLES: Row = (
    *("network", "precision", "tool", "step [s]", "ours : it", "peak memory [MiB]", "ours : it"),
    *("inference [s]", "ours : it", "our network, counted by it [s]", "counted : uncounted"),
)


def peers() -> list[str]:
    return [peer for peer in PEERS if importlib.util.find_spec(peer) is not None]


def inference(name: str) -> Turns:
    """Answers to 100 images, and the same with what each tool's counter adds."""
    torch.manual_seed(0)
    shape = pj.zoo.create(name).input_shape
    images = [torch.randn(BATCH, *shape).contiguous(memory_format=torch.channels_last)]
    turns: Turns = {}
    for who in ("ours", *peers()):
        net = (pj.zoo.create(name) if who == "ours" else PEERS[who](name, "fp32")[0]).eval()
        turns[who] = plain(_last(net), images)
    for tool in installed():
        turns[f"{tool} counts"] = measuring(tool, _last(pj.zoo.create(name).eval()), images)
    return turns


def _last(net: nn.Module) -> nn.Module:
    return net.to(memory_format=torch.channels_last)


def spikes_only(name: str) -> Turns:
    """One image after the other on one core, the event engine against PyTorch."""
    torch.manual_seed(0)
    images = torch.randn(16, *pj.zoo.create(name).input_shape)
    net = firing_at(name, QUIET, images)
    engine = events.compile(net, images[:1])

    def dense() -> None:
        with torch.inference_mode():
            for image in images.split(1):
                net(image)

    def walked() -> None:
        for image in images.split(1):
            engine(image)

    return {"events": walked, "dense": dense}


def rows(name: str, precisions: list[str], turns: int) -> tuple[list[Row], str]:
    everybody = ["ours", *peers()]
    with retain_freed_memory():
        answers = interleaved(inference(name), turns, title=f"{name} inference")
    table: list[Row] = []
    for precision in precisions:
        with retain_freed_memory():
            contestants = {who: contestant(who, name, precision) for who in everybody}
            steps = interleaved(contestants, turns, title=f"{name} steps, {precision}")
        peaks = {who: peak.growth(contestant, who, name, precision, warmup=2) / 2**20 for who in everybody}
        for who in everybody:
            tool = "picojoule" if who == "ours" else who
            table.append(
                (
                    *(name, precision, tool, f"{steps.median(who):.3f}", _ratio(steps, who)),
                    *(f"{peaks[who]:.0f}", "" if who == "ours" else f"{peaks['ours'] / peaks[who]:.2f}"),
                    *(_answering(answers, who) if precision == "fp32" else ("–",) * 4),
                )
            )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    single = interleaved(spikes_only(name), turns, title=f"{name} events")
    torch.set_num_threads(threads)
    milliseconds = {who: 1000 * single.median(who) / 16 for who in single.seconds}
    quicker = milliseconds["dense"] / milliseconds["events"]
    line = (
        f"{name}: {milliseconds['events']:.2f} ms an image by the event engine, {milliseconds['dense']:.2f} ms by "
        f"PyTorch, {quicker:.1f} times as long"
    )
    return table, line


def _ratio(timings: Timings, who: str) -> str:
    if who == "ours":
        return ""
    low, _, high = timings.ratio("ours", who)
    return f"{timings.median('ours') / timings.median(who):.2f} ({low:.2f} – {high:.2f})"


def _answering(answers: Timings, who: str) -> Row:
    counter = {"ours": "picojoule", "spikingjelly": "SpikingJelly"}.get(who, "")
    counts = f"{counter} counts"
    counted = ("–", "–")
    if counter in COUNTERS and counts in answers.seconds:
        counted = (f"{answers.median(counts):.3f}", f"{answers.median(counts) / answers.median('ours'):.2f}")
    return f"{answers.median(who):.3f}", _ratio(answers, who), *counted


def page(tables: list[Row], lines: list[str], turns: int) -> str:
    text = [
        "# Speed and memory beside the peers",
        "",
        f"Made by `python benchmarks/comparison.py` on {describe_machine()}. Batches of {BATCH} images, "
        f"channels last; medians of {turns} interleaved turns, in brackets the quartiles of single turns.",
        "",
        "| " + " | ".join(TITLES) + " |",
        "|---|---|---|" + "---:|" * (len(TITLES) - 3),
        *("| " + " | ".join(row) + " |" for row in tables),
        "",
        f"One image at a time on one core, networks that fire at {QUIET:.0%}:",
        "",
        *(f"- {line}" for line in lines),
    ]
    return "\n".join(text) + "\n"


def written_by_hand(path: Path) -> str:
    """What stands behind the tables of a page that is there already: everything from its first section on."""
    _, section, rest = (path.read_text(encoding="utf-8") if path.exists() else "").partition("\n## ")
    return section + rest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(pj.zoo.names()), choices=pj.zoo.names())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the page there")
    options = parser.parse_args()
    tables: list[Row] = []
    lines = []
    for name in options.models:
        table, line = rows(name, ["fp32", *(["bf16"] * native_bfloat16())], options.turns)
        tables += table
        lines.append(line)
    text = page(tables, lines, options.turns)
    console.print(text)
    if options.out is not None:
        options.out.write_text(text + written_by_hand(options.out), encoding="utf-8")


if __name__ == "__main__":
    main()
