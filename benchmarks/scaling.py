"""What a second thread brings to the event-driven kernels: part of `benchmarks/training.py`.

One layer at a time: its active inputs, its output and its weight gradient by events, on one thread and two, in turns.
"""

from __future__ import annotations

import statistics
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
GOES = 3
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


def table(precisions: list[str], turns: int) -> list[str]:
    """Time every layer on one thread and on two; a Markdown table of their ratios."""
    lines = ["| layer | active inputs | precision | one thread : two |", "|---|---:|---|---:|"]
    ratios = []
    for name, shape in LAYERS.items():
        for precision in precisions:
            for density in DENSITIES:
                times = measure(shape, KINDS[precision], density, turns)
                ratios.append(times.ratio("one", "two")[1])
                lines.append(f"| {name} | {density:.0%} | {precision} | {times.cell('one', 'two')} |")
                console.print(lines[-1], highlight=False)
    lines.append(f"| all, median | | | {statistics.median(ratios):.2f} |")
    return lines
