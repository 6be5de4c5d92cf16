"""A recipe: everything that decides a run, as one typed, frozen value; TOML on disk.

Convention: a key is ``section.key``; ``seed`` stands alone. Only ``model.name`` and ``data.name`` have no default.
What a recipe leaves out is filled in when it is loaded, so a stored recipe is complete, and its digest, which names the
run, covers every value. Types are strict, but a whole number will do where a number is wanted. Every mistake is one
sentence that names the key, the value, and what is allowed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema
from torch import nn

from picojoule import data as datasets
from picojoule import hardware, zoo
from picojoule.data import DATASETS, Data
from picojoule.errors import PicojouleError
from picojoule.membrane import IF, LIF
from picojoule.neuron import Spike
from picojoule.penalty import Kind
from picojoule.quantized import QuantizedReLU
from picojoule.rules import Psi
from picojoule.surrogate import SURROGATES, ChecksThreshold, Surrogate
from picojoule.units import parse_joules, tidy_joules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ZOO_SIDE = 32
"""Height and width of the images that every network of the zoo takes."""


@dataclasses.dataclass(frozen=True)
class _OneOf:
    """A name out of a registry or, with ``or_factory``, code of the user's own as ``package.module:factory``."""

    names: tuple[str, ...]
    or_factory: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, name: str) -> str:
        if name in self.names or (self.or_factory and _is_factory(name)):
            return name
        raise ValueError(name)

    def __str__(self) -> str:
        return _choices(self.names) + (", or your own 'package.module:factory'" if self.or_factory else "")


def _is_factory(name: str) -> bool:
    module, colon, factory = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *factory.split(".")))


# Adding 0.0 turns -0.0 into 0.0, so that equal recipes have equal digests.
Number = Annotated[float, AfterValidator(lambda value: value + 0.0)]


@dataclasses.dataclass(frozen=True)
class _Budget:
    """A share of the unpenalised energy, stored as a number, or an energy, stored as text in one spelling."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def _checked(self, value: object) -> object:
        if isinstance(value, str):
            return _share_or_joules(value)
        if value is None or (type(value) in (int, float) and 0 < value <= 1):  # type: ignore[operator]  # a number
            return value
        raise ValueError(value)

    def __str__(self) -> str:
        return (
            "a share of the unpenalised energy above 0 and up to 1, such as 0.3 or '30%', or an energy with its unit "
            "(pJ, nJ, µJ or uJ, mJ), such as '2 uJ'"
        )


def _share_or_joules(text: str) -> float | str:
    if text.strip().endswith("%"):
        try:
            share = float(Decimal(text.strip()[:-1].strip()) / 100)
        except ArithmeticError:
            raise ValueError(text) from None
        if not 0 < share <= 1:
            raise ValueError(text)
        return share
    try:
        if parse_joules(text) > 0:
            return tidy_joules(text)
    except PicojouleError as fault:
        raise ValueError(fault) from None
    raise ValueError(text)


ModelName = Annotated[str, _OneOf(zoo.names(), or_factory=True)]
DataName = Annotated[str, _OneOf(tuple(DATASETS))]
SurrogateName = Annotated[str, _OneOf(tuple(SURROGATES))]
HardwareName = Annotated[str, _OneOf(hardware.names())]
RunName = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelSection(_Section):
    name: ModelName


class DataSection(_Section):
    name: DataName
    limit: int | None = Field(default=None, ge=1, le=10**9)
    """Train on a class-balanced subset of that many images; None is all of them."""
    limit_validation: int | None = Field(default=None, ge=1, le=10**9)
    limit_test: int | None = Field(default=None, ge=1, le=10**9)
    """Evaluate on such subsets."""
    augment: bool = False
    randaugment_n: int = Field(default=2, ge=1, le=15)
    randaugment_m: int = Field(default=9, ge=1, le=29)
    normalize: bool = True
    """Per-channel mean and standard deviation of the training set."""
    pad: int = Field(default_factory=lambda known: _usual_pad(known), ge=0, le=1024)
    """Black pixels on each side; what the data set needs to be 32×32 unless given."""

    def load(self) -> Data:
        """The images that this section asks for."""
        return datasets.load(
            self.name,
            limit=self.limit,
            limit_validation=self.limit_validation,
            limit_test=self.limit_test,
            pad=self.pad,
        )


class NeuronSection(_Section):
    kind: Literal["spike", "relu", "qrelu", "if", "lif"] = "spike"
    steps: int = Field(default=1, ge=1, le=10_000)
    """The image is given in each as a constant current; the logits are averaged over them."""
    threshold: Number = 1.0
    surrogate: SurrogateName = "s3nn"
    alpha: Number = Field(default=0.25, gt=0)
    tau: Number = Field(default=0.6, gt=0)
    # Of the membrane, for "if" and "lif" only; what is left out is as `IF` and `LIF` have it.
    leak: Number | None = Field(default=None, ge=0, le=1)
    reset: Literal["subtract", "zero"] | None = None
    max_spikes: int | None = Field(default=None, ge=1, le=10**9)
    floor: Number | None = Field(default=None, le=0)


class OptimizerSection(_Section):
    name: Literal["adam", "sgd"] = "adam"
    lr: Number = Field(default=1e-3, gt=0)
    weight_decay: Number = Field(default=1e-4, ge=0)
    decay_batch_norm: bool = False
    """The paper's B_BN."""


