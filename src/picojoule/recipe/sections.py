"""The typed keys of a recipe, section by section, and what follows from them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from picojoule import data as datasets
from picojoule.data import DATASETS, Data, Given, is_own, runs_code
from picojoule.data.datasets import RecordedSet
from picojoule.data.samples import padded_shape
from picojoule.energy import hardware
from picojoule.errors import PicojouleError
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.neurons.surrogate import SURROGATES, Surrogate
from picojoule.penalty import LARGEST_P, PenaltyKind
from picojoule.recipe.values import (
    ContentDigest,
    DataName,
    FactoryArguments,
    HardwareName,
    ModelName,
    Number,
    RunName,
    SampleShape,
    ShareOrEnergy,
    SurrogateName,
)
from picojoule.synapses.rules import ChainsOfLayers, Psi

MOST_STEPS = 10_000
"""Time steps that one image may take."""
_UNKNOWN = "complete the recipe with Recipe.completed(data), as fit does"


class Section(BaseModel):
    """A section of a recipe: frozen, with strict types, finite numbers and no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ModelSection(Section):
    """``[model]``: the network."""

    name: ModelName
    """A network of the zoo, or code of the user's own as ``package.module:factory``."""
    args: FactoryArguments = None
    """What the factory of a network of one's own is given beside classes, in_channels, neuron and steps."""

    def __hash__(self) -> int:  # recipes are keys, and the arguments are a dictionary
        return hash((self.name, json.dumps(self.args, sort_keys=True)))


def _usual_pad(known: Mapping[str, Any]) -> int:
    """Return the padding that makes the data set's images 32×32."""
    # The name is absent if it was refused; that is reported, so any number will do.
    return DATASETS[known["name"]].pad if known.get("name") in DATASETS else 0


def _usual_normalize(known: Mapping[str, Any]) -> bool:
    """Normalise images, and leave recordings over time as they are."""
    return not isinstance(DATASETS.get(known.get("name", "")), RecordedSet)


class DataSection(Section):
    """``[data]``: the data set, how much of it, and what is done to its images."""

    name: DataName
    """A data set of picojoule, ``folder:PATH``, ``FILE.npz``, ``package.module:factory``, or ``own`` (from Python)."""
    limit: int | None = Field(default=None, ge=1, le=10**9)
    """Train on a class-balanced subset of that many images; None is all of them."""
    limit_validation: int | None = Field(default=None, ge=1, le=10**9)
    """Validate on such a subset; None is all validation images."""
    limit_test: int | None = Field(default=None, ge=1, le=10**9)
    """Test on such a subset; None is all test images."""
    augment: bool = False
    """Change the training images at random (RandAugment), anew in every epoch."""
    randaugment_n: int = Field(default=2, ge=1, le=15)
    """RandAugment's N: how many changes an image gets."""
    randaugment_m: int = Field(default=9, ge=1, le=29)
    """RandAugment's M: how strong they are, of 30."""
    normalize: bool = Field(default_factory=_usual_normalize)
    """Per-channel mean and standard deviation of the training set; spikes are never normalised."""
    pad: int = Field(default_factory=_usual_pad, ge=0, le=1024)
    """Black pixels on each side; what the data set needs to be 32×32 unless given."""
    size: int | None = Field(default=None, ge=1, le=4096)
    """Rows and columns to which the pictures of ``folder:PATH`` are scaled."""
    frames: int | None = Field(default=None, ge=1, le=MOST_STEPS)
    """Of recordings over time: how many frames each becomes; None is the data set's own number."""
    encoding: Literal["spikes", "currents"] | None = None
    """Whether frames are spikes, which the first synapses are billed for as such, or analog values; None is what the
    data set usually is, and analog for data of one's own."""
    threshold: Number | None = Field(default=None, gt=0)
    """Of readings that become spikes: the change that makes one."""
    shape: SampleShape = None
    """Of data of one's own: the shape of a sample, filled in when they are first loaded."""
    classes: int | None = Field(default=None, ge=2, le=10**6)
    """Of data of one's own: the number of classes, filled in when they are first loaded."""
    content: ContentDigest = None
    """Of data of one's own: the digest of all samples and labels, filled in when they are first loaded."""

    @property
    def own(self) -> bool:
        """Whether these are data of the user's own."""
        return is_own(self.name)

    def load(self, trust: bool = False, origin: str = "the recipe", given: Given | None = None) -> Data:
        """Load the images that this section asks for: the one place where a recipe's data make code run.

        Args:
            trust: Whether code may run where the name is ``package.module:factory``. Where the caller wrote the recipe,
                give True.
            origin: Where the recipe came from, for errors.
            given: The parts themselves, with ``data.name = "own"``.

        Returns:
            Training, validation and test images.

        Raises:
            PicojouleError: If the data set is not there and cannot be fetched, its code is not trusted, or its content
                is not the one that the recipe names.
        """
        if runs_code(self.name) and not trust:
            raise PicojouleError(
                f"{origin} names the data {self.name!r}, which is code that is not picojoule's own, so nothing of it "
                "was imported: if you trust that code, add --trust (in Python, trust=True)"
            )
        data = datasets.load(
            self.name,
            limit=self.limit,
            limit_validation=self.limit_validation,
            limit_test=self.limit_test,
            pad=self.pad,
            size=self.size,
            given=given,
            normalize=self.normalize,
            frames=self.frames,
            encoding=None if self.own else self.encoding,
            threshold=self.threshold,
        )
        if self.content is not None and data.content != self.content:
            raise PicojouleError(
                f"the data {self.name!r} have changed (their content is {data.content}, and {origin} names "
                f"{self.content}): bring back the data that it was trained on, or train anew with a recipe without "
                "data.content"
            )
        return data


