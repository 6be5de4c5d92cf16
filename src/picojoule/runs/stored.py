"""Values that a run leaves in JSON files: frozen, checked when they are read, and written as they were.

Such files are like any other: somebody may have edited them, or half of a disk may be gone. What is read is checked
once, so that no text, NaN or negative number is ever compared, summed or printed as a measurement. Keys that are not
known are kept as they are, so that a newer picojoule's files pass through an older one unharmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError

from picojoule.errors import PicojouleError

if TYPE_CHECKING:
    from typing_extensions import Self

# Wider than any network, and narrow enough for sums and ratios to stay finite: one damaged figure spoils no other.
_SMALLEST, _LARGEST = 1e-30, 1e30


class InvalidContent(PicojouleError):
    """What is wrong with the content of a file: a clause for the sentence that names the file."""


def printable(text: str) -> str:
    r"""Replace what no encoding has, such as a part of a folder's name that is not text.

    Args:
        text: Any string, lone surrogates included.

    Returns:
        The same text, with escapes in the place of what cannot be encoded.

    Example:
        >>> printable("caf\udce9")
        'caf\\udce9'
    """
    return text.encode(errors="backslashreplace").decode()


def _check_energy(joules: float) -> float:
    if joules and joules < _SMALLEST:
        raise ValueError("not the energy of a network")
    return joules


Number = Annotated[float, Strict()]
"""Any finite number, such as the loss of a network that diverges."""
Amount = Annotated[float, Strict(), Field(ge=0, le=_LARGEST)]
Share = Annotated[float, Strict(), Field(ge=0, le=1)]
Count = Annotated[int, Strict(), Field(ge=0, le=10**15)]
Joules = Annotated[float, Strict(), Field(ge=0, le=_LARGEST), AfterValidator(_check_energy)]
SomeJoules = Annotated[float, Strict(), Field(ge=_SMALLEST, le=_LARGEST)]
"""An energy to divide by."""
Text = Annotated[str, AfterValidator(printable)]


class StoredValue(BaseModel):
    """A frozen value that is read from JSON and written to JSON; unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, use_attribute_docstrings=True)

    @classmethod
    def parse(cls, content: Any) -> Self:
        """Check the content of a file and make a value of it.

        Args:
            content: What stands in the file, as `json.loads` gives it.

        Returns:
            The value.

        Raises:
            InvalidContent: If a key is missing or holds something else than it should.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as fault:
            raise InvalidContent(_first_mistake(fault)) from None

    @classmethod
    def parse_json(cls, text: str) -> Self:
        """Do the same with JSON text.

        Args:
            text: The text of a file, or of a line in it.

        Returns:
            The value.

        Raises:
            InvalidContent: If it is not JSON, or not the JSON of such a value.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as fault:
            raise InvalidContent(_first_mistake(fault)) from None

    def to_dict(self) -> dict[str, Any]:
        """Give the value as it stands in its file: plain dictionaries and lists, unknown keys last.

        Returns:
            What `parse` takes; a key that the file did not have is left out.
        """
        known = self.model_fields_set
        fields = {name: _plain(getattr(self, name)) for name in type(self).model_fields if name in known}
        return {**fields, **(self.model_extra or {})}


def _plain(value: Any) -> Any:
    if isinstance(value, StoredValue):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _first_mistake(fault: ValidationError) -> str:
    """Say the first mistake in a file, after the key where it stands."""
    mistake = fault.errors(include_url=False)[0]
    key = printable(".".join(map(str, mistake["loc"])))
    return f"{key and f'{key}: '}{mistake['msg'].removeprefix('Value error, ')}"
