"""The ends of the source's logs, as far as they are known: from its own brokers, or from the mirror
that last reached it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dr.sites.core.log_columns import LogsInColumns, OrderedPartitions
from dr.sites.core.positions import PartitionPosition
from wire.batches.log_histories import EpochStart, LogHistory
from wire.protocol.ids import UNKNOWN, TopicPartition


class SourceEnd(Struct, frozen=True, kw_only=True):
    """The last known end of the source's log."""

    log_start_offset: int
    end_offset: int
    seen_at_ms: int
    is_exact: bool
    epochs: tuple[EpochStart, ...] = ()

    @property
    def history(self) -> LogHistory:
        """The history of the log."""
        return LogHistory(self.log_start_offset, self.end_offset, self.epochs)


def source_ends(
    positions: Mapping[TopicPartition, PartitionPosition], *, seen_at_ms: int, is_exact: bool
) -> dict[TopicPartition, SourceEnd]:
    """The source's ends as its own brokers report them."""
    return {
        key: SourceEnd(
            log_start_offset=position.log_start_offset,
            end_offset=position.log_end_offset,
            seen_at_ms=seen_at_ms,
            is_exact=is_exact,
            epochs=position.history().epochs,
        )
        for key, position in positions.items()
    }


class SourceEndsInColumns(OrderedPartitions[SourceEnd]):
    """The same for thousands of logs in columns: an end is made when it is asked for."""

    def __init__(self, logs: LogsInColumns, seen_at_ms: int, is_exact: bool) -> None:
        self.order = logs.order
        self.logs = logs
        self.seen_at_ms = seen_at_ms
        self.is_exact = is_exact

    def __getitem__(self, key: TopicPartition) -> SourceEnd:
        return source_ends({key: self.logs[key]}, seen_at_ms=self.seen_at_ms, is_exact=self.is_exact)[key]


def best_source_end(target: PartitionPosition | None, source: SourceEnd | None) -> SourceEnd | None:
    """The better of the source's own report and its mirror's knowledge; an exact end takes
    precedence.
    """
    if source is not None and source.is_exact:
        return source
    if target is None or target.source_high_watermark == UNKNOWN:
        return source
    # a mirror reports no log start: from 0 on everything may have been there
    received = SourceEnd(
        log_start_offset=0,
        end_offset=target.source_high_watermark,
        seen_at_ms=target.source_seen_at_ms,
        is_exact=False,
    )
    if source is None:
        return received
    return SourceEnd(
        log_start_offset=source.log_start_offset,
        end_offset=max(source.end_offset, received.end_offset),
        seen_at_ms=max(source.seen_at_ms, received.seen_at_ms),
        is_exact=False,
    )
