"""How long a training step takes on this machine: for estimates, and for the paper's table of training times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from picojoule.data import DATASETS
from picojoule.kernels.thread_count import threads
from picojoule.penalty import Penalty, PenaltyKind
from picojoule.recipe import Recipe
from picojoule.runs.model import build_model, count_synapses
from picojoule.spikes.watch import watch

_FEW, _MORE = 2, 8
_TURNS = 2


@dataclass(frozen=True)
class Pace:
    """Seconds: a training step of n images takes step + n·image on one core, evaluation shown for each image."""

    step: float
    image: float
    shown: float

    def training(self, recipe: Recipe) -> float:
        """A whole run, its evaluations included."""
        train, validation, test = DATASETS[recipe.data.name].splits
        data, epochs = recipe.data, recipe.training.epochs
        images = data.limit or train
        steps = -(-images // recipe.training.batch_size)
        shown = epochs * (data.limit_validation or validation) + (data.limit_test or test)
        return epochs * (steps * self.step + images * self.image) + shown * self.shown


Paces = Mapping[str, Pace]
"""By the name of the model."""


class Steps:
    """Training steps of one network on one batch of noise."""

    def __init__(self, recipe: Recipe, images: int) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = build_model(recipe).to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's annotations
        self.recipe = recipe
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=recipe.optimizer.lr)
        pixels = torch.randn(images, *recipe.input_shape, device=self.device)
        self._images = pixels.contiguous(memory_format=torch.channels_last)
        self._labels = torch.randint(recipe.classes, (images,), device=self.device)

    def penalty(self, kind: PenaltyKind) -> Penalty:
        synapses = count_synapses(self.model, self.recipe)
        assert synapses is not None  # the paper's recipes have spiking neurons
        return Penalty(synapses, kind)

    def train(self, penalty: Penalty | None, images: int | None = None) -> None:
        """One step; without a penalty nobody watches the spikes."""
        batch, labels = self._images[:images], self._labels[:images]
        self.model.train()
        if penalty is None:
            loss = F.cross_entropy(self.model(batch), labels)
        else:
            with watch(self.model) as activity:
                logits = self.model(batch)
            loss = F.cross_entropy(logits, labels) + penalty(activity)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    @torch.no_grad()
    def show(self) -> None:
        """The forward pass of an evaluation."""
        self.model.eval()
        self.model(self._images)

    def seconds(self, do: Callable[[], None]) -> float:
        """What it takes until the device is done with it."""
        began = time.perf_counter()
        do()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - began


def measure(recipe: Recipe) -> Pace:
    """A quick look, on one core and without a penalty, which adds little: a second or so."""
    with torch.random.fork_rng(devices=[]), threads(1):
        steps = Steps(recipe, _MORE)
        steps.train(None)  # the first step allocates
        few, more, shown = (
            min(steps.seconds(do) for _ in range(_TURNS))
            for do in (lambda: steps.train(None, _FEW), lambda: steps.train(None), steps.show)
        )
    image = max(0.0, (more - few) / (_MORE - _FEW))
    return Pace(step=max(0.0, few - _FEW * image), image=image, shown=shown / _MORE)
