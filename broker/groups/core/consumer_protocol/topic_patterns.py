"""Regular expressions that clients send for names of topics (KIP-848) and for transactional ids, in
the syntax of RE2, as at Kafka. Pure.

For every pattern, the time of RE2 is proportional to the length of the name times the size of the
compiled pattern, so a client's pattern delays the broker only in proportion to its size
(docs/decisions/0036). `PROGRAM_BYTES_MAX` bounds that size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol, cast

import re2

PROGRAM_BYTES_MAX: Final = 256 * 1024
"""Memory of one compiled pattern; room for about 15,000 characters without repetitions."""
_REMEMBERED: Final = 256


class InvalidPattern(ValueError):
    """RE2 refuses the pattern; the text says why."""


class TopicPattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, name: str) -> object | None:
        """Return an object if the whole name matches, else None."""
        ...


@lru_cache(_REMEMBERED)
def compiled_pattern(text: str) -> TopicPattern:
    """Compile a pattern that is matched with the whole name. InvalidPattern."""
    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return cast("TopicPattern", re2.compile(text, options))
    except re2.error as error:
        raise InvalidPattern(_reason(error)) from error


def is_matched(text: str, name: str) -> bool:
    """True if a stored pattern matches the name. A pattern that RE2 refuses (earlier releases
    stored such patterns) matches nothing.
    """
    pattern = _stored_pattern(text)
    return pattern is not None and pattern.fullmatch(name) is not None


@lru_cache(_REMEMBERED)
def _stored_pattern(text: str) -> TopicPattern | None:
    try:
        return compiled_pattern(text)
    except InvalidPattern:
        return None


def _reason(error: Exception) -> str:
    """RE2's own message; the Python package gives it as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
