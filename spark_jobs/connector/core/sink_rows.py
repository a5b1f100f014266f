"""Turns the rows of the sink into batches by partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clients.core.partitioners import murmur2
from spark_jobs.connector.core.offsets import TopicPartition
from wire.batches.records import Record, encode_record

BATCH_BYTES_MAX: Final = 512 * 1024
BATCH_RECORDS_MAX: Final = 50_000
_POSITIVE: Final = 0x7FFFFFFF
COLUMNS: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


class InvalidRows(ValueError):
    """Columns or rows that cannot be written."""


class OutputRow(NamedTuple):
    """A row of the query. Empty topic: that of the option; partition None: by the key."""

    topic: str | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None


def check_columns(types: dict[str, str], *, has_topic_option: bool) -> None:
    """InvalidRows for columns that the sink cannot write; as in the Kafka connector others are left
    out.
    """
    if "value" not in types:
        raise InvalidRows("the query has no column value; accepted: value as string or binary")
    if "topic" not in types and not has_topic_option:
        raise InvalidRows("the query has no column topic; accepted: that column, or the option topic")
    for name, accepted in COLUMNS.items():
        kind = types.get(name, accepted[0]).replace(" ", "")
        if kind not in accepted:
            raise InvalidRows(f"column {name} is {kind}; accepted: {' or '.join(accepted)}")


@dataclass(slots=True)
class PendingBatch:
    """Encoded records that wait to be sealed into one batch of one partition."""

    base_timestamp: int
    max_timestamp: int
    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """True if the batch is full and is to be sent."""
        return self.size_bytes >= BATCH_BYTES_MAX or len(self.records) >= BATCH_RECORDS_MAX


class Batcher:
    """Divides rows among partitions. `task` decides where records without a key begin, so that
    tasks do not all write to the same partition.
    """

    def __init__(self, task: int) -> None:
        self._next_keyless = task
        self._pending: dict[TopicPartition, PendingBatch] = {}

    def partition_of(self, row: OutputRow, partition_count: int) -> int:
        """The partition of a row: the row's own, the one of its key as Java's clients choose it, or
        one partition after the other, a batch at a time. Raises InvalidRows.
        """
        if row.partition is not None:
            if not 0 <= row.partition < partition_count:
                raise InvalidRows(f"column partition is {row.partition}; accepted: 0 to {partition_count - 1}")
            return row.partition
        if row.key is not None:
            return (murmur2(row.key) & _POSITIVE) % partition_count
        return self._next_keyless % partition_count

    def add(self, place: TopicPartition, row: OutputRow, now_ms: int) -> PendingBatch | None:
        """Queue the row; the partition's batch if that is full now."""
        pending = self._pending.get(place)
        if pending is None:
            pending = self._pending[place] = PendingBatch(now_ms, now_ms)
        record = Record(row.key, row.value, now_ms, row.headers)
        encoded = encode_record(record, len(pending.records), pending.base_timestamp)
        pending.records.append(encoded)
        pending.size_bytes += len(encoded)
        pending.max_timestamp = max(pending.max_timestamp, now_ms)
        if not pending.is_full:
            return None
        self._next_keyless += 1
        return self._pending.pop(place)

    def rest(self) -> Iterable[tuple[TopicPartition, PendingBatch]]:
        """Take the remaining batches, which are then no longer pending."""
        left, self._pending = self._pending, {}
        return left.items()