class PenaltySection(_Section):
    kind: Literal[Kind, "target"] = "syn"
    p: Number = Field(default=1.0, ge=1)
    strength: Number = Field(default=0.0, ge=0)
    """λ', on the normalised penalty; 0 is the baseline."""
    normalized: bool = True
    schedule: Literal["linear", "constant"] = "linear"
    target: Number | None = Field(default=None, gt=0)
    """Of kind "target": synaptic operations per image, or, where there is a reference, a multiple of its operations."""
    reference: RunName | None = None
    """A finished run in the same folder, to which a target or a budget refers."""
    budget: Annotated[float | str | None, _Budget()] = None
    """The energy that the network is to spend, in place of a strength: a share of the unpenalised energy, or joules."""
    rise_from: Number | None = Field(default=None, ge=0)
    """With schedule "constant": the strength begins there and rises evenly, batch by batch, to its full value."""
    guard: bool | None = None
    """Keep every layer from falling silent; None is yes where there is a budget, else no."""


class EnergySection(_Section):
    psi: Psi = "exact"
    """One convention for the bill and the penalty."""
    hardware: HardwareName = hardware.DEFAULT


class TrainingSection(_Section):
    epochs: int = Field(default=150, ge=1, le=100_000)
    batch_size: int = Field(default=100, ge=2, le=100_000)
    precision: Literal["auto", "32", "bf16-mixed"] = "auto"
    threads: int = Field(default=2, ge=1, le=1024)
    """Fixed, because the order of floating-point sums depends on it."""
    start_from: RunName | None = None
    """A finished run in the same folder, whose weights are the first ones of this run."""