class NeuronSection(Section):
    """``[neuron]``: the kind of neuron, its threshold, surrogate gradient and time steps."""

    kind: Literal["spike", "relu", "qrelu", "if", "lif"] = "spike"
    """Of a single step (spike), its dense twin (relu), a quantised ReLU to be converted (qrelu); over time: if, lif."""
    steps: int = Field(default=1, ge=1, le=MOST_STEPS)
    """The image is given in each as a constant current; the logits are averaged over them."""
    threshold: Number = 1.0
    """The potential at which a neuron fires."""
    surrogate: SurrogateName = "s3nn"
    """What stands in for the derivative of the spike."""
    alpha: Number = Field(default=0.25, gt=0)
    """A parameter of the surrogate, where it has one of this name."""
    tau: Number = Field(default=0.6, gt=0)
    """A parameter of the surrogate, where it has one of this name."""
    # Of the membrane potential, for "if" and "lif" only; what is left out is as `IF` and `LIF` have it.
    leak: Number | None = Field(default=None, ge=0, le=1)
    """The share of its potential that a neuron loses in each step; for "if" and "lif"."""
    reset: Literal["subtract", "zero"] | None = None
    """What a spike does to the potential: take the threshold away, or set it to zero; for "if" and "lif"."""
    max_spikes: int | None = Field(default=None, ge=1, le=10**9)
    """How many spikes a neuron may emit in one step; for "if" and "lif"."""
    floor: Number | None = Field(default=None, le=0)
    """The least potential; for "if" and "lif"."""


MEMBRANE_KEYS = ("leak", "reset", "max_spikes", "floor")
"""The keys that only neurons with a membrane potential have."""


class OptimizerSection(Section):
    """``[optimizer]``: Adam, or SGD with momentum 0.9."""

    name: Literal["adam", "sgd"] = "adam"
    """Adam, or SGD with momentum 0.9."""
    lr: Number = Field(default=1e-3, gt=0)
    """The learning rate of the first epoch; it falls by a cosine to nearly 0 in the last."""
    anneal: Literal["epochs", "batches"] | None = None
    """Whether the learning rate falls from epoch to epoch or from batch to batch; None is from epoch to epoch."""
    weight_decay: Number = Field(default=1e-4, ge=0)
    """λ_WD, added to the gradient as L2 (coupled, also with Adam)."""
    decay_batch_norm: bool = False
    """Whether weight decay takes batch norm's parameters too: the paper's B_BN."""


class PenaltySection(Section):
    """``[penalty]``: what is charged for spikes, and how much of it: a strength, a target or a budget."""

    kind: Literal[PenaltyKind, "target"] = "syn"
    """What is charged: each synapse that a spike reaches (syn), each spike (total), layers alike (balance); target."""
    p: Number = Field(default=1.0, ge=1, le=LARGEST_P)
    """The exponent of the spikes."""
    strength: Number = Field(default=0.0, ge=0)
    """λ', on the normalised penalty; 0 is the baseline."""
    normalized: bool = True
    """Whether the penalty is divided by its value where every neuron fires."""
    schedule: Literal["linear", "constant"] = "linear"
    """Whether the strength rises evenly from epoch to epoch, or is the same in all."""
    target: Number | None = Field(default=None, gt=0)
    """Of kind "target": synaptic operations per image, or, where there is a reference, a multiple of its operations."""
    reference: RunName | None = None
    """A finished run in the same folder, to which a target or a budget refers."""
    budget: Annotated[float | str | None, ShareOrEnergy()] = None
    """The energy that the network is to spend, in place of a strength: a share of the unpenalised energy, or joules."""
    budget_on: Literal["spikes", "total"] | None = None
    """What a budget counts: what spikes cost, or everything (encoder and neuron updates too); None is the spikes."""
    strict: bool | None = None
    """Whether a budget is never exceeded, on validation images; None is no: it is met within 3 %."""
    rise_from: Number | None = Field(default=None, ge=0)
    """With schedule "constant": the strength begins there and rises evenly, batch by batch, to its full value."""
    guard: bool | None = None
    """Keep every layer from falling silent; None is yes where there is a budget, else no."""


