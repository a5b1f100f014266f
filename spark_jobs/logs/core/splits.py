"""Where a log starts and ends, and the pieces of it that workers read side by side. Pure.

Offsets are those of logs: a start is included, an end is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wire.protocol.ids import PartitionKey

SPLIT_OFFSETS_MIN = 20_000
SPLITS_PER_CORE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The start and end of a log at one moment."""

    start_offset: int = 0
    end_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Batches that begin at `first_offset` or later and before `until_offset`; the first split of a
    log also has the batch that reaches over its start.
    """

    site: str
    topic: str
    partition: int
    first_offset: int
    until_offset: int
    is_first: bool


def is_reached(snapshot: Mapping[PartitionKey, LogEnds], target: Mapping[PartitionKey, LogEnds]) -> bool:
    """True when the target's logs end where the source's did, or later."""
    return all(target.get(key, LogEnds()).end_offset >= ends.end_offset for key, ends in snapshot.items())


def pieces(site: str, key: PartitionKey, *, first: int, until: int, length: int) -> Iterator[Split]:
    """The offsets `first` to `until` (not included) of one log, in pieces of `length` offsets."""
    for start in range(first, until, length):
        yield Split(
            site=site,
            topic=key[0],
            partition=key[1],
            first_offset=start,
            until_offset=min(start + length, until),
            is_first=start == first,
        )
