"""Replicas of which no request waits for anything: effects move the log's high watermark alone."""

from __future__ import annotations

from broker.log.errors import StorageError
from broker.replication.core.partition_effects import Effects, HighWatermarkMoved
from broker.replication.hosted_partition import HostedPartition
from broker.replication.truncated_records import TruncatedRecords
from runtime.disk import RealDisk


class QuietReplicas:
    """The part of `Replicas` that followers' appends and truncations call."""

    def __init__(self, cuts: TruncatedRecords | None = None) -> None:
        self.cuts = cuts or TruncatedRecords(RealDisk(), bytes_max=0)
        self.failures: list[StorageError] = []

    def storage_failed(self, error: StorageError) -> None:
        """A log could not be written."""
        self.failures.append(error)

    def record_growth(self, hosted: HostedPartition, _grown_bytes: int) -> None:
        """Records were appended."""
        self.act(hosted, hosted.state.record_append(hosted.log.log_end_offset))

    def act(self, hosted: HostedPartition, effects: Effects) -> None:
        """Follow the high watermark."""
        for effect in effects:
            if isinstance(effect, HighWatermarkMoved):
                hosted.log.advance_high_watermark(effect.offset)
