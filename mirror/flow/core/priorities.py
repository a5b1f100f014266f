"""Orders partitions when capacity is scarce: the rank of a partition, and how ranks share capacity.

A rank follows from the topic's class (its recovery point: how much of it may be lost) and from
whether the partition is far behind. New records of every class go before the backfill of any class,
since a backlog that waits longer loses nothing that was not behind already. Within both, classes go
in their order.

    rank   0 high   1 normal   2 low        the live tail
           3 high   4 normal   5 low        backfill

No rank starves: at intervals a grant goes to the last rank in the line (`clients/core/line.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from msgspec import Struct

from mirror.flow.core.lag import Lag
from wire.protocol.ids import UNKNOWN
from wire.rules.links import matches

RECORD_BYTES_ASSUMED = 100
"""Size of a record where none has been mirrored yet."""

# How much of a bounded buffer each rank may fill: higher ranks always find space that lower ranks
# have left.
_SHARES = (1.0, 0.9, 0.8, 0.5, 0.5, 0.5)


class TopicClass(enum.IntEnum):
    """The recovery point of a topic's class: how much of the topic may be lost."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class Classes(Struct, frozen=True, kw_only=True):
    """The topics of each class; high wins over low, and topics in neither are normal."""

    high: Sequence[str] = ()
    low: Sequence[str] = ()

    def of(self, topic: str) -> TopicClass:
        """The class of a topic."""
        if self.high and matches(topic, whitelist=self.high, blacklist=()):
            return TopicClass.HIGH
        if self.low and matches(topic, whitelist=self.low, blacklist=()):
            return TopicClass.LOW
        return TopicClass.NORMAL


def is_backfilling(lag: Lag, *, was_backfilling: bool, threshold_bytes: int) -> bool:
    """True if a partition is far behind; it stays so until it has caught up to a quarter of the
    threshold.
    """
    if lag.records == UNKNOWN:
        return was_backfilling
    behind_bytes = lag.bytes if lag.bytes != UNKNOWN else lag.records * RECORD_BYTES_ASSUMED
    return behind_bytes > (threshold_bytes // 4 if was_backfilling else threshold_bytes)


def rank_of(topic_class: TopicClass, *, is_backfill: bool) -> int:
    """The rank: lower goes first."""
    return int(topic_class) + (len(TopicClass) if is_backfill else 0)


def is_backfill_rank(rank: int) -> bool:
    """True if the rank is one of backfill."""
    return rank >= len(TopicClass)


def share_bytes(rank: int, capacity_bytes: int) -> int:
    """The bytes of a buffer that may be full before this rank has to wait."""
    return int(capacity_bytes * _SHARES[rank])


class TokenBucket:
    """A limit of bytes per second. A single answer, whose size is unknown before, may overdraw it.
    Without a rate it is always open.
    """

    def __init__(self, *, bytes_per_second: int, now_ms: float) -> None:
        self._rate = bytes_per_second
        self._tokens = float(bytes_per_second)
        self._at_ms = now_ms

    def is_open(self, now_ms: float) -> bool:
        """True if a fetch may pass now."""
        self._refill(now_ms)
        return self._rate == 0 or self._tokens > 0

    def spend(self, size_bytes: int, now_ms: float) -> None:
        """Take the tokens of the bytes that passed."""
        self._refill(now_ms)
        self._tokens -= size_bytes

    def opens_in_ms(self, now_ms: float) -> float:
        """The time (ms) until a fetch may pass again; 0 when it may pass now."""
        if self.is_open(now_ms):
            return 0
        return 1 + (-self._tokens) * 1000 / self._rate

    def _refill(self, now_ms: float) -> None:
        """Add the tokens since the last call, at most those of one second."""
        gained = self._rate * max(0.0, now_ms - self._at_ms) / 1000
        self._tokens = min(float(self._rate), self._tokens + gained)
        self._at_ms = now_ms
