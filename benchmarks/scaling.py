"""What a second thread brings to the event-driven kernels: part of `benchmarks/training.py`.

One layer at a time: its active inputs, its output and its weight gradient by events, on one thread and two, in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from timing import Timings, console, interleaved

from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.event_driven.measurement import RandomLayer
from picojoule.kernels.thread_count import threads

LAYERS = {
    "cnn7 conv2": Geometry(100, 1, 64, 128, (15, 15), (3, 3)),
    "cnn7 conv3": Geometry(100, 1, 128, 256, (13, 13), (6, 6)),
    "cnn7 conv4": Geometry(100, 1, 256, 128, (8, 8), (3, 3)),
    "vgg11 conv6": Geometry(100, 1, 512, 512, (4, 4), (3, 3), (1, 1), (1, 1)),
    "resnet18 stage1": Geometry(100, 1, 64, 64, (32, 32), (3, 3), (1, 1), (1, 1)),
}
GOES = 5
DENSITIES = (0.02, 0.12)
KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure(shape: Geometry, kind: torch.dtype, density: float, turns: int) -> Timings:
    layer = RandomLayer(shape, kind, valued=False)
    x, (_, events) = layer.batch(density), layer.contestants()

    def on(count: int, work: Callable[[], None]) -> None:
        with threads(count):  # the second thread is begun anew each time, so there are several goes
            for _ in range(GOES):
                work()

    work = partial(events, x)
    return interleaved({"two": partial(on, 2, work), "one": partial(on, 1, work)}, turns)


def report(precisions: list[str], turns: int) -> None:
    console.print("| layer | active inputs | precision | one thread : two | quartiles |")
    console.print("|---|---:|---|---:|---:|")
    for name, shape in LAYERS.items():
        for precision in precisions:
            for density in DENSITIES:
                low, middle, high = measure(shape, KINDS[precision], density, turns).ratio("one", "two")
                cells = f"{middle:.2f} | {low:.2f} – {high:.2f}"
                console.print(f"| {name} | {density:.0%} | {precision} | {cells} |")
