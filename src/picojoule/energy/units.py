"""Units of energy: joules as people write and read them."""

from __future__ import annotations

import re
from decimal import Decimal

from picojoule.errors import PicojouleError

_UNITS = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ"))
_EXPONENTS = {"J": 0, "mJ": -3, "µJ": -6, "nJ": -9, "pJ": -12}
# The micro sign, the Greek letter that looks like it, and what a keyboard without either has.
_SPELLINGS = {**{unit: unit for unit in _EXPONENTS}, "μJ": "µJ", "uJ": "µJ"}
_ENERGY = re.compile(r"\s*(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,2}))?\s*([a-zµμ]?J)\s*")


def format_joules(joules: float | None) -> str:
    """Write an energy in three significant digits with the fitting unit.

    Args:
        joules: The energy, or None if it was not priced.

    Returns:
        The text for tables and messages.

    >>> format_joules(89.006e-6), format_joules(999.6e-12), format_joules(0.0), format_joules(None)
    ('89.0 µJ', '1.00 nJ', '0 J', 'not priced')
    """
    if joules is None:
        return "not priced"
    if joules == 0:
        return "0 J"
    joules = float(f"{joules:.2e}")  # first the digits, then the unit: 999.6 pJ are 1.00 nJ
    scale, unit = next(((s, u) for s, u in _UNITS if joules >= s), _UNITS[-1])
    return f"{joules / scale:#.3g} {unit}".replace(". ", " ")


def parse_joules(text: str) -> float:
    """Read an energy with its unit: J, mJ, µJ (or uJ), nJ or pJ.

    Args:
        text: A number and a unit.

    Returns:
        The energy in joules.

    Raises:
        PicojouleError: It is not a number and a unit.

    >>> parse_joules("2 uJ"), parse_joules("850nJ")
    (2e-06, 8.5e-07)
    """
    return float(_decimal(text))


def tidy_joules(text: str) -> str:
    """Rewrite an energy in one spelling, so that equal energies are equal texts, to the last digit.

    Args:
        text: A number and a unit.

    Returns:
        The number in the largest unit in which it is 1 or more.

    Raises:
        PicojouleError: It is not a number and a unit.

    >>> tidy_joules("2000 nJ"), tidy_joules("0.0020mJ"), tidy_joules("850 nJ"), tidy_joules("0.25 pJ")
    ('2 µJ', '2 µJ', '850 nJ', '0.25 pJ')
    """
    joules = _decimal(text)
    unit = next((unit for unit, exponent in _EXPONENTS.items() if joules.scaleb(-exponent) >= 1), "pJ")
    return f"{joules.scaleb(-_EXPONENTS[unit]).normalize():f} {unit}"


def _decimal(text: str) -> Decimal:
    found = _ENERGY.fullmatch(text)
    unit = _SPELLINGS.get(found[3]) if found else None
    if found is None or unit is None:
        raise PicojouleError(
            f"{text!r} is not a valid energy: write a number and one of the units {', '.join(_EXPONENTS)} (uJ will do "
            "for µJ), as in '2 uJ'"
        )
    return Decimal(found[1]).scaleb(int(found[2] or 0) + _EXPONENTS[unit])
