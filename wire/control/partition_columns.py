"""Describes thousands of partitions as columns: a number for each partition, the same fields as in
a description of one partition, at a fraction of the cost. Pure.

Caller: `broker/replication/replica_figures.py`. `partition_columns_reader.py` reads them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, TypeAlias

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
    "thinned_to",
)
"""The columns that have one number of each partition, in the order of a `Row`."""

Row = tuple[str, list[int], list[int], tuple[int, int, int, int, int, int, int, int, int, int, int]]
"""One partition: its topic, its leader epochs, their first offsets, and its fields."""


def message_of(rows: Iterable[Row]) -> PartitionColumns:
    """The message that describes these partitions."""
    numbers: dict[str, int] = {}
    topic: list[int] = []
    fields: list[int] = []
    epoch_count: list[int] = []
    epochs: list[int] = []
    starts: list[int] = []
    for name, written, first_offsets, values in rows:
        topic.append(numbers.setdefault(name, len(numbers)))
        fields += values
        epoch_count.append(len(written))
        epochs += written
        starts += first_offsets
    return PartitionColumns(
        partition_count=len(topic),
        topics=numbers,
        topic=_bytes_of(topic),
        epoch_count=_bytes_of(epoch_count),
        epochs=_bytes_of(epochs),
        epoch_starts=_bytes_of(starts),
        **{name: _bytes_of(fields[number :: len(FIELDS)]) for number, name in enumerate(FIELDS)},
    )


def _bytes_of(numbers: Iterable[int]) -> bytes:
    column = array("q", numbers)
    # most columns: the same number everywhere, which would fill a slow line between two sites
    if len(column) > 1 and column.count(column[0]) == len(column):
        column = column[:1]
    if not IS_LITTLE_ENDIAN:
        column.byteswap()
    return column.tobytes()
