from __future__ import annotations

import pytest

from picojoule.energy.units import format_joules, parse_joules, tidy_joules
from picojoule.errors import PicojouleError


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (None, "not priced"),
        (0.0, "0 J"),
        (2.5, "2.50 J"),
        (1.0, "1.00 J"),
        (0.999, "999 mJ"),
        (0.9996, "1.00 J"),
        (89.006e-6, "89.0 µJ"),
        (5.4e-12, "5.40 pJ"),
        (6 * 0.9e-12, "5.40 pJ"),
        (110.4e-12, "110 pJ"),
        (999.4e-12, "999 pJ"),
        (999.6e-12, "1.00 nJ"),
        (99.95e-9, "100 nJ"),
        (1e-9, "1.00 nJ"),
        (1e-9 * (1 - 2**-53), "1.00 nJ"),
        (0.03e-12, "0.0300 pJ"),
    ],
)
def test_three_digits_and_the_fitting_unit(joules: float | None, text: str) -> None:
    assert format_joules(joules) == text


@pytest.mark.parametrize("exponent", range(-12, 3))
def test_what_is_written_is_within_half_of_the_last_digit(exponent: int) -> None:
    for digits in (1.0, 1.004, 1.005, 9.994, 9.995, 9.9999):
        joules = digits * 10.0**exponent
        number, unit = format_joules(joules).split(" ")
        assert "e" not in number or joules >= 999
        written = float(number) * {"J": 1.0, "mJ": 1e-3, "µJ": 1e-6, "nJ": 1e-9, "pJ": 1e-12}[unit]
        assert written == pytest.approx(joules, rel=0.0051)


@pytest.mark.parametrize(
    ("text", "joules", "tidy"),
    [
        ("2 uJ", 2e-6, "2 µJ"),
        ("2µJ", 2e-6, "2 µJ"),
        ("2 μJ", 2e-6, "2 µJ"),
        ("0.002mJ", 2e-6, "2 µJ"),
        ("850 nJ", 850e-9, "850 nJ"),
        ("1e3 pJ", 1e-9, "1 nJ"),
        (".5 pJ", 0.5e-12, "0.5 pJ"),
        ("1500 J", 1500.0, "1500 J"),
    ],
)
def test_an_energy_is_read_in_any_unit(text: str, joules: float, tidy: str) -> None:
    assert parse_joules(text) == joules
    assert tidy_joules(text) == tidy
    assert parse_joules(tidy) == joules


@pytest.mark.parametrize("text", ["", "2", "uJ", "2 kJ", "-2 uJ", "2 u J", "two uJ", "2 UJ", "inf J"])
def test_what_is_no_energy(text: str) -> None:
    with pytest.raises(PicojouleError, match="is not a valid energy"):
        parse_joules(text)
