"""picojoule beside the counters of sinabs, SpikingJelly, NeuroBench, Norse and syops: what they count, and how long.

The same networks, weights and images for every tool; by layer of synapses, accumulates a sample. Where a tool differs
the reason is named, and a difference without a known reason ends the script with status 1. Then the time to measure
VGG11 on 1 000 images against plain inference, and the growth of memory with the number of batches. sinabs needs an
environment of its own, whose Python is given by --sinabs.

python benchmarks/agreement.py [--sinabs PYTHON] [--images 1000] [--turns 5] [--out results/agreement.md]

With --turns 0 memory and times are left out.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from counters import COUNTERS, Counts, installed, measure, synaptic_layers, version_of
from peak import memory
from timing import Timings, describe_machine, interleaved
from torch import Tensor, nn
from torch.nn.utils import prune

import picojoule as pj

BATCH = 100
SAME = 1e-6
"""Relative: the peers add up in float32."""

PIXELS = "pixels are no spikes: picojoule counts them apart, as multiply-accumulates"
TOOLS = {
    "sinabs": "value × fan-out",
    "SpikingJelly": "counted as MACs",
    "NeuroBench": "counted as MACs",
    "Norse": "value × weights",
    "syops": "counted as MACs",
    "rule of thumb": "mean × dense",
}
AVERAGED = "behind an average pool the values are no longer 0 and 1, so the layer becomes MACs and drops out"
SEVERAL = "a value of 2 (several spikes, or a sum of two paths) is not binary, so the layer becomes MACs and drops out"
WEIGHTS = "counts every weight, also those that pruning set to zero"
FLAT = "takes flat Sequentials only"
KERNEL = "charges every spike all weights of its channel, whatever stride, padding and borders leave of them"
MEAN = "multiplies mean and dense operations, as if spikes were spread evenly and borders reached as far as the middle"
SHARE = "counts a spike behind a mean as its share of one, though it reaches as many synapses"
FUNCTION = "reads layers of weights, and a product of two activations is a function"
ONE_RATE = "multiplies the dense operations by the rate of one operand, as if the other always fired"
ACCIDENT = (
    "where KᵀV happens to hold only 0 and 1, it is taken for spikes, and Q·(KᵀV) for pairs: the count falls by the data"
)
BY_FORMULA = {"Norse": KERNEL, "syops": MEAN, "rule of thumb": MEAN}
"""Why a tool differs at a convolution: its formula has another number by its nature."""


@dataclass(frozen=True, eq=False)
class Case:
    """One network and its images."""

    title: str
    build: Callable[[], nn.Module]
    images: Callable[[], list[Tensor]]
    encoder: str | None = None
    """The layer that pixels enter."""
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why a tool differs at a layer: by (tool, layer)."""


def events(*shape: int) -> Callable[[], list[Tensor]]:
    return lambda: [(torch.rand(32, *shape, generator=_generator(i)) < 0.2).float() for i in range(2)]


def pixels(*shape: int) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randn(8, *shape, generator=_generator(i)) for i in range(2)]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def settings() -> nn.Module:
    """Every setting of a convolution."""
    return nn.Sequential(
        pj.declare_spiking(nn.Identity()),
        nn.Conv2d(2, 8, 3, padding=1),
        pj.Spike(0.1),
        nn.Conv2d(8, 16, 5, stride=2, padding=2, groups=4),
        pj.Spike(0.1),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, dilation=2, padding=1),
        pj.Spike(0.1),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 10),
    )


def pruned() -> nn.Module:
    net = settings()
    prune.random_unstructured(net[3], "weight", amount=0.5)
    return net


def several_spikes() -> nn.Module:
    return nn.Sequential(pj.declare_spiking(nn.Identity()), nn.Linear(40, 10))


def zoo(name: str) -> Callable[[], nn.Module]:
    """With the statistics of its own activity in the batch norms, so that every layer fires."""

    def build() -> nn.Module:
        net = pj.zoo.create(name)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.momentum = 1.0
        with torch.no_grad():
            net.train()(torch.randn(32, *net.input_shape, generator=_generator(9)))
        return net

    return build


