"""Positions of partitions as a broker describes them in columns, and an observer reads them."""

from __future__ import annotations

from collections.abc import Mapping

from dr.sites.core.log_columns import LogsInColumns, PartitionOrders, logs_of
from dr.sites.core.positions import PartitionPosition
from wire.control.broker_pb2 import PartitionColumns
from wire.control.partition_columns import HAS_MARKERS, IS_WRITABLE, message_of
from wire.protocol.ids import TopicPartition

Positions = Mapping[TopicPartition, PartitionPosition]


def described(positions: Positions) -> PartitionColumns:
    """The answer of one broker, as it arrives."""
    message = message_of(
        (
            key.topic,
            [start.epoch for start in one.epochs],
            [start.start_offset for start in one.epochs],
            (
                key.partition,
                one.leader_epoch,
                one.log_start_offset,
                one.high_watermark,
                one.log_end_offset,
                one.last_log_epoch,
                one.source_high_watermark,
                one.source_seen_at_ms,
                one.max_timestamp_ms,
                one.is_writable * IS_WRITABLE + one.has_markers * HAS_MARKERS,
                one.thinned_to,
            ),
        )
        for key, one in positions.items()
    )
    return PartitionColumns.FromString(message.SerializeToString())


def in_columns(positions: Positions, orders: PartitionOrders) -> LogsInColumns:
    """The same positions as an observer with these known orders has them."""
    return logs_of([described(positions)], orders)
