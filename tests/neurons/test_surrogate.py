"""Surrogates against their formulas, written out once more in plain Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from picojoule.errors import PicojouleError
from picojoule.neurons.surrogate import S3NN, SURROGATES, ChecksThreshold, Fused, ScaledSigmoid, Surrogate, Triangle

THRESHOLDS = (0.3, 1.0, 2.5)


def sigmoid_slope(u: float, threshold: float, alpha: float) -> float:
    """sigma'(x) = 1 / (2 + e^x + e^-x), another way to write sigma (1 - sigma)."""
    x = (u - threshold) / alpha
    return 1 / (alpha * (2 + math.exp(x) + math.exp(-x)))


def s3nn(alpha: float, tau: float) -> Callable[[float, float], float]:
    return lambda u, threshold: 1 / (tau * u) if u >= threshold else sigmoid_slope(u, threshold, alpha)


def triangle(u: float, threshold: float) -> float:
    distance = u - threshold if u > threshold else threshold - u
    return 1 - distance if distance < 1 else 0.0


CASES: dict[Surrogate, Callable[[float, float], float]] = {
    S3NN(): s3nn(0.25, 0.6),
    S3NN(alpha=0.35, tau=1.0): s3nn(0.35, 1.0),
    Triangle(): triangle,
    ScaledSigmoid(): lambda u, threshold: sigmoid_slope(u, threshold, 0.25),
    ScaledSigmoid(alpha=0.45): lambda u, threshold: sigmoid_slope(u, threshold, 0.45),
}


def test_every_registered_surrogate_has_a_formula() -> None:
    assert {type(surrogate) for surrogate in CASES} == set(SURROGATES.values())


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("surrogate", CASES, ids=str)
def test_formula_over_a_grid_and_around_the_threshold(surrogate: Surrogate, threshold: float) -> None:
    near = [math.nextafter(threshold, -math.inf), threshold, math.nextafter(threshold, math.inf)]
    edges = [threshold - 1, threshold + 1, 0.0, -0.0]
    grid = [i / 32 for i in range(-160, 161)] + near + edges
    u = torch.tensor(grid, dtype=torch.float64)
    expected = torch.tensor([CASES[surrogate](x, threshold) for x in grid], dtype=torch.float64)
    torch.testing.assert_close(surrogate(u, threshold), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("surrogate", CASES, ids=str)
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04), (torch.float16, 0.005)])
def test_dtype_is_that_of_the_potential(surrogate: Surrogate, dtype: torch.dtype, rtol: float) -> None:
    u = torch.linspace(-1, 3, 401).to(dtype)
    expected = torch.tensor([CASES[surrogate](x, 1.0) for x in u.tolist()])
    slope = surrogate(u, 1.0)
    assert slope.dtype == dtype
    # One unit of rounding at 1 is what the foot of the triangle, 1 - |u - u_th|, must lose.
    torch.testing.assert_close(slope.float(), expected, rtol=rtol, atol=torch.finfo(dtype).eps)


def test_tails_of_the_sigmoid_keep_their_digits_in_bfloat16() -> None:
    u = torch.tensor([-1.0, 3.0], dtype=torch.bfloat16)
    assert ScaledSigmoid()(u, 1.0).tolist() == pytest.approx(
        [sigmoid_slope(x, 1.0, 0.25) for x in (-1.0, 3.0)], rel=0.02
    )


@pytest.mark.parametrize("surrogate", CASES, ids=str)
def test_finite_far_from_the_threshold(surrogate: Surrogate) -> None:
    u = torch.tensor([-1e30, -1e4, -1e-40, 0.0, 1e-40, 1e4, 1e30])
    slope = surrogate(u, 1.0)
    assert slope.isfinite().all()
    assert (slope >= 0).all()