class Attention(nn.Module):
    """Q·(Kᵀ V) of the spikes [B, 3, tokens, heads · width] that are given."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (pj.declare_spiking(nn.Identity()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        parts = zip((self.q, self.k, self.v), x.unbind(1), strict=True)
        q, k, v = (fire(part).unflatten(2, (HEADS, -1)).transpose(1, 2) for fire, part in parts)
        return q @ (k.mT @ v)


HEADS, TOKENS, EMBEDDED = 8, 196, 512


def attended(q: float, k: float, v: float) -> Callable[[], list[Tensor]]:
    """Four samples of random spikes at these rates."""

    def draw() -> list[Tensor]:
        drawn = torch.rand(4, 3, TOKENS, EMBEDDED, generator=_generator(0))
        return [(drawn < torch.tensor([q, k, v]).view(1, 3, 1, 1)).float()]

    return draw


def seeded(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def built() -> nn.Module:
        torch.manual_seed(0)
        return build().eval()

    return built


def differing(layers: str, reason: str, *tools: str) -> dict[tuple[str, str], str]:
    return {(tool, layer): reason for layer in layers.split() for tool in tools}


CASES: tuple[Case, ...] = (
    Case("convolutions of every setting, a max pool, a linear layer; events", settings, events(2, 28, 28)),
    Case("CNN7; pixels", zoo("cnn7"), pixels(1, 32, 32), "conv1"),
    Case(
        "VGG11, average pools; pixels",
        zoo("vgg11"),
        pixels(3, 32, 32),
        "conv1",
        differing("conv2 conv4 conv6 conv7", AVERAGED, "SpikingJelly", "NeuroBench", "syops")
        | differing("conv2 conv4 conv6 conv7", SHARE, "Norse", "rule of thumb"),
    ),
    Case(
        "ResNet18, sums of paths; pixels",
        zoo("resnet18"),
        pixels(3, 32, 32),
        "conv1",
    ),
    Case(
        "the first network with half the weights of its second convolution pruned; events",
        pruned,
        events(2, 28, 28),
        None,
        differing("3", WEIGHTS, "sinabs", "SpikingJelly"),
    ),
    Case(
        "two spikes in one value; events",
        several_spikes,
        lambda: [torch.randint(3, (64, 40), generator=_generator(0)).float()],
        None,
        differing("1", SEVERAL, "SpikingJelly", "NeuroBench", "syops"),
    ),
)


PRODUCTS = {
    **differing("products", FUNCTION, "NeuroBench", "Norse", "syops"),
    **differing("products", ONE_RATE, "rule of thumb"),
}
BLOCKS = ("blocks.0", "blocks.1")
STREAM = " ".join(f"{block}.{x}.conv" for block in BLOCKS for x in ("attention.q", "attention.k", "attention.v", "up"))
CASES += (
    Case(
        "attention Q·(KᵀV) of a block of Spikingformer-8-512, one time step; rates 0.172, 0.036 and 0.070",
        Attention,
        attended(0.172, 0.036, 0.070),
        None,
        PRODUCTS,
    ),
    Case(
        "the same, with keys and values of a thirtieth of the rate",
        Attention,
        attended(0.172, 0.0012, 0.0023),
        None,
        PRODUCTS | differing("products", ACCIDENT, "SpikingJelly"),
    ),
    Case(
        "Spikformer of picojoule's zoo: sums of spikes, attention; pixels",
        zoo("spikformer"),
        pixels(1, 32, 32),
        "conv1",
        {
            **differing(STREAM, SEVERAL, "SpikingJelly", "NeuroBench", "syops"),
            **differing("classify", AVERAGED, "SpikingJelly", "NeuroBench", "syops"),
            **differing("classify", SHARE, "Norse", "rule of thumb"),
            **{(tool, f"{b}.attention products"): why for b in BLOCKS for (tool, _), why in PRODUCTS.items()},
        },
    ),
)


# ------------------------------------------------------------------------------------------------------------- measured


def counted() -> list[dict[str, Counts]]:
    """By case and tool, of the tools that are installed here."""
    return [
        {tool: measure(tool, _network(tool, case), case.images()) for tool in installed() if _takes(tool, case)}
        for case in CASES
    ]


def _network(tool: str, case: Case) -> Callable[[], nn.Module]:
    """The others read weights, so pruning is made permanent for them; picojoule reads its masks."""

    def build() -> nn.Module:
        net = seeded(case.build)()
        for module in net.modules():
            if tool != "picojoule" and hasattr(module, "weight_mask"):
                prune.remove(module, "weight")
        return net

    return build


@functools.cache
def convolutions(case: Case) -> set[str]:
    """The layers in which some spikes reach less than others."""
    found = synaptic_layers(case.build())
    return {
        name
        for name, module in found.items()
        if isinstance(module, nn.Conv2d) and max(*module.kernel_size, *module.stride) > 1
    }


def _takes(tool: str, case: Case) -> bool:
    return tool != "sinabs" or isinstance(seeded(case.build)(), nn.Sequential)


def timed(images: int, turns: int) -> dict[str, list[float]]:
    """Seconds to measure VGG11 on that many images: fp32, channels last, batches of 100, one network for each tool."""
    batches = [
        torch.randn(min(BATCH, images - first), 3, 32, 32, generator=_generator(first)).contiguous(
            memory_format=torch.channels_last
        )
        for first in range(0, images, BATCH)
    ]

    def network() -> nn.Module:
        return seeded(zoo("vgg11"))().to(memory_format=torch.channels_last)

    contestants = {"plain": plain(network(), batches)}
    contestants |= {tool: measuring(tool, network(), batches) for tool in installed()}
    return dict(interleaved(contestants, turns, warmup=1, title="VGG11").seconds)


def plain(net: nn.Module, batches: list[Tensor]) -> Callable[[], None]:
    @torch.no_grad()
    def run() -> None:
        for batch in batches:
            net(batch)

    return run


def measuring(tool: str, net: nn.Module, batches: list[Tensor]) -> Callable[[], None]:
    counter = COUNTERS[tool](net, batches[0][:1])

    @torch.no_grad()
    def run() -> None:
        for batch in batches:
            with counter.counting():
                net(batch)
            counter.update(batch)
        counter.counts()

    return run


def growth() -> dict[str, float]:
    """MiB by which the memory of this process grows from the 5th to the 25th batch of CNN7, by tool."""
    return {tool: _growth(tool) for tool in installed()}


def _growth(tool: str) -> float:
    run = measuring(tool, seeded(zoo("cnn7"))(), [torch.randn(20, 1, 32, 32, generator=_generator(0))] * 5)
    run()
    gc.collect()
    before = memory("VmRSS")
    for _ in range(4):
        run()
    gc.collect()
    return (memory("VmRSS") - before) / 2**20


def everything(images: int, turns: int) -> dict[str, Any]:
    packages = {tool: version_of(tool) for tool in installed()}
    with redirect_stdout(sys.stderr):  # some tools print, and standard output holds the result
        return {
            "versions": packages,
            "counted": counted(),
            "growth": growth() if turns else {},
            "seconds": timed(images, turns) if turns else {},
        }


def from_another(python: str, images: int, turns: int) -> dict[str, Any]:
    """The same in another environment."""
    command = [python, __file__, "--json", f"--images={images}", f"--turns={turns}"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


# -------------------------------------------------------------------------------------------------------------- written


class Page:
    """The tables as Markdown, and whether every difference has its reason."""

    def __init__(self, environments: list[dict[str, Any]], images: int) -> None:
        self.environments, self.images = environments, images
        self.versions = {tool: v for e in environments for tool, v in e["versions"].items()}
        self.unexplained: list[str] = []

    def text(self) -> str:
        parts = [self._head(), *(self._case(i, case) for i, case in enumerate(CASES))]
        if all(environment["seconds"] for environment in self.environments):
            parts += [self._memory(), self._speed()]
        return "\n\n".join(parts) + "\n"

    def _head(self) -> str:
        versions = ", ".join(f"{tool} {self.versions[tool]}" for tool in COUNTERS if tool in self.versions)
        return (
            "# Agreement with other tools\n\n"
            f"Made by `benchmarks/agreement.py` ({describe_machine()}) with {versions}.\n\n"
            "Synaptic operations a sample, by the layer of synapses that the spikes enter; the same networks, weights "
            "and images for every tool. `=` means the same number to one in a million: sinabs and NeuroBench add up in "
            "float32, picojoule and SpikingJelly in whole numbers. Every other number has its reason below its table."
        )

    def _case(self, index: int, case: Case) -> str:
        by_tool: dict[str, Counts] = {}
        for environment in self.environments:
            for tool, counts in environment["counted"][index].items():
                if tool == "picojoule" and by_tool.get(tool, counts) != counts:
                    raise RuntimeError(f"{case.title}: the environments do not show the same spikes")
                by_tool[tool] = counts
        tools = [tool for tool in COUNTERS if tool in self.versions]
        lines = [f"## {case.title}", "", "| layer | " + " | ".join(tools) + " |", "|---|" + "---:|" * len(tools)]
        notes: dict[str, set[str]] = {}
        for layer, ours in by_tool["picojoule"].items():
            cells = [self._cell(case, tool, layer, ours, by_tool.get(tool), notes) for tool in tools[1:]]
            lines.append(f"| {layer} | {ours:,.2f} | " + " | ".join(cells) + " |")
        lines += ["", *(f"- {', '.join(sorted(who))}: {reason}." for reason, who in notes.items())]
        return "\n".join(lines).rstrip()

    def _cell(
        self, case: Case, tool: str, layer: str, ours: float, counts: Counts | None, notes: dict[str, set[str]]
    ) -> str:
        if counts is None:
            notes.setdefault(FLAT, set()).add(tool)
            return "–"
        theirs = counts.get(layer, 0.0)
        if layer == case.encoder:
            notes.setdefault(PIXELS, set()).add(f"{tool} ({TOOLS[tool]})")
            return f"{theirs:,.2f}"
        if math.isclose(ours, theirs, rel_tol=SAME):
            return "="
        reason = case.reasons.get((tool, layer)) or (BY_FORMULA.get(tool) if layer in convolutions(case) else None)
        if reason is None:
            self.unexplained.append(f"{case.title}, {layer}: picojoule {ours}, {tool} {theirs}")
            reason = "unexplained"
        notes.setdefault(reason, set()).add(tool)
        return f"{theirs:,.2f}"

    def _speed(self) -> str:
        lines = [
            "## Speed",
            "",
            f"Measuring VGG11 on {self.images:,} images against plain inference: fp32, channels last, batches of "
            f"{BATCH}, in turns within one process. Ratio of the medians, and the quartiles of the single turns.",
            "",
            "| measured by | seconds | : plain inference | quartiles | picojoule : this tool | quartiles |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for environment in self.environments:
            timings = Timings(environment["seconds"])
            for tool in environment["versions"]:
                low, _, high = timings.ratio(tool, "plain")
                against = f"{timings.median('picojoule') / timings.median(tool):.3f}"
                best, _, worst = timings.ratio("picojoule", tool)
                lines.append(
                    f"| {tool} | {timings.median(tool):.2f} | {timings.median(tool) / timings.median('plain'):.3f} | "
                    f"{low:.3f} – {high:.3f} | "
                    + ("| |" if tool == "picojoule" else f"{against} | {best:.3f} – {worst:.3f} |")
                )
        return "\n".join(lines)

    def _memory(self) -> str:
        grown = {tool: mib for e in self.environments for tool, mib in e["growth"].items()}
        values = ", ".join(f"{tool} {grown[tool]:+.1f} MiB" for tool in COUNTERS if tool in grown)
        return f"## Memory\n\nGrowth of the process from the 5th to the 25th batch of 20 images of CNN7: {values}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sinabs", metavar="PYTHON", help="the Python of the environment that has sinabs")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--json", action="store_true", help="print what was measured here as JSON")
    options = parser.parse_args()
    here = everything(options.images, options.turns)
    if options.json:
        print(json.dumps(here))
        return
    environments = [here]
    if options.sinabs:
        environments.append(from_another(options.sinabs, options.images, options.turns))
    page = Page(environments, options.images)
    text = page.text()
    print(text)
    if page.unexplained:
        sys.exit("without a known reason: " + "; ".join(page.unexplained))
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
