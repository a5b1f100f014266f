"""Logs of compacted topics for tests of the cleaner: small segments, and records by key."""

import asyncio
from typing import Any

from broker.log.cleaning.cleaner import CleaningPlan, clean
from broker.log.cleaning.log_compaction import swap_in
from broker.log.partition_log import PartitionLog
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS
from wire.batches.records import decode_records
from wire.rules.topic_config_kinds import LONG_MAX

ID = bytes(range(16))


def compacted(**fields: Any) -> LogConfig:
    """The config of a compacted topic with small segments."""
    return LogConfig(
        **{
            "is_compacted": True,
            "is_deleted": False,
            "segment_bytes": 600,
            "segment_ms": LONG_MAX,
            "index_interval_bytes": 200,
            "delete_retention_ms": 100,
            **fields,
        }
    )


def put(log: PartitionLog, key: bytes, value: bytes | None, *, time_ms: int = NOW_MS, **fields: Any) -> None:
    """Append a record."""
    log.append_as_leader(batch([(key, value)], timestamp_ms=time_ms, **fields), leader_epoch=0, now_ms=time_ms)


def settle(log: PartitionLog) -> None:
    """Make all records durable and visible to consumers."""
    log.advance_high_watermark(log.log_end_offset)
    log.flush_now()


def keys_and_values(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    """All records, in order of offset."""
    found: list[tuple[bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while True:
        with log.read(offset, max_bytes=1 << 20) as piece:
            found += [(record.key, record.value) for record in decode_records(piece.read_bytes())]
            offset = piece.next_offset
            if not len(piece):
                return found


def run(log: PartitionLog, plan: CleaningPlan, now_ms: int = NOW_MS) -> None:
    """Carry out the plan and replace the segments."""
    assert asyncio.run(swap_in(log, plan, clean(plan, RealDisk()), log._descriptors, now_ms))
