"""Scores of a trade-off curve: how much accuracy a way of saving energy keeps, and how well it can be controlled.

Convention: `energy` is relative to the baseline of the curve (1 is its energy), `accuracy` is a fraction in [0, 1], the
points of all seeds are pooled, and `cutoff` is P in percent, 0 ≤ P < 100. Higher is better everywhere. A score that the
points do not define is None, which tables show as "not defined".

`auc` uses every point with energy ≤ 1 and clips the area at the cutoff; the others leave out the points whose accuracy
is at or below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.errors import PicojouleError

NEIGHBOURS = 3
"""k of the nearest-neighbour estimate, scikit-learn's default."""

_Values = NDArray[np.float64]


def auc(energy: Iterable[float], accuracy: Iterable[float], cutoff: float = 70) -> float | None:
    """Compute AUC(P), the normalised area under the curve and above accuracy P/100: the paper's algorithm 1.

    Of the points with energy x ≤ 1, sorted by x, those stay that are at least as accurate as all before them. The curve
    rises straight up at the first, is linear between them, and runs on level to x = 1. Its area above P/100 is divided
    by 1 − P/100. Points of equal energy are taken in the order of their accuracy.

    Args:
        energy: Energy of each point, relative to the baseline.
        accuracy: Accuracy of each point, as a fraction.
        cutoff: P in percent.

    Returns:
        The area, in [0, 1]; None if no point has x ≤ 1.

    Raises:
        PicojouleError: If these are not the points of a curve.

    >>> auc([0.1, 0.2, 0.5, 1], [0.6, 0.8, 0.7, 0.9], cutoff=70)
    0.408333...
    """
    x, y, floor = _points(energy, accuracy, cutoff)
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    x, y = x[x <= 1], y[x <= 1]
    if not len(x):
        return None
    records = y >= np.maximum.accumulate(y)
    x, y = np.append(x[records], 1.0), np.append(y[records], y.max())
    # The kept accuracies never fall, so each piece crosses the cutoff at most once, upwards.
    width, low, high = np.diff(x), y[:-1] - floor, y[1:] - floor
    rise = np.maximum(high - low, np.finfo(float).tiny)
    crossing = width * np.maximum(high, 0) ** 2 / (2 * rise)
    area = np.where(low >= 0, width * (low + high) / 2, crossing)
    return min(math.fsum(area) / (1 - floor), 1.0)


def accuracy_at(energy: Iterable[float], accuracy: Iterable[float], share: float) -> float | None:
    """Read the accuracy at an energy off the curve: on straight lines, over the logarithm of the energy.

    Of points with equal energy the most accurate counts. Nothing is read beyond the first and the last point.

    Args:
        energy: Energy of each point, relative to the baseline.
        accuracy: Accuracy of each point, as a fraction.
        share: The energy, relative to the baseline, above 0.

    Returns:
        The accuracy; None if the points lie all above or all below that energy.

    Raises:
        PicojouleError: If these are not the points of a curve, or the energy is not above 0.

    >>> round(accuracy_at([0.1, 0.4], [0.8, 0.9], 0.2), 3), accuracy_at([0.1, 0.4], [0.8, 0.9], 0.5)
    (0.85, None)
    """
    x, y, _ = _points(energy, accuracy, 0)
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share < math.inf:
        raise PicojouleError(f"share={share!r} is not an energy relative to the baseline: take a number above 0")
    x, y = x[x > 0], y[x > 0]
    if not len(x) or not x.min() <= share <= x.max():
        return None
    order = np.lexsort((y, x))
    last = np.append(np.diff(x[order]) > 0, True)  # the most accurate of equal energy
    return float(np.interp(math.log(share), np.log(x[order][last]), y[order][last]))


def spearman(energy: Iterable[float], accuracy: Iterable[float], cutoff: float = 70) -> float | None:
    """Compute Spearman's rank correlation of energy and accuracy above the cutoff.

    Args:
        energy: Energy of each point, relative to the baseline.
        accuracy: Accuracy of each point, as a fraction.
        cutoff: P in percent.

    Returns:
        The correlation, in [−1, 1]; None for fewer than three points (two always give ±1) and where all energies or all
        accuracies are equal.

    Raises:
        PicojouleError: If these are not the points of a curve.

    >>> spearman([0.1, 0.2, 0.5, 1], [0.75, 0.8, 0.85, 0.9]), spearman([0.1, 1], [0.8, 0.9])
    (1.0, None)
    """
    from scipy.stats import spearmanr

    x, y = _above(energy, accuracy, cutoff)
    if len(x) < 3 or not np.ptp(x) or not np.ptp(y):
        return None
    return float(np.clip(spearmanr(x, y).statistic, -1, 1))


