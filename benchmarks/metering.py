"""What metering and tracing cost on SpikingJelly's Spikformer (CIFAR-10) and SEW-ResNet18, over four time steps.

python benchmarks/metering.py [--networks spikformer sew_resnet18] [--batch 16] [--turns 9]

Runs in the environment that has SpikingJelly (`make peers` makes it). Metering : plain inference is to be 1.05 at most,
and tracing to take no longer than three forward passes of the batch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import console, describe_machine, interleaved
from torch import nn

import picojoule as pj

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from helpers.spikingjelly_zoo import without_torchvision

STEPS = 4
METERING, TRACING = 1.05, 3.0
"""The limits."""


def spikformer() -> tuple[nn.Module, tuple[int, ...], dict[str, Any]]:
    """As its authors train it on CIFAR-10: 4 blocks of width 384, 64 tokens, 12 heads; T inside."""
    from spikingjelly.activation_based.model import spikformer

    return spikformer.spikformer_cifar10(T=STEPS), (3, 32, 32), {"steps": STEPS}


def sew_resnet18() -> tuple[nn.Module, tuple[int, ...], dict[str, Any]]:
    """With sums of spikes between its blocks (ADD), on pictures of 64×64, [T, B, …]."""
    from spikingjelly.activation_based import functional, neuron, surrogate
    from spikingjelly.activation_based.model import sew_resnet

    net = sew_resnet.sew_resnet18(
        cnf="ADD", spiking_neuron=neuron.IFNode, surrogate_function=surrogate.ATan(), detach_reset=True
    )
    functional.set_step_mode(net, "m")
    return net, (3, 64, 64), {"steps": STEPS, "time_axis": 0}


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...], dict[str, Any]]]] = {
    "spikformer": spikformer,
    "sew_resnet18": sew_resnet18,
}


def contestants(name: str, batch: int) -> dict[str, Callable[[], object]]:
    """The same network and images, answered without and with the meter, and traced."""
    from spikingjelly.activation_based import functional

    torch.manual_seed(0)
    net, shape, layout = NETWORKS[name]()
    frames = (STEPS,) if "time_axis" in layout else ()
    images = torch.rand(*frames, batch, *shape)
    with torch.no_grad():  # statistics of its own activity, so that every layer fires
        for module in net.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = 1.0
        net.train()(images)
    net.eval()

    def plain() -> None:
        functional.reset_net(net)
        with torch.inference_mode():
            net(images)

    def trace() -> pj.Synapses:
        functional.reset_net(net)
        return pj.trace(net, images[:, :1] if frames else images[:1], **layout)

    meter = pj.EnergyMeter(trace())

    def metered() -> None:
        functional.reset_net(net)
        with torch.inference_mode():
            with pj.watch(net, **layout) as activity:
                net(images)
            meter.update(activity)

    return {"metered": metered, "plain": plain, "trace": trace}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    without_torchvision()
    console.print(f"{describe_machine()}; T = {STEPS}, batch {options.batch}, fp32")
    for name in options.networks:
        times = interleaved(contestants(name, options.batch), options.turns, title=name)
        console.print(f"{name:13} metering (limit {METERING}): {times.line('metered', 'plain')}")
        console.print(f"{name:13} tracing (limit {TRACING:g}): {times.line('trace', 'plain')}")


if __name__ == "__main__":
    main()
