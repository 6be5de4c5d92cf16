"""Price lists: the published numbers, their sources, and what is refused."""

from __future__ import annotations

import math

import pytest

from picojoule import hardware
from picojoule.errors import PicojouleError
from picojoule.hardware import PRICE_LISTS, PriceList

PICOJOULES = {  # accumulate, multiply-accumulate, neuron update
    "horowitz-45nm-fp32": (0.9, 0.9 + 3.7, None),
    "horowitz-45nm-fp16": (0.4, 0.4 + 1.1, None),
    "horowitz-45nm-int8": (0.03, 0.03 + 0.2, None),
    "loihi": (27.1, None, 81),
    "spinnaker2": (450, None, 2190),
}


def in_picojoules(joules: float | None) -> object:
    return None if joules is None else pytest.approx(joules * 1e12, rel=1e-12)


def test_every_list_is_checked_here() -> None:
    assert set(hardware.names()) == set(PICOJOULES)


@pytest.mark.parametrize("name", hardware.names())
def test_values_are_the_published_ones_in_joules(name: str) -> None:
    prices = hardware.get(name)
    found = (prices.accumulate, prices.multiply_accumulate, prices.neuron_update)
    assert PICOJOULES[name] == tuple(in_picojoules(joules) for joules in found)


@pytest.mark.parametrize("name", hardware.names())
def test_every_list_has_its_name_and_a_dated_source(name: str) -> None:
    prices = hardware.get(name)
    assert prices.name == name
    assert "20" in prices.source


def test_the_default_is_the_papers() -> None:
    assert hardware.get() is PRICE_LISTS["horowitz-45nm-fp32"]
    assert hardware.get().accumulate == 0.9e-12


def test_a_list_of_ones_own_goes_through() -> None:
    own = PriceList(name="mine", accumulate=1e-12, multiply_accumulate=0.0, source="measured")
    assert hardware.get(own) is own


def test_an_unknown_name_lists_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(PicojouleError) as error:
        hardware.get("horowitz-45nm-fp23")
    assert "did you mean 'horowitz-45nm-fp32'" in str(error.value)
    for name in hardware.names():
        assert name in str(error.value)
    with pytest.raises(PicojouleError, match="unknown hardware 'zzz': choose one of"):
        hardware.get("zzz")


@pytest.mark.parametrize("source", ["", "  \n"])
def test_a_list_without_a_source_is_refused(source: str) -> None:
    with pytest.raises(PicojouleError, match="'mine' needs a source"):
        PriceList(name="mine", accumulate=1e-12, source=source)


def test_a_list_without_a_name_is_refused() -> None:
    with pytest.raises(PicojouleError, match="needs a name"):
        PriceList(name=" ", accumulate=1e-12, source="measured")


@pytest.mark.parametrize("bad", [-1e-12, math.nan, math.inf])
@pytest.mark.parametrize("field", ["accumulate", "multiply_accumulate", "neuron_update"])
def test_prices_that_are_no_amount_of_energy_are_refused(field: str, bad: float) -> None:
    prices = {"accumulate": 1e-12, field: bad}
    with pytest.raises(PicojouleError, match=f"{field} must be .* not {bad}"):
        PriceList(name="mine", source="measured", **prices)


def test_lists_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        hardware.get().accumulate = 0.0  # type: ignore[misc]  # the assignment under test
    with pytest.raises(TypeError):
        PRICE_LISTS["mine"] = hardware.get()  # type: ignore[index]  # the assignment under test
