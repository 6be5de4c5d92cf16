"""A recipe as a value: content whose keys go together, with a digest that names its run."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

import tomli_w
from pydantic import ValidationError

from picojoule.errors import PicojouleError
from picojoule.recipe.checks import check
from picojoule.recipe.messages import explain
from picojoule.recipe.sections import Content, PenaltySection
from picojoule.recipe.toml import named, overridden, parse, read


class Recipe(Content):
    """One whole run.

    >>> recipe = Recipe.loads('model.name = "cnn7"\\ndata.name = "fashion-mnist"', "penalty.strength=64", "seed=3")
    >>> recipe.penalty.strength, recipe.seed, recipe.data.pad, recipe.input_shape
    (64.0, 3, 2, (1, 32, 32))
    >>> recipe.name.rpartition("-")[0]
    'cnn7-fashion-mnist-syn1-64-s3'
    >>> recipe.override("penalty.p=0.5")
    Traceback (most recent call last):
    picojoule.errors.PicojouleError: penalty.p = 0.5 is not allowed: take a finite number from 1 to 127
    """

    # Positional only, because "self" may be a (misspelt) key.
    def __init__(self, /, **content: Any) -> None:
        try:
            super().__init__(**content)
        except ValidationError as fault:
            raise PicojouleError(explain(fault)) from None
        check(self)

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


def _amount(penalty: PenaltySection) -> str:
    """How much of the penalty, as a part of a folder's name: 64, 30pct, 2uJ."""
    if penalty.budget is None:
        return f"{penalty.strength:g}"
    if isinstance(penalty.budget, str):
        return penalty.budget.replace("µ", "u").replace(" ", "")
    return f"{100 * penalty.budget:g}pct"