class EnergySection(Section):
    """``[energy]``: how synaptic operations are counted and priced."""

    psi: Psi = "exact"
    """How the synapses that a spike reaches are counted: one convention for the bill and the penalty."""
    hardware: HardwareName = hardware.DEFAULT
    """The price list."""
    chains: ChainsOfLayers | None = None
    """Whether layers without a neuron between them are billed as they run (run) or as the one layer that they can be
    folded into (merged), with psi "exact"; None is run."""


class TrainingSection(Section):
    """``[training]``: how long, in which batches, in which precision, and from which weights."""

    epochs: int = Field(default=150, ge=1, le=100_000)
    """How many times all training images are shown."""
    batch_size: int = Field(default=100, ge=2, le=100_000)
    """Images per update; the last batch may be smaller."""
    precision: Literal["auto", "32", "bf16-mixed"] = "auto"
    """float32, or mixed with bfloat16; "auto" mixes where the machine computes in bfloat16 itself."""
    threads: int = Field(default=2, ge=1, le=1024)
    """Threads of a run on a CPU: fixed, because the order of floating-point sums depends on it."""
    start_from: RunName | None = None
    """A finished run in the same folder, whose weights are the first ones of this run."""
    kernels: Literal["auto", "measured", "dense"] | None = None
    """On a CPU, whether layers skip silent inputs where that is faster, by constants or measured; None is "auto"."""


class Content(Section):
    """All keys of a recipe, each valid by itself; whether they go together is for `Recipe` to say."""

    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    """Of everything that is drawn at random: weights, the order of the images, dropout, augmentation."""
    model: ModelSection
    data: DataSection
    neuron: NeuronSection = NeuronSection()
    optimizer: OptimizerSection = OptimizerSection()
    penalty: PenaltySection = PenaltySection()
    energy: EnergySection = EnergySection()
    training: TrainingSection = TrainingSection()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image, padding included; [D] of a vector. Time is no part of it."""
        return padded_shape(self.sample_shape[-3:], self.data.pad)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of a sample as the data set has it, without padding: [D], [C, H, W] or [T, C, H, W]."""
        if not self.data.own:
            known = DATASETS[self.data.name]
            if isinstance(known, RecordedSet):
                return known.sample_shape(self.data.frames, self.data.encoding)
            return known.shape
        if self.data.shape is None:
            raise PicojouleError(f"the shape of {self.data.name!r} is not known before it is loaded: {_UNKNOWN}")
        return self.data.shape

    @property
    def spiking_input(self) -> bool:
        """Whether the samples are spikes, so that what they cost in the first synapses is billed as spikes."""
        known = DATASETS.get(self.data.name)
        usual = known.usual_encoding if isinstance(known, RecordedSet) else "currents"
        return (self.data.encoding or usual) == "spikes"

    @property
    def frames(self) -> int | None:
        """The time steps that a sample of the data has; None where it is one image or vector."""
        return self.sample_shape[0] if len(self.sample_shape) == 4 else None

    @property
    def classes(self) -> int:
        """The number of classes of the data set."""
        if not self.data.own:
            return DATASETS[self.data.name].classes
        if self.data.classes is None:
            raise PicojouleError(f"the classes of {self.data.name!r} are not known before it is loaded: {_UNKNOWN}")
        return self.data.classes

    def example(self, samples: int = 1) -> Tensor:
        """Make an input of zeros as the network gets it.

        Args:
            samples: The batch size.

        Returns:
            [B, C, H, W], or [T, B, C, H, W] where the data have frames over time.
        """
        time = [] if self.frames is None else [self.frames]
        return torch.zeros(*time, samples, *self.input_shape)

    def build_surrogate(self) -> Surrogate:
        """Build the surrogate gradient, with those of ``neuron.alpha`` and ``neuron.tau`` that it has.

        Returns:
            The surrogate.
        """
        kind = SURROGATES[self.neuron.surrogate]
        build: Callable[..., Surrogate] = kind
        return build(**{field.name: getattr(self.neuron, field.name) for field in dataclasses.fields(kind)})

    def build_neuron(self) -> Callable[[], nn.Module]:
        """Build a factory of neuron modules.

        Returns:
            A function that makes the module of one layer, as ``zoo.create`` takes it.
        """
        neuron = self.neuron
        if neuron.kind == "relu":
            return nn.ReLU
        if neuron.kind == "qrelu":
            return QuantizedReLU
        if neuron.kind == "spike":
            return functools.partial(Spike, neuron.threshold, self.build_surrogate())
        given = {key: value for key in MEMBRANE_KEYS if (value := getattr(neuron, key)) is not None}
        kind: Callable[..., nn.Module] = IF if neuron.kind == "if" else LIF
        return functools.partial(kind, neuron.threshold, surrogate=self.build_surrogate(), steps=neuron.steps, **given)
