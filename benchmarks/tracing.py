"""What tracing costs: time and peak memory against forward passes of a batch of 100.

python benchmarks/tracing.py [--models resnet18] [--turns 9]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from timing import console, describe_machine, interleaved

import picojoule as pj

BATCH = 100


def contestants(name: str) -> dict[str, Callable[[], object]]:
    net = pj.zoo.create(name).eval()
    images = torch.randn(BATCH, *net.input_shape)

    def forward() -> object:
        with torch.no_grad():
            return net(images)

    return {"trace": lambda: pj.trace(net, images[:1]), "forward": forward}


def peak_growth(name: str, contestant: str) -> int:
    """Bytes by which one run raises the memory of a fresh process that has built the network already (Linux)."""
    run = contestants(name)[contestant]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of everything before
    before = memory("VmRSS")
    run()
    return memory("VmHWM") - before


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(pj.zoo.names()))
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    console.print(f"{describe_machine()}; forward passes of a batch of {BATCH}, no gradients")
    for name in options.models:
        times = interleaved(contestants(name), options.turns, title=name)
        growth = {}
        for contestant in ("trace", "forward"):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                growth[contestant] = process.submit(peak_growth, name, contestant).result()
        console.print(f"{name:9} time: {times.line('trace', 'forward')}")
        console.print(
            f"{name:9} peak memory: trace : forward = {growth['trace'] / growth['forward']:.3f}; "
            f"{growth['trace'] / 2**20:.0f} MiB : {growth['forward'] / 2**20:.0f} MiB"
        )


if __name__ == "__main__":
    main()
