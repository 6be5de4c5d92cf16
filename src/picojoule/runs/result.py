"""The figures that a run leaves in `result.json` and `metrics.jsonl`, and the check that they are figures.

Both are files like any other: somebody may have edited them, or half of a disk may be gone. What is read is checked
here, once, so that no text, NaN or negative number is ever compared, summed or printed as a measurement. A figure is
None where the network has none, as a ReLU network has no spikes. Keys beyond these are left as they are.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

# Wider than any network, and narrow enough for sums and ratios to stay finite: one damaged figure spoils no other.
_SMALLEST, _LARGEST = 1e-30, 1e30


class Damage(Exception):
    """What of a run's figures is wrong: a clause for the sentence of whoever read them."""


def printable(text: str) -> str:
    """Without what no encoding has, such as a part of a folder's name that is no text."""
    return text.encode(errors="backslashreplace").decode()


def _energy(joules: float) -> float:
    if joules and not _SMALLEST <= joules <= _LARGEST:
        raise ValueError("not the energy of a network")
    return joules


Number = Annotated[float, Strict()]
"""Such as the loss of a network that diverges, which may be any but infinite."""
Amount = Annotated[float, Strict(), Field(ge=0, le=_LARGEST)]
Share = Annotated[float, Strict(), Field(ge=0, le=1)]
Count = Annotated[int, Strict(), Field(ge=0, le=10**15)]
Joules = Annotated[float, Strict(), AfterValidator(_energy)]
Text = Annotated[str, AfterValidator(printable)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class MeasuredLayer(_Stored):
    """One layer on a split."""

    name: Text
    neurons: Count
    synops: Amount
    joules: Joules
    rate: Amount | None
    dead_rate: Share | None


class Figures(_Stored):
    """A network on a split: what every command reads of it."""

    accuracy: Share
    loss: Number
    joules: Joules | None
    synops: Amount | None
    rate_mean: Amount | None
    dead_rate: Share | None
    encoder_macs: Amount | None = None
    encoder_joules: Joules | None = None
    ann_joules: Joules | None = None
    update_joules: Joules | None = None
    rate_sum: Amount | None = None
    layers: tuple[MeasuredLayer, ...] = ()

    @model_validator(mode="after")
    def _all_of_spikes_or_none(self) -> Figures:
        if len({figure is None for figure in (self.joules, self.synops, self.rate_mean, self.dead_rate)}) > 1:
            raise ValueError("some of joules, synops, rate_mean and dead_rate are null, and others are not")
        return self


class Measured(Figures):
    """The same with what a report reads besides."""

    samples: Count
    ann_joules: Joules | None
    layers: tuple[MeasuredLayer, ...]


class _Silenced(_Stored):
    layer: str
    epoch: Count
    joules: Joules


class _Budget(_Stored):
    """How a run with a budget ended."""

    target_joules: Joules = Field(gt=0)
    met: bool = Field(strict=True)
    epoch: Count
    baseline_joules: Joules | None
    silenced: tuple[_Silenced, ...]
    held: tuple[str, ...]


class _Result(_Stored):
    """What every finished run has, and what one with a budget has besides."""

    test: Figures
    validation: Figures
    budget: _Budget | None = None
    reference_joules: Annotated[float, Strict(), AfterValidator(_energy), Field(gt=0)] | None = None


class Epoch(_Stored):
    """A line of `metrics.jsonl`."""

    epoch: Count
    train_loss: Number | None = None
    train_accuracy: Number | None = None
    validation_loss: Number | None = None
    validation_accuracy: Number | None = None
    joules: Joules | None = None
    target_joules: Joules | None = None
    """What a budget run wanted to spend by then."""
    strength: Number | None = None


def checked_result(content: Any) -> dict[str, Any]:
    """The content of `result.json`, or `Damage`."""
    if not isinstance(content, dict) or not isinstance(content.get("test"), dict):
        raise Damage("it has no test object")
    try:
        result = _Result.model_validate(content)
    except ValidationError as fault:
        raise Damage(first_fault(fault)) from None
    if (result.test.joules is None) is not (result.validation.joules is None):
        raise Damage("it has joules for one split only")
    if result.budget is not None and None in (result.reference_joules, result.validation.joules):
        raise Damage("its budget object stands without the joules that it is measured by")
    return content


def checked_metrics(lines: list[Any]) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`, or `Damage`."""
    for number, line in enumerate(lines, 1):
        try:
            Epoch.model_validate(line)
        except ValidationError as fault:
            raise Damage(f"line {number}: {first_fault(fault)}") from None
    return lines


def first_fault(fault: ValidationError) -> str:
    """The first mistake in a file, with the key where it stands."""
    mistake = fault.errors(include_url=False)[0]
    key = ".".join(map(str, mistake["loc"]))
    return f"{key and f'{key}: '}{mistake['msg'].removeprefix('Value error, ')}"