def test_s3nn_jumps_at_the_threshold_to_the_upper_branch() -> None:
    u = torch.tensor([1.0 - 2**-24, 1.0])
    below, at = S3NN(alpha=0.25, tau=0.6)(u, 1.0).tolist()
    assert below == pytest.approx(1.0)
    assert at == pytest.approx(1 / 0.6)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("kind", "parameter"), [(S3NN, "alpha"), (S3NN, "tau"), (ScaledSigmoid, "alpha")], ids=["s3nn", "s3nn", "sigmoid"]
)
def test_bad_parameters_are_refused_by_name_and_value(kind: type, parameter: str, bad: float) -> None:
    with pytest.raises(PicojouleError, match=rf"{kind.__name__} .*{parameter}.* not {bad}"):
        kind(**{parameter: bad})


@pytest.mark.parametrize("threshold", [0.0, -0.5])
def test_s3nn_objects_to_thresholds_at_or_below_zero(threshold: float) -> None:
    with pytest.raises(PicojouleError, match=rf"S3NN .*not {threshold}"):
        S3NN().check_threshold(threshold)
    S3NN().check_threshold(1e-3)


def test_only_surrogates_with_an_objection_are_asked() -> None:
    assert isinstance(S3NN(), ChecksThreshold)
    assert not isinstance(Triangle(), ChecksThreshold)
    assert not isinstance(ScaledSigmoid(), ChecksThreshold)


def test_surrogates_are_values() -> None:
    assert S3NN() == S3NN(alpha=0.25, tau=0.6)
    assert len({S3NN(), S3NN(), S3NN(tau=1.0)}) == 2
    assert repr(S3NN(tau=1.0)) == "S3NN(alpha=0.25, tau=1.0)"
    with pytest.raises(AttributeError):
        S3NN().alpha = 1.0  # type: ignore[misc]  # the assignment under test


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("surrogate", CASES, ids=str)
def test_the_fused_form_equals_the_plain_product(surrogate: Surrogate, threshold: float) -> None:
    assert isinstance(surrogate, Fused)
    level = torch.tensor(threshold)
    near = [level.nextafter(torch.tensor(towards)).item() for towards in (-math.inf, threshold, math.inf)]
    u = torch.tensor([i / 32 for i in range(-3200, 3201)] + near + [math.inf, -math.inf, -0.0])
    grad = torch.linspace(-2, 3, len(u))
    untouched = (u.clone(), grad.clone())
    fused = surrogate.times(grad, u, threshold)
    exact = grad.double() * surrogate(u.double(), level.item())
    # An exponent x ≤ 87 is rounded three times, and each time moves the result by up to x·2⁻²⁴ of it.
    torch.testing.assert_close(fused.double(), exact, rtol=3 * 88 * 2**-24, atol=1e-36)
    close = (u - threshold).abs() < 1
    torch.testing.assert_close(fused[close].double(), exact[close], rtol=16 * 2**-24, atol=0)
    assert torch.equal(u, untouched[0])
    assert torch.equal(grad, untouched[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("surrogate", CASES, ids=str)
def test_the_fused_form_loses_no_more_digits(surrogate: Surrogate, dtype: torch.dtype) -> None:
    assert isinstance(surrogate, Fused)
    u = torch.linspace(-4, 8, 4001).to(dtype)
    grad = torch.linspace(-2, 3, len(u)).to(dtype)
    out = surrogate.times(grad, u, 1.0)
    assert out.dtype == dtype
    exact = grad.double() * surrogate(u.double(), 1.0)
    plain = (grad * surrogate(u, 1.0)).double()
    assert (out.double() - exact).abs().max() <= 2 * (plain - exact).abs().max()


@pytest.mark.parametrize("surrogate", CASES, ids=str)
def test_the_fused_form_of_a_nan_is_a_nan(surrogate: Surrogate) -> None:
    assert isinstance(surrogate, Fused)
    for dtype in (torch.float32, torch.bfloat16):
        u = torch.tensor([math.nan], dtype=dtype)
        assert surrogate.times(torch.ones_like(u), u, 1.0).isnan().all()
