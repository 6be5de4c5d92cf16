"""The colours of the figures, seen with every kind of eyes and on both kinds of paper."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from picojoule.report.figures import GREY, PALETTE, colours, tradeoff
from picojoule.report.page import asset

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
EYES = {
    "all three cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
FAR = 15
"""In CIE Lab, where 2 is just noticed; the nearest of Okabe and Ito's own, green and sky blue, are at 16."""


def linear(colour: str) -> np.ndarray:
    coded = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(colour: str, eyes: str) -> np.ndarray:
    seen = XYZ @ np.clip(np.array(EYES[eyes]) @ linear(colour), 0, 1) / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(seen > 0.008856, np.cbrt(seen), 7.787 * seen + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    dim, bright = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("eyes", EYES)
def test_every_colour_is_told_from_every_other(eyes: str) -> None:
    near = [pair for pair in combinations(PALETTE, 2) if np.linalg.norm(lab(pair[0], eyes) - lab(pair[1], eyes)) < FAR]
    assert near == []


@pytest.mark.parametrize("paper", ["#f6f7f9", "#1d2126", "#ffffff"])
def test_every_colour_shows_on_light_and_dark_paper(paper: str) -> None:
    assert paper in asset("page.css")
    assert [colour for colour in (*PALETTE, GREY) if contrast(colour, paper) < 1.95] == []


def test_curves_of_a_full_report_have_colours_of_their_own() -> None:
    kinds = ["Ω_syn", "Ω_total", "Ω_balance", "Ω_syn budget", *(f"Ω_syn frontier-{name}" for name in "abcd")]
    assert len({GREY, *colours(kinds).values()}) == 1 + len(kinds)


def test_a_legend_names_the_baseline_only_where_there_is_one() -> None:
    run = {"run": "a", "kind": "Ω_syn", "variant": "p = 1", "strength": "8", "rank": 8, "seed": "0", "energy": 0.5}
    rows = [{**run, "accuracy": 0.8}]
    for given, told in ((rows, ["Ω_syn"]), ([*rows, {**rows[0], "kind": "baseline"}], ["baseline", "Ω_syn"])):
        layers = tradeoff(given, ["Ω_syn"], ["p = 1"]).to_dict()["layer"]
        legends = [layer["encoding"]["color"]["legend"] for layer in layers if "color" in layer["encoding"]]
        assert legends
        assert all(legend["values"] == told for legend in legends)
