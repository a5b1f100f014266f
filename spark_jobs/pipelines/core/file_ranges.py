"""The ranges of offsets that files have of a topic, and where the next run goes on. Pure.

A range keeps the leader epoch of its last record: after an unplanned failover the other site may
have other records at the same offsets, which offsets alone do not show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spark_jobs.connector.core.offsets import LogRange, PartitionOffsets
from spark_jobs.connector.core.stream_positions import LostRecords, RecordsLost
from wire.protocol.ids import NO_EPOCH, PartitionKey

SKIP_LOST: Final = "--skip-lost"


class FileRange(NamedTuple):
    """Offsets of a partition, the end not included; `leader_epoch` is that of the last record."""

    start: int
    end: int
    leader_epoch: int = NO_EPOCH


def ranges_in(text: str, topic: str) -> dict[PartitionKey, FileRange]:
    """The ranges of a run; those of earlier releases have no leader epochs."""
    return {(topic, int(key)): FileRange(*values) for key, values in json.loads(text).items()}


def text_of(ranges: Mapping[PartitionKey, FileRange]) -> str:
    """The ranges as a file."""
    return json.dumps({partition: one for (_, partition), one in ranges.items()})


def ends_of(ranges: Mapping[PartitionKey, FileRange]) -> tuple[PartitionOffsets, PartitionOffsets]:
    """The end of each range, and the leader epochs that are known."""
    epochs = {key: one.leader_epoch for key, one in ranges.items() if one.leader_epoch >= 0}
    return {key: one.end for key, one in ranges.items()}, epochs


def ranges_of(
    last: Mapping[PartitionKey, FileRange],
    logs: Mapping[PartitionKey, LogRange],
    lost: Iterable[LostRecords],
    *,
    is_skipping_lost: bool,
) -> dict[PartitionKey, FileRange]:
    """The offsets that a run writes; `last` are the ranges of the run before, and `lost` what its
    files have and the logs do not. Raises RecordsLost unless it skips them.
    """
    moved = {(one.topic, one.partition): one.first_offset for one in lost}
    if moved and not is_skipping_lost:
        raise RecordsLost(
            f"{lost_sentence(lost)}. A failover has lost them, or this is another topic of that name. Accepted: "
            f"{SKIP_LOST}, which leaves them in the files and goes on at these offsets, or another directory (--to)"
        )
    ranges = {}
    for key, log in logs.items():
        known = last.get(key, FileRange(0, 0))
        start = max(moved.get(key, known.end), log.start_offset)
        # a new leader may report an end that is too low for a moment
        ranges[key] = FileRange(start, max(start, log.end_offset), known.leader_epoch)
    return ranges


def lost_sentence(lost: Iterable[LostRecords]) -> str:
    """The offsets that are lost, by partition."""
    return "; ".join(
        f"{one.topic}-{one.partition} has another history from offset {one.first_offset} on: offsets "
        f"{one.first_offset} to {one.until_offset - 1} of the files are not in it"
        for one in lost
    )
