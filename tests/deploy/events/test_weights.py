"""How weights lie in memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from picojoule.deploy.events.weights import as_bytes, as_rows


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
