"""The result of a run, which is the content of `result.json`: the one place that reads, checks and writes it.

A figure is None where the network has none, as a ReLU network has no spikes. Figures are means per sample; accuracy
and rates are fractions; `joules` is what the spikes cost, without the encoder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from picojoule.io import files
from picojoule.runs.stored import Amount, Count, InvalidContent, Joules, Number, Share, SomeJoules, StoredValue, Text

if TYPE_CHECKING:
    from typing_extensions import Self

Split = Literal["test", "validation"]


class LayerResult(StoredValue):
    """What one spiking layer, or one relay, did on a split."""

    name: Text
    """The layer's name in the model."""
    neurons: Count
    """Neurons of the layer; 0 for a relay."""
    synops: Amount
    """Synaptic operations per sample."""
    joules: Joules
    """Energy of its spikes per sample."""
    rate: Amount | None
    """Spikes per neuron and step; null for a relay."""
    dead_rate: Share | None
    """Share of its neurons that never fired; null for a relay."""


class SplitResult(StoredValue):
    """What a network did on one split: the `test` or the `validation` object of `result.json`."""

    split: Split
    """The images that it was measured on."""
    samples: Count
    """How many images the split has."""
    accuracy: Share
    """Share of right answers."""
    loss: Number
    """Mean cross-entropy."""
    joules: Joules | None
    """Energy of the spikes per sample (E_SNN), without the encoder; null for a network without spikes."""
    synops: Amount | None
    """Synaptic operations per sample."""
    encoder_macs: Amount | None
    """Multiply-accumulates per sample of the synapses that something other than spikes feeds."""
    encoder_joules: Joules | None
    """The energy of these; null where the hardware has no price for them."""
    analog_macs: Amount | None = None
    """Multiply-accumulates per sample of the synapses inside the network that analog values feed."""
    analog_joules: Joules | None = None
    """The energy of these; null where the hardware has no price for them."""
    ann_joules: Joules | None
    """The energy per sample of the dense ReLU twin."""
    update_joules: Joules | None = None
    """What the neurons cost per sample whether they fire or not, on hardware that charges each update."""
    total_joules: Joules | None = None
    """Spikes, encoder, analog synapses and neuron updates together; null where one of the first three has no price."""
    total_shares: dict[str, Share] | None = None
    """The share of each priced part in `total_joules`, such as that of "encoder"; empty without a total."""
    ann_ratio: Amount | None = None
    """`total_joules` as a multiple of `ann_joules`."""
    synops_per_synapse: Amount | None = None
    """Synaptic operations per synapse and inference."""
    rate_mean: Amount | None
    """Mean over the layers of their firing rates."""
    rate_sum: Amount | None
    """Sum over the layers of their firing rates."""
    dead_rate: Share | None
    """Share of all neurons that never fired."""
    steps: Count
    """Time steps T."""
    psi: Text | None
    """How synapses were counted: exact, uniform or paper."""
    hardware: Text
    """The price list."""
    layers: tuple[LayerResult, ...]
    """The same by layer, in the order of the model."""

    @model_validator(mode="after")
    def _check_spikes(self) -> SplitResult:
        if len({figure is None for figure in (self.joules, self.synops, self.rate_mean, self.dead_rate)}) > 1:
            raise ValueError("some of joules, synops, rate_mean and dead_rate are null, and others are not")
        return self


class SilencedLayer(StoredValue):
    """A layer that had no spike on the whole validation set after some epoch."""

    layer: Text
    """Its name."""
    epoch: Count
    """The first such epoch, counted from 0."""
    joules: Joules
    """The energy per sample of the network then."""


class BudgetResult(StoredValue):
    """How a run with an energy budget ended."""

    target_joules: SomeJoules
    """The energy per sample that was asked for."""
    met: bool = Field(strict=True)
    """Whether the network stays within it."""
    epoch: Count
    """The epoch whose network was taken, counted from 0."""
    baseline_joules: Joules | None
    """What the fully trained baseline in the same folder spends, where there is one."""
    silenced: tuple[SilencedLayer, ...]
    """The layers that fell silent on the way."""
    held: tuple[Text, ...]
    """The layers that the guard held at the least firing rate at the end."""


