"""Prunes a trained network by the size of its weights and fine-tunes it, without and with Ω_syn, in a plain loop.

    python docs/examples/pruning.py RUN [--prune 0 0.5 0.8] [--epochs 1] [--strength 32] [--limit N] [--threads 2]

`torch.nn.utils.prune` masks the smallest weights of all layers that spikes feed. ψ follows the masks: what is pruned is
no synapse, so the bill falls without a change of code, and the penalty with it. Prints the table of
docs/how-to/pruning.md.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import picojoule as pj


def pruned(net: nn.Module, amount: float) -> nn.Module:
    """A copy without that share of the weights behind spikes; the first layer is fed pixels and keeps its own."""
    net = copy.deepcopy(net).to(memory_format=torch.contiguous_format)  # torch's global pruning asks for that
    _, *layers = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    if amount:
        prune.global_unstructured([(layer, "weight") for layer in layers], prune.L1Unstructured, amount=amount)
    return net.to(memory_format=torch.channels_last)  # the quicker layout


def fine_tuned(net: nn.Module, data: pj.data.Data, epochs: int, strength: float, lr: float = 1e-3) -> nn.Module:
    """Trains the network further; what was pruned stays pruned."""
    net.train()
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, *data.shape)))  # normalised by the synapses that are left
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    batches = pj.data.Batches(data.train, 100, data.normalization, seed=0)
    for epoch in range(epochs):
        for images, labels in batches.epoch(epoch):
            with pj.watch(net) as activity:
                logits = net(images)
            loss = F.cross_entropy(logits, labels) + strength * penalty(activity)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


@torch.no_grad()
def measured(net: nn.Module, data: pj.data.Data) -> tuple[float, pj.EnergyReport, pj.Synapses]:
    """Accuracy and bill on the test images."""
    synapses = pj.trace(net, torch.zeros(1, *data.shape))
    meter, right = pj.EnergyMeter(synapses), 0
    for images, labels in pj.data.Batches(data.test, 500, data.normalization):
        with pj.watch(net) as activity:
            logits = net(images)
        meter.update(activity)
        right += int((logits.argmax(1) == labels).sum())
    return right / len(data.test), meter.compute(), synapses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--prune", type=float, nargs="+", default=[0.0, 0.5, 0.8])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--strength", type=float, default=32.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, help="training images; as in the run's recipe unless given")
    options = parser.parse_args()
    run = pj.Run.at(options.run)
    recipe, net = run.recipe, pj.load_model(run, trust=True)  # a run of your own
    torch.set_num_threads(options.threads)
    torch.manual_seed(recipe.seed)
    data = pj.data.load(recipe.data.name, limit=options.limit or recipe.data.limit, pad=recipe.data.pad)
    print("| weights pruned | fine-tuned | synapses | test accuracy | synaptic operations | energy | rate |")
    print("|---|---|---|---|---|---|---|")
    for amount in options.prune:
        for label, epochs, strength in (
            ("no", 0, 0.0),
            ("without penalty", options.epochs, 0.0),
            (f"Ω_syn, λ' = {options.strength:g}", options.epochs, options.strength),
        ):
            lean = fine_tuned(pruned(net, amount), data, epochs, strength)
            accuracy, bill, synapses = measured(lean, data)
            print(
                f"| {amount:.0%} | {label} | {synapses.synapses:,} | {accuracy:.1%} | {bill.synops:,.0f} "
                f"| {bill.joules * 1e6:.2f} µJ | {bill.rate_mean:.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
