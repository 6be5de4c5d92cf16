"""How long a layer takes dense and by events: measured on random inputs of several densities.

Other work on the machine must not look like a difference. Both ways take turns, the shortest of several times counts,
and the density that is found is tried itself. On one thread the clock is the thread's own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from picojoule.kernels.event_driven.active_inputs import active_inputs
from picojoule.kernels.event_driven.forward import forward
from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.event_driven.weight_gradient import weight_gradient

MOST = 0.5
"""No layer is known that events would make faster where more than half of its inputs are active."""

_LEAST = 1e-3
_DENSITIES = (0.02, 0.12)
_TURNS = 4


def measured_break_even(shape: Geometry, kind: torch.dtype, *, valued: bool) -> float:
    """Measure up to which share of active inputs output and weight gradient are faster by events.

    Args:
        shape: The shape of the layer.
        kind: float32 or bfloat16.
        valued: Whether the active inputs have different values.

    Returns:
        One of 1/2, 1/√8, 1/4, …, so that the noise of a measurement seldom shows; 0 for a layer that is never faster.
    """
    layer = RandomLayer(shape, kind, valued)
    (dense, sparser), (_, denser) = (_seconds(layer, density) for density in _DENSITIES)
    slope = (denser - sparser) / (_DENSITIES[1] - _DENSITIES[0])
    # Where the line through the times at both densities meets the dense layer's time.
    share = on_the_grid(_DENSITIES[0] + (dense - sparser) / slope if slope > 0 else MOST)
    while share > 0:
        dense, by_events = _seconds(layer, share)
        if by_events <= dense:
            return share
        share = on_the_grid(0.99 * share)
    return 0.0


def on_the_grid(share: float) -> float:
    """Round a share down to 1/2, 1/√8, 1/4, ….

    Args:
        share: Any number.

    Returns:
        The share on the grid; 0 below a thousandth.

    >>> on_the_grid(0.3), on_the_grid(7.0), on_the_grid(0.0004)
    (0.25, 0.5, 0.0)
    """
    if share < _LEAST:
        return 0.0
    return float(2 ** (math.floor(2 * math.log2(min(share, MOST))) / 2))


@dataclass(frozen=True)
class RandomLayer:
    """A layer with random weights, and the gradient of its output."""

    shape: Geometry
    kind: torch.dtype
    valued: bool

    def batch(self, density: float) -> Tensor:
        """Make inputs of which such a share is active."""
        shape, source = self.shape, torch.Generator().manual_seed(0)
        size = (shape.images, shape.groups * shape.inputs, *shape.map)
        x = (torch.rand(size, generator=source) < density).float()
        if self.valued:
            x *= torch.randint(1, 5, size, generator=source) / 4
        return x.to(self.kind).contiguous(memory_format=torch.channels_last)

    def contestants(self) -> tuple[Callable[[Tensor], None], Callable[[Tensor], None]]:
        """Make the dense work and the event-driven work, to be given a batch."""
        shape, source = self.shape, torch.Generator().manual_seed(1)
        channels = shape.groups * shape.outputs
        weight = torch.randn(channels, shape.inputs, *shape.kernel, generator=source)
        grad = torch.randn(shape.images, channels, *shape.out_map, generator=source).to(self.kind)
        grad = grad.contiguous(memory_format=torch.channels_last)
        arguments = (shape.stride, shape.padding, shape.dilation)
        rest = (False, (0, 0), shape.groups, (False, True, False))

        def dense(x: Tensor) -> None:
            rounded = weight.to(self.kind)
            torch.conv2d(x, rounded, None, *arguments, shape.groups)
            torch.ops.aten.convolution_backward(grad, x, rounded, None, *arguments, *rest)

        def events(x: Tensor) -> None:
            inputs = active_inputs(x.permute(0, 2, 3, 1), shape)
            forward(inputs, weight, None, shape, self.kind)
            weight_gradient(inputs, grad.permute(0, 2, 3, 1), weight, shape)

        return dense, events


def _seconds(layer: RandomLayer, density: float) -> tuple[float, float]:
    """Return the shortest times of the dense and of the event-driven work, after one turn that warms up."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    x, works = layer.batch(density), layer.contestants()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_TURNS + 1):
        for work, taken in zip(works, times, strict=True):
            start = clock()
            work(x)
            taken.append(clock() - start)
    return min(times[0][1:]), min(times[1][1:])