class LayerKernels(StoredValue):
    """How one layer of synapses was computed in training."""

    name: Text
    """The layer's name in the model."""
    batches: Count
    """Batches that it was shown; with time steps in a loop, all calls of the layer."""
    by_events: Count
    """Those of them in which it skipped silent inputs."""
    break_even: Share | None
    """Share of active inputs up to which that was taken to be faster; null where nobody asked."""


class KernelsResult(StoredValue):
    """How the layers of synapses were computed in training."""

    mode: Text
    """auto, measured, or dense where no layer may skip silent inputs."""
    layers: tuple[LayerKernels, ...]
    """The layers that may, in the order of the model, as the first process saw them."""


class RunResult(StoredValue):
    """The result of a finished run, as in `result.json`.

    Example:
        >>> result = RunResult.parse(
        ...     {
        ...         split: {
        ...             "split": split, "samples": 100, "accuracy": 0.9, "loss": 0.3, "joules": 2e-6, "synops": 2.2e6,
        ...             "encoder_macs": 0.0, "encoder_joules": 0.0, "ann_joules": None, "rate_mean": 0.1,
        ...             "rate_sum": 0.1, "dead_rate": 0.0, "steps": 1, "psi": "exact",
        ...             "hardware": "horowitz-45nm-fp32", "layers": [],
        ...         }
        ...         for split in ("test", "validation")
        ...     }
        ... )  # fmt: skip
        >>> result.test.accuracy, result.validation.joules, result.budget
        (0.9, 2e-06, None)
    """

    test: SplitResult
    """On the test images."""
    validation: SplitResult
    """On the validation images."""
    reference_joules: SomeJoules | None = None
    """What the unpenalised network spent, by which a budget is measured; only in a run with a budget."""
    budget: BudgetResult | None = None
    """How it stands to its budget; only in a run with a budget."""
    recipe: dict[str, Any] | None = None
    """The recipe, as `picojoule schema recipe` describes it."""
    digest: Text | None = None
    """The recipe's digest, which is the end of the run's name."""
    commit: Text | None = None
    """The commit of picojoule's source, where it ran from a checkout."""
    versions: dict[str, Any] | None = None
    """Versions of Python and of the packages that decide the figures."""
    device: Text | None = None
    """The device that it was trained on."""
    machine: dict[str, Any] | None = None
    """The machine that it was trained on: its processor, cores and memory."""
    precision: Text | None = None
    """The precision of training: 32 or bf16-mixed."""
    processes: Count | None = None
    """How many processes shared each batch."""
    convention: dict[str, Any] | None = None
    """What the figures mean: per sample, by which psi and hardware, and so on."""
    kernels: KernelsResult | None = None
    """How the layers of synapses were computed in training, on which the last digits of the weights depend."""

    @model_validator(mode="after")
    def _check_agreement(self) -> RunResult:
        if (self.test.joules is None) is not (self.validation.joules is None):
            raise ValueError("it has joules for one split only")
        if self.budget is not None and None in (self.reference_joules, self.validation.joules):
            raise ValueError("its budget object stands without the joules that it is measured by")
        return self

    @classmethod
    def parse(cls, content: Any) -> Self:
        """Check the content of `result.json` and make a result of it.

        Args:
            content: What stands in the file, as `json.loads` gives it.

        Returns:
            The result.

        Raises:
            InvalidContent: If it is not the result of a run; says which key is wrong.
        """
        if not isinstance(content, dict) or not isinstance(content.get("test"), dict):
            raise InvalidContent("it has no test object")
        return super().parse(content)

    def on(self, split: Split) -> SplitResult:
        """Give the figures of one split.

        Args:
            split: "test" or "validation".

        Returns:
            The object of that name.
        """
        return self.test if split == "test" else self.validation

    @property
    def guard(self) -> bool | None:
        """`penalty.guard` of the recipe; None, which is on with a budget, where the result does not hold it."""
        penalty = (self.recipe or {}).get("penalty")
        return penalty.get("guard") if isinstance(penalty, dict) else None

    def to_json(self) -> str:
        """Give the text of `result.json`.

        Returns:
            Indented JSON that ends in a line break.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def read_result(path: Path) -> RunResult:
    """Read a `result.json`.

    Args:
        path: The file.

    Returns:
        The checked result.

    Raises:
        InvalidContent: If it is not the result of a run.
        OSError: If the file cannot be read.
        ValueError: If it is not JSON.
    """
    return RunResult.parse(files.read_json(path))
