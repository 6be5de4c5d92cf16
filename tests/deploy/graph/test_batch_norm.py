"""Batch norm as a scale and a shift, and folded into weights, against PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from picojoule.deploy.graph.batch_norm import fold_into, scale_and_shift_of
from picojoule.deploy.graph.refusal import Unsupported


def lived_in(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.Module:
    for name, value in [*norm.named_parameters(), *norm.named_buffers()]:
        if value.is_floating_point():
            value.data.uniform_(0.1 if "var" in name else -1, 1)
    return norm.eval()


@pytest.mark.parametrize("affine", [True, False])
def test_scale_and_shift(affine: bool) -> None:
    norm = nn.BatchNorm1d(5, affine=affine)
    lived_in(norm)
    scale, shift = scale_and_shift_of(norm, torch.float64)
    assert (scale.dtype, shift.dtype) == (torch.float64, torch.float64)
    x = torch.randn(7, 5, dtype=torch.float64)
    torch.testing.assert_close(scale * x + shift, norm.double()(x).detach())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", [nn.Linear, nn.Conv2d, nn.ConvTranspose2d])
def test_a_norm_folded_into_weights(kind: type[nn.Module], affine: bool, bias: bool) -> None:
    linear = kind is nn.Linear
    layer = nn.Linear(3, 4, bias=bias) if linear else kind(3, 4, 2, bias=bias)
    norm = nn.BatchNorm1d(4, affine=affine) if linear else nn.BatchNorm2d(4, affine=affine)
    lived_in(norm)
    layer, norm = layer.double(), norm.double()
    x = torch.randn(5, 3, dtype=torch.float64) if linear else torch.randn(5, 3, 6, 6, dtype=torch.float64)
    expected = norm(layer(x))
    fold_into(layer, norm)  # type: ignore[arg-type]
    torch.testing.assert_close(layer(x), expected)


def test_statistics_of_the_batch_are_unsupported() -> None:
    norm = nn.BatchNorm1d(3, track_running_stats=False)
    for read in (lambda: scale_and_shift_of(norm), lambda: fold_into(nn.Linear(3, 3), norm)):
        with pytest.raises(Unsupported, match="running statistics"):
            read()
