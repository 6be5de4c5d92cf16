"""Cases by kind: each is run from a whole number alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fuzz import commands, files, recipes
from fuzz.measuring import measured
from fuzz.networks import drawn
from fuzz.outcome import Outcome

EXPORTED = {"NIR": 20, "ONNX": 60}
"""One network of so many goes through each exporter; that to ONNX computes for seconds."""


def network(seed: int) -> Outcome:
    return measured(drawn(seed), exports=exports_of(seed))


def exports_of(seed: int) -> list[str]:
    return [name for name, each in EXPORTED.items() if seed % each == 0]


KINDS: dict[str, Callable[[int], Outcome]] = {
    "networks": network,
    "recipes": recipes.tried,
    "commands": commands.tried,
    "files": files.tried,
}
SHARES = {"networks": 5, "recipes": 2, "commands": 2, "files": 2}
"""How often each kind is drawn."""
WORDS: dict[str, Callable[[int], str]] = {
    "networks": lambda seed: str(drawn(seed)),
    "recipes": recipes.described,
    "commands": commands.described,
    "files": files.described,
}


@dataclass(frozen=True)
class Case:
    kind: str
    seed: int

    def run(self) -> Outcome:
        try:
            return KINDS[self.kind](self.seed)
        except Exception as error:  # of the fuzzer itself, which goes on
            last = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{last.name}, {last.filename}:{last.lineno}"
            return Outcome(failures=[("the fuzzer failed", f"{type(error).__name__}: {error} ({at})")])

    @property
    def command(self) -> str:
        return f"make fuzz KIND={self.kind} ONLY={self.seed}"

    @property
    def described(self) -> str:
        """The case in words."""
        return WORDS[self.kind](self.seed)

    def smallest(self, failure: str) -> str:
        """The case in words, with all left out that this failure does not need."""
        if self.kind != "networks":
            return self.described
        spec, exports = drawn(self.seed), exports_of(self.seed)
        again = True
        while again:
            again = False
            for smaller in spec.smaller():
                try:
                    same = failure in measured(smaller, exports=exports).names
                except Exception:
                    continue
                if same:
                    spec, again = smaller, True
                    break
        return str(spec)


def drawn_case(seed: int) -> Case:
    (kind,) = Random(seed).choices(list(SHARES), list(SHARES.values()))
    return Case(kind, seed)
