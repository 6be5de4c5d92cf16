"""Colours, marks and dashes: the same for a penalty wherever it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Okabe and Ito (2008), "Color universal design", without its yellow, which is lost on white paper, and two more that
# are as far from these and from each other for the colour-blind.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, VIOLET, BROWN = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#9036E8", "#873C1E"),
)
GREY = "#8C8C8C"
"""Of the baseline."""
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, VIOLET, BROWN)
KIND_COLOURS = {"Ω_syn": BLUE, "Ω_total": ORANGE, "Ω_balance": GREEN}
_WAYS = {"Ω_syn budget": PURPLE, "Ω_syn frontier": SKY}
"""The other kinds of curves that a report often has; any further kind takes what is left of the palette."""
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross", "triangle-down")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])


def colours(kinds: Iterable[str]) -> dict[str, str]:
    """Choose the colours of curves; a kind has the same colour wherever it appears.

    Args:
        kinds: Kinds of curves.

    Returns:
        A colour for each; kinds that are not known take what is left of the palette.

    Example:
        >>> colours(["Ω_syn", "conversion"])
        {'Ω_syn': '#0072B2', 'conversion': '#D55E00'}
        >>> frontiers = colours([*KIND_COLOURS, "Ω_syn budget", *(f"Ω_syn frontier {folder}" for folder in "abcd")])
        >>> len({GREY, *frontiers.values()})
        9
    """
    known, kinds = {**KIND_COLOURS, **_WAYS}, list(dict.fromkeys(kinds))
    left = [colour for colour in PALETTE if colour not in known.values()]
    left += [colour for kind, colour in _WAYS.items() if kind not in kinds]  # grey would pass for the baseline
    free = iter(left)
    return {kind: known.get(kind) or next(free, GREY) for kind in kinds}


def looks(variants: Sequence[str]) -> dict[str, tuple[str, list[int]]]:
    """Choose the marks and dashes of curves.

    Args:
        variants: Variants of curves.

    Returns:
        For each, the shape of its marks and the dashes of its line.

    Example:
        >>> looks(["p = 1", "p = 2"])
        {'p = 1': ('circle', [1, 0]), 'p = 2': ('triangle-up', [6, 3])}
    """
    return {
        variant: (SHAPES[number % len(SHAPES)], DASHES[number % len(DASHES)]) for number, variant in enumerate(variants)
    }
