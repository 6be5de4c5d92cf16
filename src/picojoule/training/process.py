"""What one process of a run works with: where and what it trains, and the network that is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from picojoule.data import Data
from picojoule.penalty import Penalty, TargetPenalty
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.synapses.table import Synapses
from picojoule.training.reporters import Reporter

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class RunProcess:
    """One process of one run: its device, its recipe and images, and who is told how it goes.

    Attributes:
        fabric: The device, the precision and the other processes.
        run: The run's folder.
        recipe: What is trained.
        data: All images of the recipe.
        reporters: Who is told how it goes; none but in the first process.
        reference: What the run that `penalty.reference` names spends (see `reference.reference_figure`).
    """

    fabric: Fabric
    run: Run
    recipe: Recipe
    data: Data
    reporters: tuple[Reporter, ...] = ()
    reference: float | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes the run's files."""
        return bool(self.fabric.global_rank == 0)

    def say(self, text: str) -> None:
        """Pass a remark on to every reporter.

        Args:
            text: One sentence.
        """
        for reporter in self.reporters:
            reporter.say(text)


@dataclass(frozen=True)
class Learner:
    """The network that is trained, with what trains it.

    Attributes:
        model: The network itself, whose layers have their own names.
        wrapped: The same as Fabric has wrapped it, for the forward pass in training.
        optimizer: The optimiser as Fabric has wrapped it.
        synapses: ψ of every layer; None for a network without spikes.
        penalty: The penalty on its spikes; None for a network without spikes.
    """

    model: nn.Module
    wrapped: nn.Module
    optimizer: Any
    synapses: Synapses | None
    penalty: Penalty | TargetPenalty | None
