"""How a destination refuses what it cannot take: one exception for rules, one sentence for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from picojoule.errors import PicojouleError


class Unsupported(Exception):
    """A layer or an operation that a destination cannot take, raised by the rule that meets it.

    A rule does not know where in the network it is applied: `Destination.refusing` adds the name and the sentence.

    Args:
        remedy: What to do instead; None for the destination's usual one.
        because: What is wrong with it, as a clause to follow its name ("whose windows have different sizes").
    """

    def __init__(self, remedy: str | None = None, *, because: str = "") -> None:
        super().__init__(remedy or because)
        self.remedy = remedy
        self.because = because


@dataclass(frozen=True)
class Destination:
    """What a graph is lowered to, in the words of its refusals.

    Args:
        name: The destination as the subject of a sentence.
        cannot: What it cannot do with an unsupported layer, as a verb.
        otherwise: What can be done instead of any remedy, appended to each; may be empty.
        remedy: What to do where a rule gives no remedy of its own.

    Example:
        >>> engine = Destination("the event engine", "cannot run", otherwise=", or use the dense engine")
        >>> str(engine.refusal("the layer '2' (Tanh)", "use picojoule.Spike"))
        "the event engine cannot run the layer '2' (Tanh): use picojoule.Spike, or use the dense engine"
    """

    name: str
    cannot: str
    otherwise: str = ""
    remedy: str = ""

    def refusal(self, what: str, remedy: str) -> PicojouleError:
        """Make the error that refuses something.

        Args:
            what: The thing that is refused.
            remedy: What to do instead.

        Returns:
            The error, to be raised.
        """
        return PicojouleError(f"{self.name} {self.cannot} {what}: {remedy}{self.otherwise}")

    @contextmanager
    def refusing(self, name: Callable[[], str]) -> Iterator[None]:
        """Turn an `Unsupported` raised in the block into the sentence for the user.

        Args:
            name: Gives the name of what the block works on; called only where it is refused.

        Yields:
            Nothing.

        Raises:
            PicojouleError: If the block raises `Unsupported`.
        """
        try:
            yield
        except Unsupported as reason:
            what = f"{name()}, {reason.because}" if reason.because else name()
            raise self.refusal(what, reason.remedy or self.remedy) from None
