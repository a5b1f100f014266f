"""Reads the columns that `partition_columns.py` writes. Pure.

Caller: `dr/sites/core/log_columns.py`.
"""

from __future__ import annotations

from array import array
from typing import Final

from msgspec import Struct

from wire.control.broker_pb2 import PartitionColumns
from wire.control.partition_columns import FIELDS, IS_LITTLE_ENDIAN, Column

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


def columns_of(message: PartitionColumns) -> LogColumns:
    """The columns of a message. MalformedColumns when they do not have the same length."""
    count = message.partition_count
    epoch_count = _column(message.epoch_count, count) if 0 <= count <= PARTITIONS_MAX else None
    if epoch_count is None or sum(epoch_count) > EPOCHS_MAX:
        raise MalformedColumns("there are too many partitions or leader epochs")
    found = LogColumns(
        topics=tuple(message.topics),
        topic=_column(message.topic, count),
        fields=tuple(_field(message, name, count) for name in FIELDS),
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


def _field(message: PartitionColumns, name: str, count: int) -> Column:
    payload: bytes = getattr(message, name)
    # a broker of an earlier release does not report compaction
    is_absent = name == "thinned_to" and not payload
    return array("q", bytes(8 * count)) if is_absent else _column(payload, count)


def _column(payload: bytes, count: int) -> Column:
    if len(payload) % 8:
        raise MalformedColumns("a column ends within a number")
    column = array("q", payload)
    if not IS_LITTLE_ENDIAN:
        column.byteswap()
    return column * count if len(column) == 1 and 0 < count <= EPOCHS_MAX else column
