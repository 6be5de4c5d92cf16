"""What a penalised training step costs by how silent the network is: part of `benchmarks/training.py`.

All take the same batches in turns: ours (`pj.sparse`), our dense path, the dense ReLU twin, that twin with `pj.sparse`,
and the peers that are installed. A network is one that was trained (`--runs`, shown its own training images), or fresh
weights with β of every batch norm set so that each spiking layer fires at the wanted rate. The learning rate is 0, so
that the activity stays what it is; everything is computed all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import torch
from timing import Timings, console, interleaved
from torch import Tensor, nn

import picojoule as pj
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.event_driven.layers import choices
from picojoule.kernels.torch_private import BatchNorm

RATES = {"baseline": 0.12, "penalised": 0.015, "busy": 0.6}
"""Firing rates of the rows of the table, for networks that nobody has trained."""
BATCHES = 4
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Row:
    """A network to be measured, by its model and either a firing rate or the folder of its run."""

    title: str
    model: str
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


def rows_for(models: list[str], kinds: list[str], runs: list[Path]) -> list[Row]:
    """Networks that were trained, in place of fresh ones of the same model, and all models at 60 %."""
    trained = rows_of(runs)
    known = {row.model for row in trained}
    fresh = [(model, kind) for model in models for kind in kinds if kind == "busy" or model not in known]
    return trained + [Row(f"{model} at {RATES[kind]:.1%}, {kind}", model, RATES[kind]) for model, kind in fresh]


def rows_of(runs: list[Path]) -> list[Row]:
    recipes = {path: pj.Run.at(path).recipe for path in runs}
    return [
        Row(f"{recipe.model.name} trained with λ' = {recipe.penalty.strength:g}", recipe.model.name, run=path)
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
    return f"{len(taken)} of {len(made)} layers by events"


def measure(row: Row, precision: str, batch: int, peers: list[str], turns: int) -> tuple[Timings, float, str]:
    """Time all contestants of a row; also the share of active synapses, and how many layers took events."""
    from training import PEERS, cross_entropy, penalised, stepper  # which imports this module

    batches = row.batches(batch)
    shape = tuple(batches[0][0].shape[1:])
    layout = torch.channels_last
    ours, plain = pj.sparse(row.build()), row.build()
    twin, sparse_twin = row.build(nn.ReLU), pj.sparse(row.build(nn.ReLU))
    share = active_synapses(plain, batches)
    steps = {
        "ours": stepper(ours, penalised(ours, precision, shape), endless(batches), layout, lr=0.0),
        "ours, dense": stepper(plain, penalised(plain, precision, shape), endless(batches), layout, lr=0.0),
        "relu twin": stepper(twin, cross_entropy(twin, precision), endless(batches), layout, lr=0.0),
        "relu twin, sparse": stepper(
            sparse_twin, cross_entropy(sparse_twin, precision), endless(batches), layout, lr=0.0
        ),
    }
    for peer in peers:
        net, loss = PEERS[peer](row.model, precision)
        steps[peer] = stepper(net, loss, endless(batches), layout, lr=0.0)
    with retain_freed_memory():
        times = interleaved(steps, turns, warmup=3, title=f"{row.title} {precision}")
    return times, share, layers_by_events(ours)


def report(rows: list[Row], precisions: list[str], batch: int, peers: list[str], turns: int) -> None:
    """Print the table, a line for each network and precision."""
    rivals = ["relu twin", "ours, dense", "relu twin, sparse", *peers]
    console.print(
        "| network | active synapses | precision | ours, seconds |" + "".join(f" ours : {r} |" for r in rivals)
    )
    console.print("|---|---:|---|---:|" + "---:|" * len(rivals))
    for row in rows:
        for precision in precisions:
            times, share, taken = measure(row, precision, batch, peers, turns)
            cells = [_cell(times, rival) for rival in rivals]
            head = f"| {row.title} ({taken}) | {share:.1%} | {precision} | {times.median('ours'):.3f} |"
            console.print(head + "".join(f" {cell} |" for cell in cells))


def _cell(times: Timings, rival: str) -> str:
    low, middle, high = times.ratio("ours", rival)
    return f"{middle:.2f} ({low:.2f} – {high:.2f})"
