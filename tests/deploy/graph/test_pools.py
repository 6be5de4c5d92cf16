"""Windows and divisors of pools, against PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from picojoule.deploy.graph.pools import Pool, Windows


@pytest.mark.parametrize("include_pad", [True, False])
@pytest.mark.parametrize("ceil_mode", [True, False])
@given(st.integers(3, 12), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_sliding_windows(include_pad: bool, ceil_mode: bool, size: int, kernel: int, stride: int, padding: int) -> None:
    padding = min(padding, kernel // 2)
    x = torch.randn(1, 1, size, dtype=torch.float64)
    pooled = F.avg_pool1d(x, kernel, stride, padding, ceil_mode, include_pad)[0, 0]
    windows = Windows.sliding(size, len(pooled), kernel, stride, padding, include_pad)
    for i, (a, b, divisor) in enumerate(zip(windows.first, windows.last, windows.divisor, strict=True)):
        assert x[0, 0, a:b].sum() / divisor == pytest.approx(pooled[i].item())


@given(st.integers(1, 12), st.integers(1, 12))
def test_adaptive_windows(size: int, outputs: int) -> None:
    x = torch.randn(1, 1, size, dtype=torch.float64)
    pooled = F.adaptive_avg_pool1d(x, outputs)[0, 0]
    windows = Windows.adaptive(size, outputs)
    for i, (a, b, divisor) in enumerate(zip(windows.first, windows.last, windows.divisor, strict=True)):
        assert x[0, 0, a:b].sum() / divisor == pytest.approx(pooled[i].item())


@pytest.mark.parametrize(
    "layer",
    [
        nn.AvgPool1d(3, 2, 1),
        nn.AvgPool2d(2),
        nn.AvgPool2d((3, 2), (1, 2), (1, 0)),
        nn.AvgPool2d(4, 3, 1, ceil_mode=True),
        nn.AvgPool2d(3, padding=1, count_include_pad=False),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool3d(2, divisor_override=3),
        nn.AvgPool3d((1, 2, 3)),
    ],
    ids=str,
)
def test_a_pool_is_even_where_pytorch_divides_by_one_number(layer: nn.Module) -> None:
    """A map of ones counts the inputs under each window; the average of it shows what they are divided by."""
    pool = Pool.of_module(layer)
    axes = len(pool.kernel)
    ones = torch.ones(1, 1, *[7] * axes, dtype=torch.float64)
    averages = layer(ones)[0, 0]
    per_axis = pool.windows([7] * axes, averages.shape)
    shape = [[-1 if i == axis else 1 for i in range(axes)] for axis in range(axes)]
    inside, divisors = torch.ones_like(averages), torch.ones_like(averages)
    for windows, view in zip(per_axis, shape, strict=True):
        lengths = [b - a for a, b in zip(windows.first, windows.last, strict=True)]
        inside = inside * torch.tensor(lengths).view(view)
        divisors = divisors * torch.tensor(windows.divisor).view(view)
    if pool.divisor_override is not None:
        divisors.fill_(pool.divisor_override)
    torch.testing.assert_close(averages, inside / divisors)
    if pool.is_even:
        assert divisors.unique().tolist() == [pool.divisor]
    else:
        assert len(divisors.unique()) > 1


@given(st.integers(1, 12), st.integers(1, 12))
def test_an_adaptive_pool_that_divides_the_map_is_a_pool_of_equal_windows(size: int, outputs: int) -> None:
    pool, windows = Pool.dividing([size], [outputs]), Windows.adaptive(size, outputs)
    if pool is None:
        assert size % outputs
    else:
        assert pool.windows([size], [outputs]) == [windows]
