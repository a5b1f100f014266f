"""The types of values in a mirror's settings, and their parsers."""

from __future__ import annotations

import enum
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

MIB: Final = 1024 * 1024
ALIAS: Final = r"^[A-Za-z0-9._-]+$"


class LinkMode(enum.Enum):
    """The kind of the target."""

    EXACT = "exact"
    TRANSLATE = "translate"


class ExistingTarget(enum.Enum):
    """The reaction to a target topic with records that the link has not noted and that the source
    does not have.
    """

    HALT = "halt"
    APPEND = "append"


class OffsetSyncsLocation(enum.Enum):
    """The cluster that holds MirrorMaker 2's offset syncs."""

    SOURCE = "source"
    TARGET = "target"


class CompressionType(enum.Enum):
    """The compression between the mirror and one end."""

    NONE = "none"
    ZSTD = "zstd"


def split_patterns(text: str) -> tuple[str, ...]:
    """A comma-separated list of expressions; blanks and quotes around each are dropped, commas in
    brackets belong to it.
    """
    items = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text.strip().strip("\"'"))
    return tuple(item.strip().strip("\"'").strip() for item in items if item.strip())


def comma_list(value: object) -> object:
    """Split a text at its commas; leave any other value as it is."""
    return split_patterns(value) if isinstance(value, str) else value


def check_patterns(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the patterns. Raises ValueError if the text is not a regular expression."""
    for pattern in value or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression ({error})") from error
    return value


Patterns = Annotated[tuple[str, ...], BeforeValidator(comma_list), AfterValidator(check_patterns)]
"""Regular expressions, comma-separated."""
PatternsOrNone = Annotated[tuple[str, ...] | None, BeforeValidator(comma_list), AfterValidator(check_patterns)]
"""Regular expressions, comma-separated; None if they are not given."""