def mutual_information(energy: Iterable[float], accuracy: Iterable[float], cutoff: float = 70) -> float | None:
    """Compute the mutual information of energy and accuracy above the cutoff as the paper has it, in nats.

    This is the plug-in estimate with raw values as symbols, I = Σ p(x, y) ln(p(x, y) / p(x)p(y)). N distinct energies
    with N distinct accuracies give ln N, and each tie of two accuracies takes (2/N) ln 2 away: it counts points rather
    than measuring dependence. `mutual_information_knn` does measure it.

    Args:
        energy: Energy of each point, relative to the baseline.
        accuracy: Accuracy of each point, as a fraction.
        cutoff: P in percent.

    Returns:
        Nats; None without any point.

    Raises:
        PicojouleError: If these are not the points of a curve.

    >>> mutual_information([0.1, 0.2, 0.5, 1], [0.75, 0.8, 0.85, 0.9])  # ln 4
    1.38629...
    """
    from sklearn.metrics import mutual_info_score

    x, y = _above(energy, accuracy, cutoff)
    if not len(x):
        return None
    symbols = [np.unique(values, return_inverse=True)[1] for values in (x, y)]
    return float(mutual_info_score(*symbols))


def mutual_information_knn(
    energy: Iterable[float], accuracy: Iterable[float], cutoff: float = 70, neighbours: int = NEIGHBOURS
) -> float | None:
    """Estimate the mutual information of energy and accuracy above the cutoff for continuous values, in nats.

    By the distances to the k nearest neighbours (Kraskov et al., 2004), 0 where the estimate is negative, with a fixed
    seed for the noise that breaks ties.

    Args:
        energy: Energy of each point, relative to the baseline.
        accuracy: Accuracy of each point, as a fraction.
        cutoff: P in percent.
        neighbours: k.

    Returns:
        Nats; None unless there are more than k points.

    Raises:
        PicojouleError: If these are not the points of a curve, or k is not a whole number above 0.

    >>> mutual_information_knn([0.1, 0.2, 0.5], [0.75, 0.8, 0.85]) is None
    True
    """
    from sklearn.feature_selection import mutual_info_regression

    if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 1:
        raise PicojouleError(f"neighbours={neighbours!r} is not allowed: take a whole number of 1 or more")
    x, y = _above(energy, accuracy, cutoff)
    if len(x) <= neighbours:
        return None
    return float(mutual_info_regression(x[:, None], y, n_neighbors=neighbours, random_state=0)[0])


def _above(energy: Iterable[float], accuracy: Iterable[float], cutoff: float) -> tuple[_Values, _Values]:
    """Return the points whose accuracy is above the cutoff."""
    x, y, floor = _points(energy, accuracy, cutoff)
    return x[y > floor], y[y > floor]


def _points(energy: Iterable[float], accuracy: Iterable[float], cutoff: object) -> tuple[_Values, _Values, float]:
    """Check the points of a curve, and return them with P/100."""
    x, y = _numbers("energies", energy), _numbers("accuracies", accuracy)
    if x.shape != y.shape:
        raise PicojouleError(
            f"a curve needs one accuracy for each energy, but got {len(x)} energies and {len(y)} accuracies: give as "
            "many of both"
        )
    if not (np.isfinite(x).all() and (x >= 0).all()):
        raise PicojouleError("an energy of the curve is negative or not finite: give energy relative to the baseline")
    if not ((y >= 0) & (y <= 1)).all():
        wrong = y[~((y >= 0) & (y <= 1))][0]
        raise PicojouleError(f"an accuracy of {wrong:g} is not between 0 and 1: give accuracies as fractions")
    if not isinstance(cutoff, int | float | np.integer | np.floating) or not 0 <= cutoff < 100:
        raise PicojouleError(f"cutoff={cutoff!r} is not allowed: take a percentage from 0 to below 100")
    return x, y, float(cutoff) / 100


def _numbers(what: str, values: Iterable[Any]) -> _Values:
    """Read numbers from a list, an array or a tensor on any device, also one that takes part in training."""
    try:
        each = list(values)
        if any(isinstance(value, str) or getattr(value, "ndim", 0) for value in each):
            raise TypeError
        return np.array([float(value.item() if hasattr(value, "item") else value) for value in each])
    except (TypeError, ValueError, OverflowError):
        raise PicojouleError(
            f"the {what} of a curve are not a row of numbers: give a list of them, or an array"
        ) from None
