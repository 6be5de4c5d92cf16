"""Joules as people write them."""

from __future__ import annotations

_UNITS = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ"))


def format_joules(joules: float | None) -> str:
    """Three significant digits with the fitting unit; `None` was not priced.

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
