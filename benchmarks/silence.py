"""What a penalised training step costs by how silent the network is: part of `benchmarks/training.py`.

All take the same batches in turns: ours (`pj.sparse`), our dense path, the dense ReLU twin in PyTorch's own layers and
with PyTorch's Adam, that twin with `pj.sparse` and our Adam, and the peers that are installed. A network is one that
was trained (`trained`), shown its own training images, or fresh weights with β of every batch norm set so that each
spiking layer fires at the wanted rate. The learning rate is 0, so that the activity stays what it is; everything is
computed all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import torch
from timing import Clock, Timings, console, interleaved
from torch import Tensor, nn

import picojoule as pj
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.event_driven.layers import choices
from picojoule.kernels.torch_private import BatchNorm

RATES = {"baseline": 0.12, "penalised": 0.015, "busy": 0.6}
"""Firing rates of the rows of the table, for networks that nobody has trained."""
BATCHES = 4
RIVALS = ("relu twin", "ours, dense", "relu twin, sparse")
Batch = tuple[Tensor, Tensor]

GOALS: dict[tuple[str, str], dict[str, str]] = {
    ("cnn7", "baseline"): {"fp32": "≤ 0.60, aim 0.50", "bf16": "≤ 0.75, aim 0.62"},
    ("cnn7", "penalised"): {"fp32": "≤ 0.45, aim 0.40", "bf16": "≤ 0.55, aim 0.48"},
    ("vgg11", "baseline"): {"fp32": "≤ 0.75"},
    ("vgg11", "penalised"): {"fp32": "≤ 0.60"},
    ("resnet18", "baseline"): {"fp32": "≤ 0.75"},
    ("resnet18", "penalised"): {"fp32": "≤ 0.60"},
}
"""What was asked of ours : ReLU twin before anything was built, by model and kind; 1.03 at most for a busy network."""


@dataclass(frozen=True)
class Row:
    """A network to be measured, by its model and either a firing rate or the folder of its run."""

    title: str
    model: str
    kind: str
    rate: float | None = None
    run: Path | None = None

    def build(self, neuron: type[nn.Module] = pj.Spike) -> nn.Module:
        torch.manual_seed(0)
        recipe = pj.Run.at(self.run).recipe if self.run is not None else None
        classes, channels = (recipe.classes, recipe.input_shape[0]) if recipe is not None else (10, None)
        net = pj.zoo.create(self.model, classes, channels, neuron)
        if self.run is not None and neuron is pj.Spike:
            net.load_state_dict(pj.Run.at(self.run).weights)
        elif self.rate is not None:
            for norm in (m for m in net.modules() if isinstance(m, BatchNorm)):
                # Batch norm makes potentials of mean β and variance 1.
                nn.init.constant_(norm.bias, 1 + NormalDist().inv_cdf(self.rate))
        return net

    def batches(self, size: int) -> list[Batch]:
        if self.run is None:
            shape = pj.zoo.create(self.model).input_shape
            return [(torch.randn(size, *shape), torch.randint(10, (size,))) for _ in range(BATCHES)]
        recipe = pj.Run.at(self.run).recipe
        data = recipe.data.load()
        train = pj.data.Batches(data.train, size, data.normalization if recipe.data.normalize else None, seed=0)
        return list(itertools.islice(train.epoch(0), BATCHES))

    def asked(self, precision: str) -> str:
        if self.kind == "busy":
            return "≤ 1.03"
        return GOALS.get((self.model, self.kind), {}).get(precision, "–")


def rows_for(models: list[str], kinds: list[str], runs: list[Path]) -> list[Row]:
    """Networks that were trained, and fresh ones at the rate of each kind for which a model has none."""
    trained = [row for row in rows_of(runs) if row.model in models and row.kind in kinds]
    known = {(row.model, row.kind) for row in trained}
    fresh = [(model, kind) for model in models for kind in kinds if (model, kind) not in known]
    return trained + [
        Row(f"{model}, fresh, fires at {RATES[kind]:.1%}", model, kind, RATES[kind]) for model, kind in fresh
    ]


def rows_of(runs: list[Path]) -> list[Row]:
    recipes = {path: pj.Run.at(path).recipe for path in runs}
    return [
        Row(
            f"{recipe.model.name} trained with λ' = {recipe.penalty.strength:g}",
            recipe.model.name,
            "penalised" if recipe.penalty.strength else "baseline",
            run=path,
        )
        for path, recipe in recipes.items()
    ]


def endless(batches: list[Batch]) -> Iterator[Batch]:
    laid_out = [(images.contiguous(memory_format=torch.channels_last), labels) for images, labels in batches]
    return itertools.cycle(laid_out)


def active_synapses(net: nn.Module, batches: list[Batch]) -> float:
    """Share of the synapses behind spiking layers that carry a spike, in training."""
    penalty = pj.Penalty(pj.trace(net, batches[0][0][:1]))
    with torch.no_grad(), pj.watch(net) as activity:
        net(batches[0][0])
    return float(penalty(activity))


def layers_by_events(net: nn.Module) -> str:
    made = choices(net)
    taken = [name for name, choice in made.items() if choice.by_events]
    return f"{len(taken)} of {len(made)}"


def measure(
    row: Row, precision: str, batch: int, rivals: list[str], turns: int, clock: Clock
) -> tuple[Timings, float, str]:
    """Time ours and its rivals on a row; also the share of active synapses, and how many layers took events."""
    from training import PEERS, cross_entropy, optimizer_of, penalised, stepper  # which imports this module

    batches = row.batches(batch)
    shape = tuple(batches[0][0].shape[1:])
    ours, plain = pj.sparse(row.build()), row.build()
    share = active_synapses(plain, batches)
    contestants = {"ours": (ours, penalised(ours, precision, shape))}
    for rival in rivals:
        if rival == "ours, dense":
            contestants[rival] = (plain, penalised(plain, precision, shape))
        elif rival in PEERS:
            contestants[rival] = PEERS[rival](row.model, precision)
        else:
            twin = row.build(nn.ReLU)
            twin = pj.sparse(twin) if rival == "relu twin, sparse" else twin
            contestants[rival] = (twin, cross_entropy(twin, precision))
    steps = {
        who: stepper(net, loss, endless(batches), torch.channels_last, lr=0.0, optimizer=optimizer_of(who))
        for who, (net, loss) in contestants.items()
    }
    with retain_freed_memory():
        times = interleaved(steps, turns, warmup=2, title=f"{row.title} {precision}", clock=clock)
    return times, share, layers_by_events(ours)


def table(rows: list[Row], precisions: list[str], batch: int, peers: list[str], turns: int, clock: Clock) -> list[str]:
    """Measure every network in every precision; a Markdown table of ours : each rival, medians and quartiles."""
    console.print(f"{len(rows)} networks, {', '.join(precisions)}")
    rivals = [*RIVALS, *peers] if any(row.kind != "busy" for row in rows) else [*RIVALS[:2]]
    heads = "".join(f" : {rival} |" for rival in rivals)
    lines = [
        f"| network | active synapses | layers by events | precision | ours [s] |{heads} asked of : relu twin |",
        "|---|---:|---:|---|---:|" + "---:|" * len(rivals) + "---|",
    ]
    for row, precision in itertools.product(rows, precisions):
        times, share, taken = measure(row, precision, batch, rivals, turns, clock)
        cells = "".join(f" {times.cell('ours', rival)} |" for rival in rivals)
        head = f"| {row.title} | {share:.1%} | {taken} | {precision} | {times.median('ours'):.3f} |"
        lines.append(f"{head}{cells} {row.asked(precision)} |")
        console.print(lines[-1], highlight=False)
    return lines
