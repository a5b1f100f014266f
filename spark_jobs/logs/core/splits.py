"""Where a log starts and ends, and the pieces of it that workers read side by side. Pure.

Offsets are those of logs: a start is included, an end is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wire.protocol.ids import PartitionKey

SPLIT_OFFSETS_MIN = 20_000
SPLITS_PER_CORE = 4
SPLIT_COST_OFFSETS = 1_000
"""A split costs a task as much as the reading of so many offsets, beside its own."""


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


def shared_out(found: Iterable[Split], *, tasks: int) -> list[tuple[Split, ...]]:
    """The splits in about so many groups of equal work, in order. A group has the splits of one
    site: the task that reads it needs one client. Spark spends more on a task than a small log
    takes to read, so logs are not read in tasks of their own.
    """
    by_site: dict[str, list[Split]] = {}
    for split in found:
        by_site.setdefault(split.site, []).append(split)
    work = sum(_work(split) for splits in by_site.values() for split in splits)
    share = max(1, -(-work // max(tasks, 1)))
    groups: list[list[Split]] = []
    for splits in by_site.values():
        filled = share
        for split in splits:
            if filled >= share:
                groups.append([])
                filled = 0
            groups[-1].append(split)
            filled += _work(split)
    return [tuple(group) for group in groups]


def _work(split: Split) -> int:
    return split.until_offset - split.first_offset + SPLIT_COST_OFFSETS
