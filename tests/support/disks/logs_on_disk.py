"""Opening partition logs in tests, and looking at what they hold."""

from __future__ import annotations

import os
from typing import Any

from broker.log.intake import AppendInfo
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Disk, RealDisk
from tests.support.disks.log_batches import batch
from wire.batches.record_batch import BatchHeader, iterate_headers, verify_crc
from wire.batches.records import Record, decode_records

NOW_MS = 1_000_000
_opened: list[PartitionLog] = []


def config(**fields: Any) -> LogConfig:
    """A configuration whose indexes have many entries."""
    return LogConfig(**{"index_interval_bytes": 200, "segment_ms": 10**12, **fields})


def open_log(directory: object, disk: Disk | None = None, **options: Any) -> PartitionLog:
    """Open `directory`, which is created if it is missing. Options are those of PartitionLog, or
    fields of the configuration.
    """
    os.makedirs(str(directory), exist_ok=True)
    names = ("is_clean", "recovery_point", "log_start_offset", "now_ms", "topic_id", "roll_jitter")
    opening = {name: options.pop(name) for name in names if name in options}
    topic = options.pop("topic", "t")
    chosen = options.pop("config", None) or config(**options)
    log = PartitionLog(str(directory), DescriptorCache(disk or RealDisk()), chosen, topic=topic, partition=0, **opening)
    _opened.append(log)
    return log


def abandon_opened_logs() -> None:
    """Close the files of every log that a test left open, as one that plays a crash does; nothing
    is written.
    """
    while _opened:
        _opened.pop().abandon()


def append(
    log: PartitionLog, records: bytes, *, leader_epoch: int = 0, now_ms: int = NOW_MS, **options: Any
) -> AppendInfo:
    """Append as the leader of that epoch, at that time."""
    return log.append_as_leader(records, leader_epoch=leader_epoch, now_ms=now_ms, **options)


def fill(log: PartitionLog, count: int, *, records: int = 2, leader_epoch: int = 0, first_time_ms: int = 0) -> None:
    """Append `count` batches a millisecond apart."""
    for number in range(count):
        values = [b"%06d" % number] * records
        time_ms = NOW_MS + first_time_ms + number
        log.append_as_leader(batch(values, timestamp_ms=time_ms), leader_epoch=leader_epoch, now_ms=time_ms)


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """The headers of everything a reader gets from the log's start, read to its end; checksums are
    checked.
    """
    headers: list[BatchHeader] = []
    offset = log.log_start_offset
    while True:
        with log.read(offset, max_bytes=max_bytes) as piece:
            content = piece.read_bytes()
        if not content:
            return headers
        for position, header in iterate_headers(content):
            assert verify_crc(content, position, header)
            headers.append(header)
        assert piece.next_offset >= headers[-1].next_offset
        offset = piece.next_offset


def data_records(log: PartitionLog) -> list[Record]:
    """Every data record that a reader gets from the log's start on."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        with log.read(offset, max_bytes=1 << 20) as piece:
            found += decode_records(piece.read_bytes())
            offset = piece.next_offset
            if not len(piece):
                return [record for record in found if record.offset >= log.log_start_offset]
