"""Splits: exact sizes, proportions, and draws that may never change again."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picojoule.data.splits import SUBSET_SEED, VALIDATION_SEED, draw_balanced, draw_stratified, shuffled
from picojoule.errors import PicojouleError

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(lambda values: np.array(values, dtype=np.int64))


def fingerprint(indices: np.ndarray) -> str:
    return hashlib.md5(indices.astype("<i8").tobytes()).hexdigest()


def test_the_draws_of_the_paper_sized_sets_never_change() -> None:
    """A changed draw would mix validation images into the training of a resumed or compared run."""
    for total, count, expected in [
        (60000, 6000, "760d1bc6fb3fa0cba9d8469738b2ec44"),
        (50000, 5000, "26fc670de202e48c2723b8ce57ab278c"),
    ]:
        held_out, kept = draw_stratified(np.arange(total) % 10, count, VALIDATION_SEED)
        assert fingerprint(held_out) == expected
        assert len(kept) == total - count
    assert (
        fingerprint(draw_balanced(np.arange(54000) % 10, 10000, 10, SUBSET_SEED)) == "345dc8a114f8286e50ef6433430bad9b"
    )


@given(st.integers(0, 300), st.integers(0, 2**64), st.integers(0, 1000))
def test_a_shuffle_is_a_permutation_that_its_key_decides(count: int, seed: int, epoch: int) -> None:
    order = shuffled(count, (seed, epoch))
    assert sorted(order.tolist()) == list(range(count))
    assert np.array_equal(order, shuffled(count, (seed, epoch)))


def test_other_keys_give_other_orders() -> None:
    orders = [shuffled(1000, key) for key in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0, 1), (7,)]]
    assert len({fingerprint(order) for order in orders}) == len(orders)


@given(LABELS, st.data())
def test_a_stratified_draw_has_the_size_and_the_proportions(labels: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(labels)))
    drawn, rest = draw_stratified(labels, count, seed=3)
    assert len(drawn) == count
    assert sorted([*drawn, *rest]) == list(range(len(labels)))
    for kind in range(5):
        share = np.sum(labels == kind) * count / len(labels)
        assert abs(np.sum(labels[drawn] == kind) - share) < 1


def test_more_than_there_is_cannot_be_drawn() -> None:
    with pytest.raises(PicojouleError, match="at most 4"):
        draw_stratified(np.zeros(4, dtype=np.int64), 5, seed=0)


@given(LABELS, st.integers(-1, 90))
def test_a_balanced_draw_is_balanced_or_says_how_large_it_could_be(labels: np.ndarray, count: int) -> None:
    sizes = np.bincount(labels, minlength=5)
    # The extra images go to the classes in order, so these are all the counts that can be had.
    possible = [
        n for n in range(1, len(labels) + 1) if all(n // 5 + (k < n % 5) <= size for k, size in enumerate(sizes))
    ]
    if count in possible:
        drawn = draw_balanced(labels, count, 5)
        per_class = np.bincount(labels[drawn], minlength=5)
        assert len(set(drawn.tolist())) == per_class.sum() == count
        assert per_class.max() - per_class.min() <= 1
    else:
        with pytest.raises(PicojouleError, match=rf"limit = {count} .* and {max(possible, default=0)} images"):
            draw_balanced(labels, count, 5)


def test_larger_subsets_contain_smaller_ones() -> None:
    labels = np.arange(500) % 10
    subsets = [set(draw_balanced(labels, count, 10).tolist()) for count in (7, 100, 101, 333, 500)]
    assert all(small < large for small, large in itertools.pairwise(subsets))
