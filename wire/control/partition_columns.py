"""Describes thousands of partitions as columns: a number for each partition, the same fields as in
a description of one partition, at a fraction of the cost. Pure.

Writer: `broker/replication/replica_figures.py`; reader: `dr/sites/core/log_columns.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from wire.control.broker_pb2 import PartitionColumns

Column: TypeAlias = "array[int]"
"""One number for each partition."""

IS_LITTLE_ENDIAN: Final = array("q", [1]).tobytes()[0] == 1
"""The byte order of this machine's integers."""
IS_WRITABLE: Final = 1
HAS_MARKERS: Final = 2
"""Bits of the column `flags`."""

FIELDS: Final = (
    "partition",
    "leader_epoch",
    "log_start_offset",
    "high_watermark",
    "log_end_offset",
    "last_log_epoch",
    "source_high_watermark",
    "source_seen_at_ms",
    "max_timestamp_ms",
    "flags",
)
"""The columns that have one number of each partition, in the order of a `Row`."""

Row = tuple[str, Sequence[tuple[int, int]], tuple[int, int, int, int, int, int, int, int, int, int]]
"""One partition: its topic, its leader epochs with their first offsets, and its fields."""


PARTITIONS_MAX: Final = 1_000_000
EPOCHS_MAX: Final = 10_000_000
"""More than that are refused, because a small message could ask for any amount of memory."""


class MalformedColumns(ValueError):
    """A message whose columns do not belong together."""


class LogColumns(Struct, frozen=True, kw_only=True):
    """The columns of some partitions; `epochs` and `epoch_starts` have those of all partitions, one
    after the other, `epoch_count` of each.
    """

    topics: tuple[str, ...]
    topic: Column
    fields: tuple[Column, ...]
    epoch_count: Column
    epochs: Column
    epoch_starts: Column


def message_of(rows: Iterable[Row]) -> PartitionColumns:
    """The message that describes these partitions."""
    numbers: dict[str, int] = {}
    topic, fields, epoch_count, epochs = [], [], [], list[tuple[int, int]]()
    for name, written, values in rows:
        topic.append(numbers.setdefault(name, len(numbers)))
        fields.append(values)
        epoch_count.append(len(written))
        epochs += written
    columns = zip(*fields, strict=True) if fields else ((),) * len(FIELDS)
    return PartitionColumns(
        partition_count=len(topic),
        topics=numbers,
        topic=_bytes_of(topic),
        epoch_count=_bytes_of(epoch_count),
        epochs=_bytes_of(epoch for epoch, _ in epochs),
        epoch_starts=_bytes_of(start for _, start in epochs),
        **{name: _bytes_of(column) for name, column in zip(FIELDS, columns, strict=True)},
    )


def columns_of(message: PartitionColumns) -> LogColumns:
    """The columns of a message. MalformedColumns when they do not have the same length."""
    count = message.partition_count
    epoch_count = _column(message.epoch_count, count) if 0 <= count <= PARTITIONS_MAX else None
    if epoch_count is None or sum(epoch_count) > EPOCHS_MAX:
        raise MalformedColumns("there are too many partitions or leader epochs")
    found = LogColumns(
        topics=tuple(message.topics),
        topic=_column(message.topic, count),
        fields=tuple(_column(getattr(message, name), count) for name in FIELDS),
        epoch_count=epoch_count,
        epochs=_column(message.epochs, sum(epoch_count)),
        epoch_starts=_column(message.epoch_starts, sum(epoch_count)),
    )
    if any(len(column) != count for column in (found.topic, *found.fields, found.epoch_count)):
        raise MalformedColumns("the columns of the partitions have different lengths")
    if (
        not len(found.epochs) == len(found.epoch_starts) == sum(found.epoch_count)
        or min(found.epoch_count, default=0) < 0
    ):
        raise MalformedColumns("the leader epochs do not belong to the partitions")
    if found.topic and not 0 <= min(found.topic) <= max(found.topic) < len(found.topics):
        raise MalformedColumns("a partition belongs to no topic")
    return found


def _bytes_of(numbers: Iterable[int]) -> bytes:
    column = array("q", numbers)
    # most columns: the same number everywhere, which would fill a slow line between two sites
    if len(column) > 1 and column.count(column[0]) == len(column):
        column = column[:1]
    if not IS_LITTLE_ENDIAN:
        column.byteswap()
    return column.tobytes()


def _column(payload: bytes, count: int) -> Column:
    if len(payload) % 8:
        raise MalformedColumns("a column ends within a number")
    column = array("q", payload)
    if not IS_LITTLE_ENDIAN:
        column.byteswap()
    return column * count if len(column) == 1 and 0 < count <= EPOCHS_MAX else column
