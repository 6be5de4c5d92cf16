"""The arithmetic of compilation, each against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from picojoule.deploy.events.folding import Affine, Windows, as_bytes, as_rows, firing

numbers = st.floats(-100, 100, width=32)


@given(gain=st.one_of(st.just(0.0), numbers), shift=numbers, u=numbers, threshold=numbers)
def test_signs_and_thresholds_decide_as_the_affine_does(gain: float, shift: float, u: float, threshold: float) -> None:
    sign, t = firing(Affine(np.array([gain]), np.array([shift])), threshold)
    reached = gain * u + shift
    if abs(reached - threshold) > 1e-9 * (1 + abs(gain * u) + abs(shift) + abs(threshold)) or gain == 0:
        assert bool(sign[0] * u >= t[0]) == (reached >= threshold)


def test_a_channel_of_nan_never_fires() -> None:
    for gain, shift in ((np.nan, 0.0), (1.0, np.nan), (0.0, np.nan)):
        _, t = firing(Affine(np.array([gain]), np.array([shift])), 0.0)
        assert t[0] == np.inf


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(affine: bool) -> None:
    norm = nn.BatchNorm1d(5, affine=affine).double().eval()
    for name, value in [*norm.named_parameters(), *norm.named_buffers()]:
        if value.is_floating_point():
            value.data.uniform_(0.1 if "var" in name else -1, 1)
    x = torch.randn(7, 5, dtype=torch.float64)
    folded = Affine.of_batch_norm(norm)
    torch.testing.assert_close(torch.from_numpy(x.numpy() * folded.gain + folded.shift), norm(x).detach())


def test_one_affine_after_another() -> None:
    a, b = (Affine(*np.random.default_rng(seed).normal(size=(2, 4))) for seed in (0, 1))
    x, both = np.arange(4.0), a.then(b)
    np.testing.assert_allclose(both.gain * x + both.shift, b.gain * (a.gain * x + a.shift) + b.shift)


@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_rows_hold_what_one_input_adds(outputs: int, inputs: int, height: int, width: int) -> None:
    weight = np.random.default_rng(0).normal(size=(outputs, inputs, height, width)).astype(np.float32)
    rows = as_rows(weight, 16)
    assert rows.shape == (-(-outputs // 16), height * width * inputs, 16)
    row = ((height - 1) * width + width - 1) * inputs + inputs - 1
    np.testing.assert_array_equal(rows[:, row].reshape(-1)[:outputs], weight[:, -1, -1, -1])
    assert not rows[:, row].reshape(-1)[outputs:].any()


def test_bytes_are_within_half_a_step() -> None:
    rows = np.random.default_rng(0).normal(size=(2, 9, 16)).astype(np.float32)
    rows[0, :, 3] = 0
    bytes, scales = as_bytes(rows)
    error = np.abs(bytes * scales.reshape(2, 1, 16) - rows)
    assert (error <= 0.5001 * scales.reshape(2, 1, 16)).all()
    assert np.abs(bytes).max() == 127
    assert not bytes[0, :, 3].any()


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
