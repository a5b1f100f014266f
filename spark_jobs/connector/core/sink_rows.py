"""Turns the rows of the sink, Arrow columns, into the records of batches by partition. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.connector.core.record_encoding import (
    Numbers,
    encoded_headers,
    encoded_records,
    partitions_of,
    sizes_of,
)
from spark_jobs.connector.core.sink_leftovers import StoredRow
from wire.protocol.ids import PartitionKey

BATCH_BYTES_MAX: Final = 512 * 1024
ROWS_AT_ONCE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of keys and values that are divided among partitions at once. Larger pieces give larger
batches for topics with many partitions.
"""
ROWS_AT_ONCE: Final = 200_000
COLUMNS: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


class InvalidRows(ValueError):
    """Columns or rows that cannot be written."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Columns of equal length. `topics` and `headers` are None if the query has no such column. A
    null partition is chosen by the key.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    topics: pa.StringArray | None = None
    headers: pa.Array | None = None
    partitions: pa.Int32Array | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, columns: Mapping[str, int]) -> Rows:
        """The columns at these positions of a batch of the query."""
        found = {name: batch.column(position) for name, position in columns.items()}
        nothing = pa.nulls(batch.num_rows, pa.binary())
        return cls(
            keys=pc.cast(found.get("key", nothing), pa.binary()),
            values=pc.cast(found["value"], pa.binary()),
            topics=found.get("topic"),
            headers=found.get("headers"),
            partitions=found.get("partition"),
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys and values."""
        return int(self.keys.nbytes + self.values.nbytes)

    def taken(self, rows: pa.Array) -> Rows:
        """These rows, without their destination columns."""
        headers = None if self.headers is None else self.headers.take(rows)
        return Rows(keys=self.keys.take(rows), values=self.values.take(rows), headers=headers)

    def halves(self) -> tuple[Rows, Rows]:
        """The rows in two parts, in their order."""
        middle = len(self) // 2
        return self.taken(pa.array(range(middle))), self.taken(pa.array(range(middle, len(self))))

    def contents(self) -> Iterator[StoredRow]:
        """The rows as records that are stored."""
        nothing = itertools.repeat(None)
        headers = nothing if self.headers is None else self.headers.to_pylist()
        for key, value, own in zip(self.keys.to_pylist(), self.values.to_pylist(), headers):  # noqa: B905  endless
            yield StoredRow(key, value, tuple((one["key"], one["value"]) for one in own or ()))

    def encoded(self) -> bytes:
        """The records of one batch."""
        headers = None if self.headers is None else encoded_headers(self.headers)
        return encoded_records(self.keys, self.values, headers)


def joined(batches: Iterable[Rows]) -> Iterator[Rows]:
    """The rows in pieces that are large enough to be divided among partitions."""
    waiting: list[Rows] = []
    for rows in batches:
        waiting.append(rows)
        if sum(one.size_bytes for one in waiting) >= ROWS_AT_ONCE_BYTES or sum(map(len, waiting)) >= ROWS_AT_ONCE:
            yield _concatenated(waiting)
            waiting = []
    if waiting:
        yield _concatenated(waiting)


def topics_of(rows: Rows, topic_option: str) -> list[str]:
    """The topics that the rows go to: the option's, as in the Kafka connector, whatever column
    topic says. InvalidRows for a row without one.
    """
    if topic_option:
        return [topic_option]
    found = [] if rows.topics is None else pc.unique(rows.topics).to_pylist()
    if not all(found):
        raise InvalidRows("column topic is null; accepted: a topic in each row, or the option topic")
    return sorted(found)


class Divider:
    """Divides rows among partitions. `task` decides where records without a key begin, so that
    tasks do not all write to the same partition; `topic_option` is the topic of all rows, "" if
    each row names its own.
    """

    def __init__(self, task: int, topic_option: str) -> None:
        self._next_keyless = task
        self._topic_option = topic_option

    def batches(self, rows: Rows, partition_counts: Mapping[str, int]) -> Iterator[tuple[PartitionKey, Rows]]:
        """The rows of each batch in their order. InvalidRows for a partition that the topic does
        not have.
        """
        sizes = sizes_of(rows.keys, rows.values, rows.headers)
        for topic, chosen in self._by_topic(rows):
            at = np.flatnonzero(chosen)
            places = self._partitions(rows, at, sizes, partition_counts[topic])
            order = at[np.argsort(places, kind="stable")]
            for partition, mine in _runs(order, np.sort(places)):
                for _, part in _runs(mine, np.cumsum(sizes[mine]) // BATCH_BYTES_MAX):
                    yield (topic, partition), rows.taken(pa.array(part))

    def _by_topic(self, rows: Rows) -> Iterator[tuple[str, Numbers]]:
        if self._topic_option:
            yield self._topic_option, np.ones(len(rows), bool)
            return
        for topic in sorted(pc.unique(rows.topics).to_pylist()):
            yield topic, pc.equal(rows.topics, topic).to_numpy(zero_copy_only=False)

    def _partitions(self, rows: Rows, at: Numbers, sizes: Numbers, count: int) -> Numbers:
        """The partition of each of these rows: the row's own, the one of its key as Java's clients
        choose it, or one partition after the other, a batch at a time.
        """
        found = partitions_of(rows.keys, count)[at]
        keyless = np.flatnonzero(rows.keys.is_null().to_numpy(zero_copy_only=False)[at])
        if len(keyless):
            turns = np.cumsum(sizes[at][keyless]) // BATCH_BYTES_MAX
            found[keyless] = (self._next_keyless + turns) % count
            self._next_keyless += int(turns[-1]) + 1
        if rows.partitions is not None:
            own = pc.fill_null(rows.partitions, -1).to_numpy(zero_copy_only=False)[at]
            named = rows.partitions.is_valid().to_numpy(zero_copy_only=False)[at]
            wrong = own[named & ((own < 0) | (own >= count))]
            if len(wrong):
                raise InvalidRows(f"column partition is {wrong[0]}; accepted: 0 to {count - 1}")
            found = np.where(named, own, found)
        return found


def _runs(rows: Numbers, numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Neighbours of one number, with that number."""
    if not len(rows):
        return
    begins = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
    for begin, part in zip(begins, np.split(rows, begins[1:]), strict=True):
        yield int(numbers[begin]), part


def _concatenated(pieces: list[Rows]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]

    def column(name: str) -> pa.Array | None:
        parts = [getattr(piece, name) for piece in pieces]
        return None if parts[0] is None else pa.concat_arrays(parts)

    return Rows(
        keys=column("keys"),
        values=column("values"),
        topics=column("topics"),
        headers=column("headers"),
        partitions=column("partitions"),
    )
