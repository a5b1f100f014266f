"""Narrows a read by the filters on topic, partition, offset and timestamp. Pure.

Filters only narrow what is read; Spark evaluates all of them again on the rows. So a filter that is
not understood here only costs time: the result stays correct.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

NO_LOWER: Final = 0
NO_UPPER: Final = 2**63 - 1
NO_LOWER_MS: Final = -(2**63)
"""Records without a timestamp have -1."""


class Condition(NamedTuple):
    """A filter as column, operator (=, in, <, <=, >, >=, prefix) and value."""

    column: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """The range of a read that may contain wanted rows. None means every topic or partition;
    offsets from `first_offset` up to `until_offset`, times (Unix ms) from `since_ms` up to
    `until_ms`; both ends not included.
    """

    topics: frozenset[str] | None = None
    topic_prefix: str = ""
    partitions: frozenset[int] | None = None
    first_offset: int = NO_LOWER
    until_offset: int = NO_UPPER
    since_ms: int = NO_LOWER_MS
    until_ms: int = NO_UPPER

    def has(self, topic: str, partition: int) -> bool:
        """True if the partition may have wanted rows."""
        return (
            (self.topics is None or topic in self.topics)
            and topic.startswith(self.topic_prefix)
            and (self.partitions is None or partition in self.partitions)
        )


EVERYTHING: Final = Narrowing()


def narrowing(conditions: Iterable[Condition]) -> Narrowing:
    """The range that all conditions together leave."""
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    prefix = ""
    offsets, times = [NO_LOWER, NO_UPPER], [NO_LOWER_MS, NO_UPPER]
    for column, operator, value in conditions:
        if column == "topic" and operator in ("=", "in"):
            topics = _both(topics, _values(operator, value))
        elif column == "topic" and operator == "prefix" and len(value) > len(prefix):
            prefix = value
        elif column == "partition" and operator in ("=", "in"):
            partitions = _both(partitions, _values(operator, value))
        elif column == "offset":
            _narrow(offsets, operator, value)
        elif column == "timestamp":
            _narrow_time(times, operator, value)
    return Narrowing(
        topics=topics,
        topic_prefix=prefix,
        partitions=partitions,
        first_offset=offsets[0],
        until_offset=offsets[1],
        since_ms=times[0],
        until_ms=times[1],
    )


def _values(operator: str, value: Any) -> frozenset[Any]:
    return frozenset([value] if operator == "=" else value)


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _narrow(bounds: list[int], operator: str, value: Any) -> None:
    """Narrow `bounds`, whose end is not included, to the integers that fit."""
    if operator == "in":
        numbers = [number for number in value if number is not None]
        if numbers:
            _narrow(bounds, ">=", min(numbers))
            _narrow(bounds, "<=", max(numbers))
        return
    lower = {"=": value, ">=": value, ">": value + 1}.get(operator, NO_LOWER)
    upper = {"=": value + 1, "<=": value + 1, "<": value}.get(operator, NO_UPPER)
    bounds[:] = max(bounds[0], lower), min(bounds[1], upper)


def _narrow_time(bounds: list[int], operator: str, value: Any) -> None:
    """Narrows times as `_narrow` narrows offsets: the filter has microseconds, records have
    milliseconds. A time without zone is left to Spark.
    """
    values = list(value) if operator == "in" else [value]
    if not all(isinstance(one, dt.datetime) and one.tzinfo is not None for one in values):
        return
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    first = min((one - epoch) // dt.timedelta(milliseconds=1) for one in values)
    last = max(-((epoch - one) // dt.timedelta(milliseconds=1)) for one in values)
    if operator in ("=", "in", ">", ">="):
        bounds[0] = max(bounds[0], first)
    if operator in ("=", "in", "<", "<="):
        bounds[1] = min(bounds[1], last + 1)