class Recipe(_Section):
    """One whole run.

    >>> recipe = Recipe.loads('model.name = "cnn7"\\ndata.name = "fashion-mnist"', "penalty.strength=64", "seed=3")
    >>> recipe.penalty.strength, recipe.seed, recipe.data.pad, recipe.input_shape
    (64.0, 3, 2, (1, 32, 32))
    >>> recipe.name.rpartition("-")[0]
    'cnn7-fashion-mnist-syn1-64-s3'
    >>> recipe.override("penalty.p=0.5")
    Traceback (most recent call last):
    picojoule.errors.PicojouleError: penalty.p = 0.5 is not allowed: take a finite number of 1 or more
    """

    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    model: ModelSection
    data: DataSection
    neuron: NeuronSection = NeuronSection()
    optimizer: OptimizerSection = OptimizerSection()
    penalty: PenaltySection = PenaltySection()
    energy: EnergySection = EnergySection()
    training: TrainingSection = TrainingSection()

    # Positional only, because "self" may be a (misspelt) key.
    def __init__(self, /, **content: Any) -> None:
        try:
            super().__init__(**content)
        except ValidationError as fault:
            raise PicojouleError(_explain(fault)) from None
        _check_size(self)
        _check_data(self)
        _check_neuron(self)
        _check_penalty(self)
        _check_budget(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *overrides: str) -> Recipe:
        """Read a TOML file; each override is ``section.key=value``, the value as in TOML or a bare word."""
        text = read(path)
        with named(path, overrides):
            return cls.loads(text, *overrides)

    @classmethod
    def loads(cls, text: str, *overrides: str) -> Recipe:
        """The same from TOML text."""
        return cls(**overridden(parse(text), overrides))

    def override(self, *overrides: str) -> Recipe:
        """The recipe with some values changed; what was never given is filled in afresh (``data.pad``)."""
        return type(self)(**overridden(self.model_dump(exclude_unset=True), overrides))

    def to_dict(self) -> dict[str, Any]:
        """Every value, in plain types, also those that were filled in."""
        return self.model_dump()

    def to_toml(self) -> str:
        """The complete recipe; ``Recipe.loads`` gives it back. TOML has no word for None, so that key is left out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with any value, whatever the order or spelling in the file.

        A key that is None takes no part, as in the file: an optional key of a later version renames no earlier run.
        """
        content = json.dumps(self.model_dump(exclude_none=True), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The run's name, safe as the name of a folder: the choices that a reader looks for first, then the digest."""
        network = re.sub(r"[^a-z0-9]+", "-", self.model.name.rpartition(":")[2].lower())[:40].strip("-") or "model"
        exponent = self.penalty.p if self.penalty.target is None else self.penalty.target
        penalty = f"{self.penalty.kind}{exponent:g}-{_amount(self.penalty)}".replace("+", "")
        return f"{network}-{self.data.name}-{penalty}-s{self.seed}-{self.digest}"

    @property
    def needs(self) -> dict[str, str]:
        """The runs that must be finished, in the same folder, before this one can begin, by the key that names them."""
        named = {"training.start_from": self.training.start_from, "penalty.reference": self.penalty.reference}
        return {key: name for key, name in named.items() if name is not None}

    @property
    def penalised(self) -> bool:
        """Whether anything but accuracy is trained for: a run with a budget is, though its strength is 0."""
        return self.penalty.strength > 0 or self.penalty.budget is not None

    @property
    def unpenalised(self) -> Recipe:
        """The same run with strength 0 and without a budget: its fully trained baseline."""
        content = self.model_dump(exclude_unset=True)
        steered = ("strength", "schedule", "rise_from", "budget", "guard", "reference")
        content["penalty"] = {k: v for k, v in content.get("penalty", {}).items() if k not in steered}
        return type(self)(**content)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image, padding included."""
        channels, height, width = DATASETS[self.data.name].shape
        return channels, height + 2 * self.data.pad, width + 2 * self.data.pad

    @property
    def classes(self) -> int:
        """The number of classes of the data set."""
        return DATASETS[self.data.name].classes

    def build_surrogate(self) -> Surrogate:
        """The surrogate with those of ``neuron.alpha`` and ``neuron.tau`` that it has."""
        kind = SURROGATES[self.neuron.surrogate]
        build: Callable[..., Surrogate] = kind
        return build(**{field.name: getattr(self.neuron, field.name) for field in dataclasses.fields(kind)})

    def build_neuron(self) -> Callable[[], nn.Module]:
        """A factory that makes one neuron module a layer, as ``zoo.create`` takes it."""
        neuron = self.neuron
        if neuron.kind == "relu":
            return nn.ReLU
        if neuron.kind == "qrelu":
            return QuantizedReLU
        if neuron.kind == "spike":
            return functools.partial(Spike, neuron.threshold, self.build_surrogate())
        given = {key: value for key in _MEMBRANE_KEYS if (value := getattr(neuron, key)) is not None}
        kind: Callable[..., nn.Module] = IF if neuron.kind == "if" else LIF
        return functools.partial(kind, neuron.threshold, surrogate=self.build_surrogate(), steps=neuron.steps, **given)


def _amount(penalty: PenaltySection) -> str:
    """How much of the penalty, as a part of a folder's name: 64, 30pct, 2uJ."""
    if penalty.budget is None:
        return f"{penalty.strength:g}"
    if isinstance(penalty.budget, str):
        return penalty.budget.replace("µ", "u").replace(" ", "")
    return f"{100 * penalty.budget:g}pct"


_MEMBRANE_KEYS = ("leak", "reset", "max_spikes", "floor")


# --- What belongs together -------------------------------------------------------------------------------------------


def _usual_pad(known: Mapping[str, Any]) -> int:
    # The name is absent if it was refused; that is reported, so any number will do.
    return DATASETS[known["name"]].pad if "name" in known else 0


_LARGEST = 1e30


def _check_size(recipe: Recipe) -> None:
    """PyTorch takes no scalar that float32 cannot hold."""
    scalars = {
        "optimizer.lr": recipe.optimizer.lr,
        "optimizer.weight_decay": recipe.optimizer.weight_decay,
        "neuron.threshold": recipe.neuron.threshold,
    }
    for key, value in scalars.items():
        if abs(value) > _LARGEST:
            raise PicojouleError(
                f"{key} = {value:g} is not allowed, for networks are trained in float32: take a number of size up to "
                f"{_LARGEST:g}"
            )


def _check_data(recipe: Recipe) -> None:
    data = recipe.data
    limits = {"limit": data.limit, "limit_validation": data.limit_validation, "limit_test": data.limit_test}
    for (key, limit), images in zip(limits.items(), DATASETS[data.name].splits, strict=True):
        if limit is not None and not recipe.classes <= limit <= images:
            raise PicojouleError(
                f"data.{key} = {limit} is not allowed with data.name = {data.name!r}: take a whole number from "
                f"{recipe.classes}, one image a class, to {images}, or leave it out"
            )
    _, height, width = recipe.input_shape
    if recipe.model.name in zoo.names() and (height, width) != (ZOO_SIDE, ZOO_SIDE):
        raise PicojouleError(
            f"data.pad = {data.pad} makes the images of {data.name!r} {height}×{width}, but model.name = "
            f"{recipe.model.name!r} takes {ZOO_SIDE}×{ZOO_SIDE}: take data.pad = {data.pad + (ZOO_SIDE - height) // 2}"
        )


def _check_neuron(recipe: Recipe) -> None:
    neuron = recipe.neuron
    here = f"is not allowed with neuron.kind = {neuron.kind!r}"
    if neuron.kind not in ("if", "lif") and neuron.steps != 1:
        raise PicojouleError(f"neuron.steps = {neuron.steps} {here}, which has no memory: take neuron.steps = 1")
    for key in _MEMBRANE_KEYS:
        value = getattr(neuron, key)
        if value is not None and (neuron.kind not in ("if", "lif") or (neuron.kind == "if" and key == "leak")):
            kinds = "'lif'" if key == "leak" else "'if' or 'lif'"
            raise PicojouleError(f"neuron.{key} = {_shown(value)} {here}: leave it out or take neuron.kind = {kinds}")
    if neuron.kind == "relu":
        if recipe.penalty.strength > 0:
            raise PicojouleError(
                f"penalty.strength = {recipe.penalty.strength:g} is not allowed with neuron.kind = 'relu', which has "
                "no spikes: take penalty.strength = 0 or neuron.kind = 'spike'"
            )
        return
    if neuron.kind == "qrelu":
        if neuron.threshold != 1:
            raise PicojouleError(
                f"neuron.threshold = {neuron.threshold:g} {here}, whose steps are 1: take neuron.threshold = 1"
            )
        return
    if neuron.kind in ("if", "lif") and neuron.threshold <= 0:
        raise PicojouleError(
            f"neuron.threshold = {neuron.threshold:g} {here}, whose potential starts at 0: take a number above 0"
        )
    surrogate = recipe.build_surrogate()
    if isinstance(surrogate, ChecksThreshold):
        try:
            surrogate.check_threshold(neuron.threshold)
        except PicojouleError as fault:
            raise PicojouleError(
                f"neuron.threshold = {neuron.threshold:g} is not allowed with neuron.surrogate = "
                f"{neuron.surrogate!r}: {fault}"
            ) from None


def _check_penalty(recipe: Recipe) -> None:
    penalty = recipe.penalty
    if penalty.kind != "target":
        for key, value in (("target", penalty.target), ("reference", penalty.reference)):
            if value is not None and not (key == "reference" and penalty.budget is not None):
                raise PicojouleError(
                    f"penalty.{key} = {_shown(value)} is not allowed with penalty.kind = {penalty.kind!r}: leave it "
                    "out or take penalty.kind = 'target'"
                )
        return
    if penalty.target is None:
        raise PicojouleError(
            "penalty.target is missing, which penalty.kind = 'target' needs: take the synaptic operations per image "
            "that the network is to spend, or a share of those of the run that penalty.reference names"
        )
    if penalty.p != 1 or not penalty.normalized:
        raise PicojouleError(
            "penalty.kind = 'target' is ((S − S0)/S0)², for which penalty.p and penalty.normalized have no meaning: "
            "leave them out"
        )


SHORTEST_BUDGET_RUN = 3
"""Epochs: one to see what the network spends, one to go down, one to stay there."""


def _check_budget(recipe: Recipe) -> None:
    penalty = recipe.penalty
    if penalty.rise_from is not None and (penalty.schedule != "constant" or penalty.budget is not None):
        raise PicojouleError(
            f"penalty.rise_from = {penalty.rise_from:g} is a schedule of its own: take it with penalty.schedule = "
            "'constant' and without penalty.budget"
        )
    if penalty.guard and (recipe.neuron.kind == "relu" or penalty.kind == "target"):
        what = "neuron.kind = 'relu'" if recipe.neuron.kind == "relu" else "penalty.kind = 'target'"
        raise PicojouleError(f"penalty.guard = true is not allowed with {what}, which it cannot guard: leave it out")
    if penalty.budget is None:
        return
    budget = f"penalty.budget = {_shown(penalty.budget)}"
    if recipe.neuron.kind == "relu":
        raise PicojouleError(
            f"{budget} is not allowed with neuron.kind = 'relu', which has no spikes: leave it out or take "
            "neuron.kind = 'spike'"
        )
    if penalty.kind == "target":
        raise PicojouleError(
            f"{budget} is not allowed with penalty.kind = 'target', which has its own target: leave one of them out"
        )
    if penalty.strength > 0:
        raise PicojouleError(
            f"{budget} finds the strength by itself, so penalty.strength = {penalty.strength:g} cannot be kept: take "
            "penalty.strength = 0 or leave one of them out"
        )
    if penalty.schedule != "linear":
        raise PicojouleError(
            f"{budget} finds the strength by itself, so penalty.schedule = {penalty.schedule!r} has no meaning: leave "
            "it out"
        )
    if recipe.training.epochs < SHORTEST_BUDGET_RUN:
        raise PicojouleError(
            f"{budget} needs training.epochs of {SHORTEST_BUDGET_RUN} or more, not {recipe.training.epochs}: one to "
            "see what the network spends, one to go down, one to stay there"
        )


# --- Reading ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def named(path: str | os.PathLike[str], overrides: Iterable[str]) -> Iterator[None]:
    """Put the file and what was to change in it before a mistake that was found in them."""
    try:
        yield
    except PicojouleError as fault:
        given = " ".join(map(_plain, overrides))
        raise PicojouleError(f"{_plain(os.fspath(path))}{given and f' with {given}'}: {fault}") from None


def read(path: str | os.PathLike[str]) -> str:
    """The text of a recipe file."""
    path = Path(path)
    shown = _plain(str(path))
    try:
        content = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise PicojouleError(_not_a_file(path)) from None
    except OSError as fault:
        raise PicojouleError(f"{shown} cannot be read ({fault.strerror}): name a recipe that you may read") from None
    except ValueError:  # a null byte in the name
        raise PicojouleError(f"{shown} is not a path: name a TOML file") from None
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise PicojouleError(f"{shown} is not UTF-8 text (line {line}): name a TOML file") from None


def _not_a_file(path: Path) -> str:
    folder = path if path.is_dir() else path.parent
    names = sorted(found.name for found in folder.glob("*.toml"))
    near = [] if folder == path else get_close_matches(path.name, names, n=3, cutoff=0.4)
    what = f"{_plain(str(path))} is a folder" if folder == path else f"there is no recipe {_plain(str(path))}"
    if near:
        return f"{what}: did you mean {_either(near)}?"
    if names:
        return f"{what}: in {_plain(str(folder))} there are {', '.join(map(_plain, names[:8]))}"
    if not folder.is_dir():
        return f"{what}, nor a folder {_plain(str(folder))}: check the path"
    return f"{what}: {_plain(str(folder))} holds no TOML file, so name another folder"


def parse(text: str) -> dict[str, Any]:
    """TOML as nested tables, not yet checked to be a recipe."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        end = f"(at line {text.count(chr(10)) + 1}, the last one)"
        problem = str(fault).replace("(at end of document)", end)
        raise PicojouleError(f"this is not valid TOML: {problem}") from None
    except (RecursionError, ValueError):  # Python limits the depth of calls and the digits of a whole number
        raise PicojouleError(
            "this is no recipe: it is nested too deeply or has a number of thousands of digits, but a recipe holds "
            "only sections of plain values"
        ) from None


def overridden(content: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The tables of a recipe with each ``section.key=value`` put in."""
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals:
            raise PicojouleError(f"{override!r} is not an override: write section.key=value, as in penalty.strength=64")
        field = _field(key)
        put(content, key, _value(text.strip(), wants_text=_wants_text(field)))
    return content


def put(content: dict[str, Any], key: str, value: Any) -> None:
    """Set one key in the tables of a recipe."""
    _field(key)
    section, _, leaf = key.rpartition(".")
    values = content.setdefault(section, {}) if section else content
    if not isinstance(values, dict):
        raise PicojouleError(_not_a_section(section, values))
    values[leaf] = value


def _field(key: str) -> FieldInfo:
    if key in _SECTIONS:
        raise PicojouleError(f"{key} is a section: set one of its keys, {_either(_keys_of(key))}")
    if key not in _KEYS:
        raise PicojouleError(_no_such_key(key))
    return _KEYS[key]


def _value(text: str, wants_text: bool) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    # A line break in the text could have started another key.
    if parsed.keys() != {"value"} or (wants_text and not isinstance(parsed["value"], str)):
        return text
    return parsed["value"]


# --- Explaining ------------------------------------------------------------------------------------------------------

_SECTIONS: Mapping[str, type[_Section]] = {
    name: field.annotation
    for name, field in Recipe.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, _Section)
}
_ALONE: Mapping[str, FieldInfo] = {name: field for name, field in Recipe.model_fields.items() if name not in _SECTIONS}
_KEYS: Mapping[str, FieldInfo] = {
    **_ALONE,
    **{f"{section}.{name}": field for section, kind in _SECTIONS.items() for name, field in kind.model_fields.items()},
}


