"""Scales, shifts and thresholds, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from picojoule.deploy.events.affine import Affine, firing

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
