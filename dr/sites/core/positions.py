"""The state of one partition's log at one site of a link. Pure."""

from __future__ import annotations

from msgspec import Struct

from wire.batches.log_histories import EpochStart, LogHistory, history_of


class PartitionPosition(Struct, frozen=True, kw_only=True):
    """The state of one partition's log at one site."""

    leader_epoch: int
    last_log_epoch: int
    log_start_offset: int
    log_end_offset: int
    is_writable: bool
    source_high_watermark: int = -1
    source_seen_at_ms: int = -1
    high_watermark: int = -1
    """The offset up to which every in-sync replica of the site has the log; -1 if not reported."""
    max_timestamp_ms: int = -1
    """Timestamp of the newest record; -1 without records."""
    epochs: tuple[EpochStart, ...] = ()
    """The leader epochs of the records, oldest first."""
    has_markers: bool = False
    """True if a producer that the log knows has ended a transaction in it."""
    thinned_to: int = 0
    """Below this offset compaction may have removed records for newer ones also below it."""

    def history(self, end_offset: int | None = None) -> LogHistory:
        """Return the history of the log, up to `end_offset` if given."""
        end = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        # most logs: every epoch has records, so nothing is left out
        if not self.epochs or self.epochs[-1].start_offset < end:
            return LogHistory(self.log_start_offset, end, self.epochs)
        return history_of(self.log_start_offset, end, self.epochs)

    @property
    def safe_end_offset(self) -> int:
        """The offset up to which the site keeps the log even if the leader dies now."""
        return self.log_end_offset if self.high_watermark < 0 else min(self.high_watermark, self.log_end_offset)
