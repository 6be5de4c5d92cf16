"""How long a layer takes dense and by events: measured on random inputs of two densities."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from picojoule.kernels.event_driven.active_inputs import active_inputs
from picojoule.kernels.event_driven.forward import forward
from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.event_driven.weight_gradient import weight_gradient

_DENSITIES = (0.02, 0.12)
_TIMES = 3


def measured_break_even(shape: Geometry, kind: torch.dtype) -> float:
    """Measure up to which share of active inputs output and weight gradient are faster by events.

    Args:
        shape: The shape of the layer.
        kind: float32 or bfloat16.

    Returns:
        The share where the line through the times at two densities meets the dense layer's time; 0 for never, and
        above 1 for always.
    """
    dense, events, batches = _contestants(shape, kind)
    sparser, denser = batches
    by_sparser, by_denser, by_dense = _seconds(events, sparser), _seconds(events, denser), _seconds(dense, denser)
    slope = (by_denser - by_sparser) / (_DENSITIES[1] - _DENSITIES[0])
    if slope <= 0:  # noise, or a layer so small that its active inputs do not matter
        return 1.0 if by_denser < by_dense else 0.0
    return max(_DENSITIES[0] + (by_dense - by_sparser) / slope, 0.0)


Work = Callable[[Tensor], None]


def _contestants(shape: Geometry, kind: torch.dtype) -> tuple[Work, Work, tuple[Tensor, Tensor]]:
    """Make the dense work, the event-driven work, and a batch of either density for them."""
    source = torch.Generator().manual_seed(0)
    channels = shape.groups * shape.outputs
    size = (shape.images, shape.groups * shape.inputs, *shape.map)
    numbers = torch.rand(size, generator=source).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(channels, shape.inputs, *shape.kernel, generator=source)
    grad = torch.randn(shape.images, channels, *shape.out_map, generator=source)
    grad = grad.to(kind).contiguous(memory_format=torch.channels_last)

    def dense(x: Tensor) -> None:
        rounded = weight.to(kind)
        arguments = (shape.stride, shape.padding, shape.dilation)
        torch.conv2d(x, rounded, None, *arguments, shape.groups)
        torch.ops.aten.convolution_backward(
            grad, x, rounded, None, *arguments, False, (0, 0), shape.groups, (False, True, False)
        )

    def events(x: Tensor) -> None:
        inputs = active_inputs(x.permute(0, 2, 3, 1), shape)
        forward(inputs, weight, None, shape, kind)
        weight_gradient(inputs, grad.permute(0, 2, 3, 1), weight, shape)

    sparser, denser = ((numbers < density).to(kind) for density in _DENSITIES)
    return dense, events, (sparser, denser)


def _seconds(work: Work, x: Tensor) -> float:
    """Return the shortest of a few times, after one run that warms up."""
    work(x)
    times = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        work(x)
        times.append(time.perf_counter() - start)
    return min(times)
