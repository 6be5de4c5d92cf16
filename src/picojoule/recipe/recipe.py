"""A recipe as a value: content whose keys go together, with a digest that names its run."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

import tomli_w
from pydantic import ValidationError

from picojoule.data import Data, is_own
from picojoule.errors import PicojouleError
from picojoule.recipe.changes import apply_overrides, apply_values
from picojoule.recipe.checks import check
from picojoule.recipe.messages import explain
from picojoule.recipe.sections import Content, PenaltySection
from picojoule.recipe.toml import named, parse, read


class Recipe(Content):
    """One whole run as a typed, frozen value.

    Recipes are compared and hashed by value. `Recipe.load` reads one from a file, `with_values` varies it.

    Args:
        **content: A mapping of keys to values for each section, and ``seed``.

    Raises:
        PicojouleError: If a key does not exist, a value is not allowed, or keys do not go together.

    >>> recipe = Recipe.loads('model.name = "cnn7"', "data.name=fashion-mnist", "penalty.strength=64", "seed=3")
    >>> recipe.penalty.strength, recipe.seed, recipe.data.pad, recipe.input_shape
    (64.0, 3, 2, (1, 32, 32))
    >>> recipe.name.rpartition("-")[0]
    'cnn7-fashion-mnist-syn1-64-s3'
    >>> recipe.override("penalty.p=0.5")
    Traceback (most recent call last):
    picojoule.PicojouleError: penalty.p = 0.5 is not allowed: take a finite number from 1 to 127
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
        """Read a recipe from a TOML file.

        Args:
            path: The file.
            *overrides: Changes, each ``section.key=value``, the value as in TOML or a bare word.

        Returns:
            The recipe, complete and checked.

        Raises:
            PicojouleError: If the file cannot be read or is not a valid recipe; the message names the file.
        """
        text = read(path)
        with named(path, overrides):
            return cls.loads(text, *overrides)

    @classmethod
    def loads(cls, text: str, *overrides: str) -> Recipe:
        """Read a recipe from TOML text.

        Args:
            text: The recipe as TOML.
            *overrides: Changes, each ``section.key=value``.

        Returns:
            The recipe, complete and checked.

        Raises:
            PicojouleError: If it is not a valid recipe.

        >>> Recipe.loads('model.name = "cnn7"', "data.name=fashion-mnist").data.pad
        2
        """
        return cls(**apply_overrides(parse(text), overrides))

    def override(self, *overrides: str) -> Recipe:
        """Return the recipe with some values changed, given as on the command line.

        What was never given is filled in afresh: another data set brings its own ``data.pad``.

        Args:
            *overrides: Changes, each ``section.key=value``, the value as in TOML or a bare word.

        Returns:
            The changed recipe.

        Raises:
            PicojouleError: If an override is not valid, or the changed keys do not go together.

        >>> recipe = Recipe.loads('model.name = "cnn7"', "data.name=digits")
        >>> recipe.override("penalty.strength=64").penalty.strength
        64.0
        """
        return type(self)(**apply_overrides(self.model_dump(exclude_unset=True), overrides))

    def with_values(self, /, **values: Any) -> Recipe:
        """Return the recipe with some values changed, given as Python values.

        It equals, digest and name included, what `override` makes of the same values written as strings. What was
        never given is filled in afresh.

        Args:
            **values: For each section that changes a mapping of its keys to values; ``seed`` as a whole number.
                None leaves an optional key out.

        Returns:
            The changed recipe.

        Raises:
            PicojouleError: If a key does not exist, a value is not allowed, or the changed keys do not go together.

        >>> recipe = Recipe.loads('model.name = "cnn7"', "data.name=digits")
        >>> varied = recipe.with_values(penalty={"strength": 64}, seed=3)
        >>> varied.name == recipe.override("penalty.strength=64", "seed=3").name
        True
        >>> recipe.with_values(penalty={"strenght": 64})
        Traceback (most recent call last):
        picojoule.PicojouleError: there is no key penalty.strenght: did you mean penalty.strength?
        """
        return type(self)(**apply_values(self.model_dump(exclude_unset=True), values))

    def to_dict(self) -> dict[str, Any]:
        """Return every value in plain types, also those that were filled in.

        Returns:
            A dictionary for each section, and the seed.
        """
        return self.model_dump()

    def to_toml(self) -> str:
        """Write the complete recipe as TOML, which ``Recipe.loads`` reads.

        Returns:
            The TOML text; a key that is None is left out, because TOML has no word for it.
        """
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
        return f"{network}-{_data_word(self.data.name)}-{penalty}-s{self.seed}-{self.digest}"

    def completed(self, data: Data) -> Recipe:
        """Return the recipe with what only loading tells of the user's own data: shape, classes and content.

        The content is part of the digest, and so of the run's name. A recipe of a data set that picojoule knows stays
        as it is.

        Args:
            data: What `recipe.data.load` gave.

        Returns:
            The complete recipe.

        Raises:
            PicojouleError: If the data do not go together with other keys.
        """
        if not self.data.own:
            return self
        if self.data.augment and not data.of_bytes:  # its operations are made for pixels, and clip to 0 … 1
            raise PicojouleError(
                f"data.augment = true is for pictures of uint8, and the samples of {data.name!r} are floats, which it "
                "would clip: take false, or store pixels as uint8"
            )
        return self.with_values(
            data={"shape": list(data.sample_shape), "classes": data.classes, "content": data.content}
        )

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
        left_out = ("strength", "schedule", "rise_from", "budget", "budget_on", "strict", "guard", "reference")
        content["penalty"] = {k: v for k, v in content.get("penalty", {}).items() if k not in left_out}
        return type(self)(**content)


def _data_word(name: str) -> str:
    """Write the name of a data set as a part of a folder's name: of one's own, the last part of a path.

    >>> (
    ...     _data_word("fashion-mnist"),
    ...     _data_word("folder:/home/me/My Photos/"),
    ...     _data_word("a.b:c"),
    ...     _data_word("x/y.npz"),
    ... )
    ('fashion-mnist', 'my-photos', 'c', 'y')
    """
    if not is_own(name):
        return name
    last = re.split(r"[/\\:]", name.removesuffix(".npz").rstrip("/\\"))[-1]
    return re.sub(r"[^a-z0-9]+", "-", last.lower())[:40].strip("-") or "data"


def _amount(penalty: PenaltySection) -> str:
    """Write how much of the penalty there is as a part of a folder's name: 64, 30pct, 2uJ."""
    if penalty.budget is None:
        return f"{penalty.strength:g}"
    if isinstance(penalty.budget, str):
        return penalty.budget.replace("µ", "u").replace(" ", "")
    return f"{100 * penalty.budget:g}pct"