def _keys_of(section: str) -> list[str]:
    return [key for key in _KEYS if key.startswith(f"{section}.")]


def _explain(fault: ValidationError) -> str:
    """One sentence about the first mistake; a key that does not exist comes first, for it may explain a missing one."""
    mistakes = fault.errors(include_url=False)
    mistake = min(mistakes, key=lambda each: each["type"] != "extra_forbidden")
    key = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        return _no_such_key(key)
    if mistake["type"] == "missing":
        key = f"{key}.name" if key in _SECTIONS else key
        return f"{key} is missing: take {_allowed(_KEYS[key])}"
    if key in _SECTIONS:
        return _not_a_section(key, mistake["input"])
    return _not_allowed(key, mistake["input"])


def _no_such_key(key: str) -> str:
    if key == "axes":
        return "axes make it a sweep of many runs: run it with `picojoule sweep`"
    near = _near_keys(key.lower())
    if near:
        return f"there is no key {_plain(key)}: did you mean {_either(near)}?"
    section = key.partition(".")[0]
    return f"there is no key {_plain(key)}: take {_either(_keys_of(section) or [*_ALONE, *_SECTIONS])}"


def _near_keys(key: str) -> list[str]:
    """Keys whose last part is nearly the same, first in that section, then anywhere; else a section of such a name."""
    section, _, leaf = key.rpartition(".")
    for scope in (_keys_of(section), [*_KEYS]):
        near = get_close_matches(leaf, [known.rpartition(".")[2] for known in scope], n=1)
        found = [known for known in scope if known.rpartition(".")[2] in near]
        if found:
            return get_close_matches(key, found, n=1, cutoff=0.75) or found
    return [] if section in _SECTIONS else get_close_matches(key, _SECTIONS, n=1)


