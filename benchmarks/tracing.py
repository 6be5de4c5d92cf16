"""What tracing costs: time and peak memory against forward passes of a batch of 100.

python benchmarks/tracing.py [--models resnet18] [--turns 9]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import peak
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


def contestant(name: str, which: str) -> Callable[[], object]:
    return contestants(name)[which]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(pj.zoo.names()))
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    console.print(f"{describe_machine()}; forward passes of a batch of {BATCH}, no gradients")
    for name in options.models:
        times = interleaved(contestants(name), options.turns, title=name)
        peaks = {which: peak.growth(contestant, name, which) for which in ("trace", "forward")}
        console.print(f"{name:9} time: {times.line('trace', 'forward')}")
        console.print(
            f"{name:9} peak memory: trace : forward = {peaks['trace'] / peaks['forward']:.3f}; "
            f"{peaks['trace'] / 2**20:.0f} MiB : {peaks['forward'] / 2**20:.0f} MiB"
        )


if __name__ == "__main__":
    main()
