"""Evaluation: how well a trained network does, and what it spends.

Always in float32 (in bfloat16 one potential in hundreds sits exactly on the threshold), in evaluation mode, over a
whole split.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.data import Batches, Data
from picojoule.deploy.convert import convert
from picojoule.energy import hardware
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.report import EnergyReport
from picojoule.errors import PicojouleError, unknown
from picojoule.recipe import Recipe
from picojoule.recipe.sections import MOST_STEPS
from picojoule.runs.folder import Run
from picojoule.spikes.spiking import declare_spiking
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace

if TYPE_CHECKING:
    from lightning_fabric import Fabric
from picojoule.kernels.thread_count import threads
from picojoule.runs.model import Trust, count_synapses, load_model

EVALUATION_BATCH = 500
Split = Literal["test", "validation"]

_ENERGY_FIELDS = (
    *("joules", "synops", "encoder_macs", "encoder_joules", "ann_joules", "update_joules"),
    *("rate_mean", "rate_sum", "dead_rate"),
    *("steps", "psi", "hardware", "layers"),
)


@dataclass(frozen=True)
class Evaluation:
    """How well a network does on one split, and what it spends on it."""

    split: Split
    samples: int
    accuracy: float
    loss: float
    energy: EnergyReport | None
    """None for the ReLU network, which has no spikes."""
    ann_joules: float | None
    """The bill of the dense ReLU network; None where the hardware has no price for it, or a layer cannot be counted."""
    hardware: str

    def to_dict(self) -> dict[str, Any]:
        """The same fields for every network; those of spikes are None where there are none."""
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
) -> Evaluation:
    """Accuracy and energy of a finished run on one split, measured afresh from its weights.

    With `convert_steps=T`, those of the integrate-and-fire network over T time steps that `picojoule.convert` makes of
    a run with quantised ReLUs. A model that is not picojoule's own needs `trust`, as `load_model` says.
    """
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    if isinstance(convert_steps, int) and convert_steps > MOST_STEPS:
        raise PicojouleError(f"{convert_steps} time steps are too many for an image: take up to {MOST_STEPS}")
    run = run if isinstance(run, Run) else Run.at(run)
    recipe = run.recipe
    model = load_model(run, trust)
    if convert_steps is not None:
        model = convert(model, convert_steps)
    data = recipe.data.load()
    with threads(recipe.training.threads):
        return measure(model, recipe, data, split, count_synapses(model, recipe, convert_steps))


@torch.no_grad()
def measure(
    model: nn.Module, recipe: Recipe, data: Data, split: Split, synapses: Synapses | None, fabric: Fabric | None = None
) -> Evaluation:
    """Accuracy, loss and energy on one split, in float32."""
    rank, world = (fabric.global_rank, fabric.world_size) if fabric is not None else (0, 1)
    device = next(model.parameters()).device
    part = data.validation if split == "validation" else data.test
    normalization = data.normalization if recipe.data.normalize else None
    steps = synapses.steps if synapses is not None else 1
    batches = Batches(
        part, max(EVALUATION_BATCH // steps, 1), normalization, device=device, rank=rank, world_size=world
    )
    meter = EnergyMeter(synapses, recipe.energy.hardware) if synapses is not None else None
    was_training = model.training
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64)  # samples, right answers, summed loss
    for images, labels in batches:
        images = images.contiguous(memory_format=torch.channels_last)
        if meter is None:
            logits = model(images)
        else:
            with watch(model, steps) as activity:
                logits = model(images)
            meter.update(activity)
        right = (logits.argmax(1) == labels).sum().item()
        totals += torch.tensor([len(labels), right, F.cross_entropy(logits.float(), labels, reduction="sum").item()])
    model.train(was_training)
    if fabric is not None and world > 1:
        totals = summed(fabric, totals)
        meter = _of_all_processes(fabric, meter) if meter is not None else None
    samples, right, loss = totals.tolist()
    energy = meter.compute() if meter is not None else None
    return Evaluation(
        split=split,
        samples=int(samples),
        accuracy=right / samples,
        loss=loss / samples,
        energy=energy,
        ann_joules=energy.ann_joules if energy is not None else _dense_joules(model, recipe),
        hardware=recipe.energy.hardware,
    )


def _dense_joules(model: nn.Module, recipe: Recipe) -> float | None:
    """The ReLU network's own bill: its layers are counted as if each ReLU were a neuron that always fires."""
    price = hardware.get(recipe.energy.hardware).multiply_accumulate
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, nn.ReLU):
            declare_spiking(module)
    try:
        macs = trace(twin, torch.zeros(1, *recipe.input_shape, device=next(model.parameters()).device)).dense_macs
    except PicojouleError:
        return None
    return None if price is None else macs * price


def _of_all_processes(fabric: Fabric, meter: EnergyMeter) -> EnergyMeter:
    """What the meters of all processes have counted together. One that got no batch knows of no time steps."""
    states = {key: gathered(fabric, value) for key, value in meter.state_dict().items()}
    whole = EnergyMeter(meter.synapses, meter.prices)
    for process in range(fabric.world_size):
        part = EnergyMeter(meter.synapses, meter.prices)
        part.load_state_dict({key: values[process] for key, values in states.items()})
        whole.merge(part)
    return whole


def summed(fabric: Fabric, values: Tensor) -> Tensor:
    """Σ over all processes."""
    total: Tensor = fabric.all_reduce(values.to(fabric.device), reduce_op="sum")  # type: ignore[assignment]
    return total.cpu()


def gathered(fabric: Fabric, state: Tensor) -> Tensor:
    """One row a process."""
    if fabric.world_size == 1:
        return state[None]
    rows = [torch.empty_like(state, device=fabric.device) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(rows, state.to(fabric.device))
    return torch.stack(rows).cpu()
