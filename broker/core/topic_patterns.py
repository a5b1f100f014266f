"""Regular expressions that clients send for topic names, kept to those that cannot hold the broker up. Pure.

Python's engine backtracks: a few nested repetitions take hours on a name of 249 characters. Kafka's clients write RE2, which never does. So
what is accepted is bounded in length and in repetitions without an end, and a repetition within another, and back references, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

LENGTH_MAX: Final = 249
ENDLESS_MAX: Final = 2
BOUNDED_MAX: Final = 16
"""A repetition up to this often does not count as one without an end."""
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_REMEMBERED: Final = 1024


class UnsafePattern(ValueError):
    """The pattern could take too long."""


@lru_cache(_REMEMBERED)
def compiled_pattern(text: str) -> re.Pattern[str]:
    """The pattern, to be matched with the whole name. UnsafePattern, or re.error."""
    if len(text) > LENGTH_MAX:
        raise UnsafePattern(f"longer than {LENGTH_MAX} characters")
    if _endless(_parser.parse(text), depth=0) > ENDLESS_MAX:
        raise UnsafePattern(f"more than {ENDLESS_MAX} repetitions without an end")
    return re.compile(text)


def _endless(parsed: Iterable[Any], *, depth: int) -> int:
    """Repetitions without an end in this part of the pattern."""
    count = 0
    for operation, argument in parsed:
        if operation is _constants.GROUPREF:
            raise UnsafePattern("a back reference")
        if operation in _REPEATS:
            _low, high, inner = argument
            is_many = high > 1
            if is_many and depth:
                raise UnsafePattern("a repetition within another one")
            count += (high > BOUNDED_MAX) + _endless(inner, depth=depth + is_many)
        else:
            count += sum(_endless(part, depth=depth) for part in _parts(argument))
    return count


def _parts(argument: Any) -> Iterable[Any]:
    """Sub-patterns of an operation's argument, wherever they are."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _parts(part)
