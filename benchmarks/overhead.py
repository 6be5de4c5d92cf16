"""What the penalty adds to a training step, and the meter to inference.

python benchmarks/overhead.py [--models cnn7 vgg11 resnet18] [--precisions fp32 bf16] [--turns 15]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import console, describe_machine, interleaved

import picojoule as pj

BATCH = 100


def training_steps(name: str, precision: str) -> dict[str, Callable[[], None]]:
    """The same network and batch, stepped without and with Ω_syn."""
    torch.manual_seed(0)
    net = pj.zoo.create(name).to(memory_format=torch.channels_last)
    images = torch.randn(BATCH, *net.input_shape).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    penalty = pj.Penalty(pj.trace(net, images[:1]))

    def step(penalised: bool) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            if penalised:
                with pj.watch(net) as activity:
                    logits = net(images)
                loss = F.cross_entropy(logits, labels) + penalty(activity)
            else:
                loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()

    return {"penalised": lambda: step(True), "plain": lambda: step(False)}


def inferences(name: str) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    net = pj.zoo.create(name).to(memory_format=torch.channels_last).eval()
    images = torch.randn(BATCH, *net.input_shape).contiguous(memory_format=torch.channels_last)
    meter = pj.EnergyMeter(pj.trace(net, images[:1]))

    @torch.inference_mode()
    def metered() -> None:
        with pj.watch(net) as activity:
            net(images)
        meter.update(activity)

    @torch.inference_mode()
    def plain() -> None:
        net(images)

    return {"metered": metered, "plain": plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(pj.zoo.names()))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    console.print(f"{describe_machine()}; batch {BATCH}, channels-last")
    for name in options.models:
        for precision in options.precisions:
            steps = interleaved(training_steps(name, precision), options.turns, title=f"{name} {precision}")
            console.print(f"{name:9} training {precision}: {steps.line('penalised', 'plain')}")
        runs = interleaved(inferences(name), options.turns, title=f"{name} inference")
        console.print(f"{name:9} inference fp32: {runs.line('metered', 'plain')}")


if __name__ == "__main__":
    main()
