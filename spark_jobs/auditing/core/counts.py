"""The counts of an audit as data: records, bytes and delay by tier, topic, partition and window of
event time, one batch of a query after the other. Pure.

A tier is a site that a query reads, or a program that publishes what it stored and rejected. A
count belongs to the batch of the query that counted it, so that a batch which is run again replaces
its counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HOUR_MS = 3_600_000
NUMBER_MAX = 2**53
"""The largest number that a program may publish, as JSON's readers understand each other."""


class Count(NamedTuple):
    """Records of one partition, one window and one bucket of delay that one batch read. Times are
    Unix ms; a bucket's delays are below 2**delay_bucket ms.
    """

    topic: str
    partition: int
    window_start_ms: int
    delay_bucket: int
    records: int
    bytes: int
    delay_sum_ms: int
    delay_max_ms: int


class PublishedCount(NamedTuple):
    """A program's report on the records of one window; a message that occurs twice counts once,
    because of its `id`.
    """

    id: str
    tier: str
    topic: str
    window_start_ms: int
    stored: int
    rejected: int


def published_count(value: bytes | None) -> PublishedCount | None:
    """The count in a record of the topic of counts; None for any other record."""
    try:
        found = json.loads((value or b"").decode())
        return PublishedCount(
            id=_text(found["id"]),
            tier=_text(found["tier"]),
            topic=_text(found["topic"]),
            window_start_ms=_number(found["window_start_ms"]),
            stored=_number(found["stored"]),
            rejected=_number(found.get("rejected", 0)),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _text(value: object) -> str:
    """Text that a table can hold. ValueError for half a character, which JSON can write."""
    text = str(value)
    text.encode()
    return text


def _number(value: Any) -> int:
    """A number that a table can hold. ValueError, TypeError, OverflowError."""
    number = int(value)
    if abs(number) > NUMBER_MAX:
        raise ValueError(f"{number} is too large")
    return number


@dataclass(slots=True)
class WindowCount:
    """The records that one tier has of one topic's window. `late` counts records that arrived after
    records of a later window, by more than the allowed time.
    """

    records: int = 0
    bytes: int = 0
    rejected: int = 0
    late: int = 0


@dataclass(slots=True)
class HourlyDelay:
    """Delays of the records of one hour of event time, in ms."""

    records: int = 0
    delay_sum_ms: int = 0
    delay_max_ms: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    @property
    def mean_ms(self) -> float:
        """The mean."""
        return self.delay_sum_ms / self.records if self.records else 0.0

    def quantile_ms(self, share: float) -> int:
        """An upper bound of the delay that this share of the records do not exceed."""
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= share * self.records:
                return int(min(2**bucket, self.delay_max_ms))
        return self.delay_max_ms


@dataclass(slots=True)
class Tally:
    """All counts: windows by tier, topic and window start; delays by tier, topic and hour. `sites`
    are the tiers that a query counts, also those at which it has found no record.
    """

    windows: dict[tuple[str, str, int], WindowCount] = field(default_factory=dict)
    delays: dict[tuple[str, str, int], HourlyDelay] = field(default_factory=dict)
    sites: set[str] = field(default_factory=set)
    _published: set[tuple[str, str]] = field(default_factory=set)

    def add_batches(self, tier: str, batches: Iterable[Iterable[Count]], *, lateness_ms: int) -> None:
        """The counts of a site's query, batch by batch in their order."""
        self.sites.add(tier)
        newest: dict[tuple[str, int], int] = {}
        for batch in batches:
            counts = list(batch)
            for count in counts:
                high_ms = newest.get((count.topic, count.partition), count.window_start_ms)
                self._add(tier, count, is_late=count.window_start_ms < high_ms - lateness_ms)
            for count in counts:
                key = (count.topic, count.partition)
                newest[key] = max(newest.get(key, count.window_start_ms), count.window_start_ms)

    def _add(self, tier: str, count: Count, *, is_late: bool) -> None:
        window = self.windows.setdefault((tier, count.topic, count.window_start_ms), WindowCount())
        window.records += count.records
        window.bytes += count.bytes
        window.late += count.records if is_late else 0
        hour_ms = count.window_start_ms - count.window_start_ms % HOUR_MS
        delay = self.delays.setdefault((tier, count.topic, hour_ms), HourlyDelay())
        delay.records += count.records
        delay.delay_sum_ms += count.delay_sum_ms
        delay.delay_max_ms = max(delay.delay_max_ms, count.delay_max_ms)
        delay.buckets[count.delay_bucket] = delay.buckets.get(count.delay_bucket, 0) + count.records

    def add_published(self, counts: Iterable[PublishedCount]) -> None:
        """Add the counts that programs published, each message once."""
        for count in counts:
            if (count.tier, count.id) in self._published:
                continue
            self._published.add((count.tier, count.id))
            window = self.windows.setdefault((count.tier, count.topic, count.window_start_ms), WindowCount())
            window.records += count.stored
            window.rejected += count.rejected

    def tiers(self) -> list[str]:
        """All sites, and the programs that have counted something, sorted."""
        return sorted({tier for tier, _, _ in self.windows} | self.sites)

    def of(self, tier: str, topic: str) -> Mapping[int, WindowCount]:
        """A tier's windows of a topic, by start."""
        return {start: found for (at, name, start), found in self.windows.items() if (at, name) == (tier, topic)}
