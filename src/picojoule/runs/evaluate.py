"""Evaluation: how well a trained network does on a split, and what it spends.

Always in float32 (in bfloat16 one potential in hundreds sits exactly on the threshold), in evaluation mode, over a
whole split.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import nn

from picojoule.data import Batches, Data, Given
from picojoule.deploy.convert import convert
from picojoule.energy import hardware
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.report import EnergyReport
from picojoule.errors import PicojouleError, unknown
from picojoule.kernels.thread_count import threads
from picojoule.neurons.time_steps import as_batch, logits_of
from picojoule.recipe import Recipe
from picojoule.recipe.sections import MOST_STEPS
from picojoule.runs.folder import Run
from picojoule.runs.footprint import Footprint, footprint
from picojoule.runs.model import Trust, count_synapses, load_data, load_model
from picojoule.runs.result import Split
from picojoule.spikes.spiking import declare_spiking
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace

EVALUATION_BATCH = 500
"""Images times time steps in a batch of an evaluation."""

_ENERGY_FIELDS = (
    *("joules", "synops", "encoder_macs", "encoder_joules", "analog_macs", "analog_joules", "ann_joules"),
    *("update_joules", "total_joules", "total_shares", "ann_ratio", "synops_per_synapse"),
    *("rate_mean", "rate_sum", "dead_rate"),
    *("steps", "psi", "hardware", "layers"),
)


@dataclass(frozen=True)
class Evaluation:
    """How well a network does on one split, and what it spends on it, per sample: what `picojoule.evaluate` gives.

    >>> measured = Evaluation("test", 10, 0.9, 0.3, None, None, "loihi")
    >>> measured.accuracy, measured.to_dict()["joules"]
    (0.9, None)
    """

    split: Split
    """The images: "test" or "validation"."""
    samples: int
    """How many they are."""
    accuracy: float
    """Share of right answers."""
    loss: float
    """Mean cross-entropy."""
    energy: EnergyReport | None
    """The energy by layer and in total; None for the ReLU network, which has no spikes."""
    ann_joules: float | None
    """Energy of the dense ReLU twin; None where the hardware has no price for it, or a layer cannot be counted."""
    hardware: str
    """The price list."""
    footprint: Footprint | None = None
    """What the network occupies, where `evaluate` measured it."""

    def to_dict(self) -> dict[str, Any]:
        """Give the fields of `evaluate --json` that are the same for every network; the footprint has its own.

        Returns:
            What `SplitResult` takes; the figures of spikes are None where there are none.
        """
        head = {"split": self.split, "samples": self.samples, "accuracy": self.accuracy, "loss": self.loss}
        bill: dict[str, Any] = dict.fromkeys(_ENERGY_FIELDS)
        bill |= {"ann_joules": self.ann_joules, "steps": 1, "hardware": self.hardware, "layers": []}
        bill = self.energy.to_dict() if self.energy is not None else bill
        return {**head, **{field: bill[field] for field in _ENERGY_FIELDS}}


def evaluate(
    run: Run | str | os.PathLike[str],
    split: Split = "test",
    *,
    convert_steps: int | None = None,
    trust: Trust = False,
    data: Given | None = None,
) -> Evaluation:
    """Measure a finished run on one split, afresh from its weights.

    Args:
        run: The run, or the path of its folder.
        split: "test" or "validation".
        convert_steps: Measure the integrate-and-fire network over so many time steps that `picojoule.convert` makes of
            a run with quantised ReLUs.
        trust: Needed for a model or data that are not picojoule's own code, as `load_model` says.
        data: The data that were given to `fit`, for a run with `data.name = "own"`.

    Returns:
        Accuracy, loss and energy by layer, per sample, and what the network occupies.

    Raises:
        PicojouleError: If the run cannot be read, its code is not trusted, or a split or number is not valid.

    >>> measured = evaluate(finished_run, "validation")  # a run that `fit` returned, or the path of its folder
    >>> measured.samples, measured.accuracy == finished_run.result.validation.accuracy
    (10, True)
    >>> measured.footprint.parameters
    1559096
    """
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    if isinstance(convert_steps, int) and convert_steps > MOST_STEPS:
        raise PicojouleError(f"{convert_steps} time steps are too many for an image: take up to {MOST_STEPS}")
    run = Run.opened(run)
    recipe = run.recipe
    model = load_model(run, trust)
    if convert_steps is not None:
        model = convert(model, convert_steps)
    loaded = load_data(run, trust, data)
    with threads(recipe.training.threads):
        measured = measure(model, recipe, loaded, split, count_synapses(model, recipe, convert_steps))
        return replace(measured, footprint=footprint(model, recipe.example()))


def measure(model: nn.Module, recipe: Recipe, data: Data, split: Split, synapses: Synapses | None) -> Evaluation:
    """Measure a network on a whole split, in this process.

    Args:
        model: The network, on the device where it is to be measured.
        recipe: Its recipe.
        data: The images.
        split: Which of them: "test" or "validation".
        synapses: Its synapses, as `count_synapses` gives them; None for a network without spikes.

    Returns:
        Accuracy, loss and energy, in float32.
    """
    return tally(model, recipe, data, split, synapses).evaluation(model, recipe, split)


@dataclass
class Tally:
    """The sums over some batches of a split, of which an `Evaluation` is made."""

    meter: EnergyMeter | None
    """Counts spikes; None for a network without."""
    samples: int = 0
    """Images."""
    right: int = 0
    """Right answers."""
    loss: float = 0.0
    """Summed cross-entropy."""

    def merge(self, other: Tally) -> None:
        """Add what was counted on other batches of the same split, for instance in another process.

        Args:
            other: The tally of these batches, of the same network; one without batches adds nothing.
        """
        if self.meter is not None and other.meter is not None:
            self.meter.merge(other.meter)
        self.samples += other.samples
        self.right += other.right
        self.loss += other.loss

    def evaluation(self, model: nn.Module, recipe: Recipe, split: Split) -> Evaluation:
        """Make means of the sums.

        Args:
            model: The network that was measured.
            recipe: Its recipe.
            split: The split that was counted.

        Returns:
            The figures per sample.
        """
        energy = self.meter.compute() if self.meter is not None else None
        return Evaluation(
            split=split,
            samples=self.samples,
            accuracy=self.right / self.samples,
            loss=self.loss / self.samples,
            energy=energy,
            ann_joules=energy.ann_joules if energy is not None else _dense_joules(model, recipe),
            hardware=recipe.energy.hardware,
        )


@torch.no_grad()
def tally(
    model: nn.Module,
    recipe: Recipe,
    data: Data,
    split: Split,
    synapses: Synapses | None,
    rank: int = 0,
    world_size: int = 1,
) -> Tally:
    """Count right answers, loss and spikes over one process's share of a split.

    Args:
        model: The network, on the device where it is to be measured.
        recipe: Its recipe.
        data: The images.
        split: Which of them: "test" or "validation".
        synapses: Its synapses, as `count_synapses` gives them; None for a network without spikes.
        rank: The number of this process.
        world_size: How many processes share the split.

    Returns:
        The sums; of several processes, `Tally.merge` adds them up.
    """
    device = next(model.parameters()).device
    part = data.validation if split == "validation" else data.test
    normalization = data.normalization if recipe.data.normalize else None
    steps = synapses.steps if synapses is not None else 1
    batches = Batches(
        part, max(EVALUATION_BATCH // steps, 1), normalization, device=device, rank=rank, world_size=world_size
    )
    counted = Tally(EnergyMeter(synapses, recipe.energy.hardware) if synapses is not None else None)
    was_training = model.training
    model.eval()
    for images, labels in batches:
        images = as_batch(images)
        if counted.meter is None:
            outputs = model(images)
        else:
            with watch(model, steps) as activity:
                outputs = model(images)
            counted.meter.update(activity)
        logits = logits_of(outputs, len(labels))
        counted.samples += len(labels)
        counted.right += int((logits.argmax(1) == labels).sum())
        counted.loss += F.cross_entropy(logits.float(), labels, reduction="sum").item()
    model.train(was_training)
    return counted


def _dense_joules(model: nn.Module, recipe: Recipe) -> float | None:
    """Price the ReLU network itself: its layers are counted as if each ReLU were a neuron that always fires."""
    price = hardware.get(recipe.energy.hardware).multiply_accumulate
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, nn.ReLU):
            declare_spiking(module)
    try:
        macs = trace(twin, recipe.example().to(next(model.parameters()).device), steps=recipe.neuron.steps).dense_macs
    except PicojouleError:
        return None
    return None if price is None else macs * price