def _not_a_section(section: str, value: object) -> str:
    keys = ", ".join(_keys_of(section))
    return f"{section} = {_shown(value)} is not allowed: {section} is a section with the keys {keys}"


def _not_allowed(key: str, value: object) -> str:
    field = _KEYS[key]
    word = value.lower() if isinstance(value, str) else _shown(value)
    near = get_close_matches(word, _names(field), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{key} = {_shown(value)} is not allowed: {hint}take {_allowed(field)}"


def _allowed(field: FieldInfo) -> str:
    """What a key takes, in words.

    >>> _allowed(_KEYS["penalty.kind"]), _allowed(_KEYS["training.threads"]), _allowed(_KEYS["optimizer.lr"])
    ("'syn', 'total', 'balance' or 'target'", 'a whole number from 1 to 1024', 'a finite number above 0')
    """
    for rule in field.metadata:
        if isinstance(rule, _OneOf | _Budget):
            return str(rule)
    kind = _kind(field)
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a whole number from {_bound(field, 'ge')} to {_bound(field, 'le')}"
    if kind is float:
        return f"a finite number{_range(field)}"
    if kind is str:
        return "the name of a finished run's folder, which is beside this run's"
    return _choices(_names(field))


def _kind(field: FieldInfo) -> Any:
    """The type of a key that may be left out, too."""
    kinds = get_args(field.annotation)
    kind = next(each for each in kinds if each is not NoneType) if NoneType in kinds else field.annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _range(field: FieldInfo) -> str:
    above, least, most = (_bound(field, name) for name in ("gt", "ge", "le"))
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if most is not None:
        return f" of {most} or less"
    return f" above {above}" if above is not None else f" of {least} or more" if least is not None else ""


def _bound(field: FieldInfo, name: str) -> object:
    return next((getattr(rule, name) for rule in field.metadata if hasattr(rule, name)), None)


def _names(field: FieldInfo) -> tuple[str, ...]:
    """The words that a key takes, if it takes words."""
    if get_origin(_kind(field)) is Literal:
        return get_args(_kind(field))
    return next((rule.names for rule in field.metadata if isinstance(rule, _OneOf)), ())


def _wants_text(field: FieldInfo) -> bool:
    return bool(_names(field)) or _kind(field) is str


def _choices(names: Iterable[str]) -> str:
    return _either([repr(name) for name in names])


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _shown(value: object) -> str:
    """A value as it stands in TOML, on one line and not too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    try:
        return _short(repr(value) if isinstance(value, str | int | float | list) else str(value))
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return "a huge number"


def _plain(name: str) -> str:
    """A name as it is if it prints on one line, else quoted with escapes."""
    return _short(name if name.isprintable() and name else repr(name))


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
