"""Apache Kafka's own dump tool over our segments, indexes and snapshots: after load and rolls,
compaction, and a kill.

The tool decodes every record, and compares every index entry with the segment. It prints each
difference as a mismatch.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.replication.truncated_records import TruncatedRecords, path_of
from runtime.disk import RealDisk
from tests.integration.broker.test_requests import create
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.disks.logs_on_disk import fill, open_log
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

BEGAN_MS = int(time.time() * 1000)
"""Records are of today: what is older than retention.ms goes when the broker looks."""
COMPLAINTS = ("mismatch", "out of order", "non-consecutive", "not found", "invalid", "corrupt", "misformatted")


def load(broker: LoneBroker, topic: str, first: int, count: int, *, codec: str = "none") -> None:
    records = [
        Record(
            b"%08d" % number + b"v" * 100,
            key=b"key-%d" % (number % 50),
            partition=0,
            timestamp_ms=BEGAN_MS + number,
        )
        for number in range(first, first + count)
    ]
    librdkafka_produce(
        broker.bootstrap,
        topic,
        records,
        settings={"compression.type": codec, "batch.num.messages": 20, "enable.idempotence": True},
    )


def check(kafka_programs: KafkaPrograms, folder: Path) -> str:
    files = sorted(
        path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    )
    assert {".log", ".index", ".timeindex"} <= {path.suffix for path in files}
    said = kafka_programs.check_files(files)
    assert said.count("Dumping ") == 2 * len(files)
    sane = said.count("passed sanity check") + said.count(".index is empty.") // 2
    assert sane == sum(path.suffix in (".index", ".timeindex") for path in files)
    wrong = [line for line in said.splitlines() if any(word in line.lower() for word in COMPLAINTS)]
    assert wrong == []
    return said


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def test_segments_indexes_and_snapshots_are_sound_after_load_rolls_a_kill_and_compaction(
    start_broker: Callable[..., LoneBroker], kafka_programs: KafkaPrograms
) -> None:
    broker = start_broker(log_cleaner_backoff_ms="200", log_flush_scheduler_interval_ms="100")
    kept, compacted = f"kept-{uuid.uuid4().hex[:6]}", f"compacted-{uuid.uuid4().hex[:6]}"
    with RawClient(broker.port) as client:
        create(client, kept, segment_bytes="15000", index_interval_bytes="500")
        create(
            client,
            compacted,
            cleanup_policy="compact",
            segment_bytes="15000",
            index_interval_bytes="500",
            min_cleanable_dirty_ratio="0.01",
        )
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        load(broker, kept, number * 600, 600, codec=codec)
        load(broker, compacted, number * 600, 600, codec=codec)
    folder = broker.data / f"{kept}-0"
    assert len(segments(folder)) > 3
    eventually_sync(lambda: "compacted up to" in broker.process.log_text())
    broker.process.stop()
    check(kafka_programs, folder)
    said = check(kafka_programs, broker.data / f"{compacted}-0")
    assert "key-49" not in said
    broker.restart()
    load(broker, kept, 5000, 600)
    load(broker, compacted, 5000, 600)
    broker.process.kill()
    with segments(folder)[-1].open("ab") as active:
        active.write(b"torn" * 10)
    broker.restart()
    load(broker, kept, 6000, 300)
    broker.process.stop()
    check(kafka_programs, folder)
    check(kafka_programs, broker.data / f"{compacted}-0")


def test_truncated_records_are_in_a_file_that_the_tool_reads(tmp_path: Path, kafka_programs: KafkaPrograms) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 20, records=3)
    assert asyncio.run(TruncatedRecords(RealDisk(), bytes_max=1 << 20).keep(log, 30))
    said = kafka_programs.dump_log(Path(path_of(log)), with_records=True)
    assert "baseOffset: 30 lastOffset: 32" in said
    assert "baseOffset: 57 lastOffset: 59" in said
    assert said.count("payload: 000010") == 3
    assert [line for line in said.splitlines() if any(word in line.lower() for word in COMPLAINTS)] == []
