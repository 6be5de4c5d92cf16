"""What a layer costs dense and by events, from constants: the same choice for the same data, whatever was measured.

The unit is a multiplication of float32 in PyTorch's dense convolution, 0.02 ns on the core of 3.6 GHz with AVX-512 on
which the constants were found (by the layers of the zoo, beside the times of `measurement`). Only
ratios matter. They hardly depend on the width of a processor's vectors, which dense products and sums share, but do on
its units for bfloat16. `calibration` measures instead.
"""

from __future__ import annotations

import torch

from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.torch_private import cpu_has_bfloat16, cpu_has_bfloat16_tiles

_DENSE = 1.0
_DENSE_BFLOAT16 = 0.55
"""With instructions for bfloat16; without, PyTorch computes in float32."""
_DENSE_TILES = 0.1
"""With tiles of bfloat16 (AMX)."""

_ACTIVE = {torch.float32: 2.3, torch.bfloat16: 1.5}
"""A number of a row that is added, from the second-level cache."""
_VALUED = 1.15
"""The same with a product."""

_INPUT = 75
"""An input that is looked at, active or not, in both passes."""
_ACTIVE_INPUT = 150
"""An active input that is listed, for the forward pass and for each row of the kernel."""
_WEIGHT = 75
"""A weight that is laid out as rows, and its gradient back."""
_OUTPUT = 50
"""An output whose sums are begun and ended, for each row of the kernel, and whose gradient is laid out."""
_RUN = 500
"""A run of a list, for one place of the output or of the weight."""
_CALL = 10_000
"""A layer's call: what Python does, which every thread waits for."""


def break_even(shape: Geometry, kind: torch.dtype, *, valued: bool = False) -> float:
    """Return the share of active inputs up to which output and weight gradient should be faster by events.

    Args:
        shape: The shape of the layer.
        kind: float32 or bfloat16.
        valued: Whether the active inputs have different values, as pooled spikes and residual sums have.

    Returns:
        A share; 0 for a layer that is never faster, at most 1.

    >>> round(break_even(Geometry(100, 1, 128, 256, (13, 13), (6, 6)), torch.float32), 2)
    0.4
    >>> break_even(Geometry(100, 1, 64, 10, (1, 1), (1, 1)), torch.float32)
    0.0
    """
    inputs = shape.images * shape.pixels * shape.groups * shape.inputs
    outputs = shape.images * shape.out_pixels * shape.groups * shape.blocks * shape.lanes
    weights = shape.groups * shape.blocks * shape.lanes * shape.rows
    rows = shape.kernel[0]
    tiles = -(-shape.images // shape.images_at_once(4 if kind == torch.float32 else 2))
    runs = (outputs * rows + weights * tiles) / shape.lanes
    fixed = inputs * _INPUT + weights * _WEIGHT + outputs * _OUTPUT + runs * _RUN + _CALL * torch.get_num_threads()
    padded = 2 * shape.products() * shape.blocks * shape.lanes / max(shape.outputs, 1)
    active = padded * _ACTIVE[kind] * (_VALUED if valued else 1.0) + inputs * _ACTIVE_INPUT * (1 + rows)
    dense = 2 * shape.products() * _dense(kind)
    return min(max((dense - fixed) / max(active, 1.0), 0.0), 1.0)


def _dense(kind: torch.dtype) -> float:
    """Return what a dense multiplication costs."""
    if kind == torch.float32 or not cpu_has_bfloat16():
        return _DENSE
    return _DENSE_TILES if cpu_has_bfloat16_tiles() else _DENSE_BFLOAT16
