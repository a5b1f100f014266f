"""The site-wide counterparts of topic configs, set under their names in a broker's file, and their
effect on logs.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from broker.log.cleaning.cleaner import clean
from broker.log.cleaning.log_compaction import plan_compaction, swap_in
from broker.log.core.batch_checks import BatchRejected
from broker.log.directories.log_store import LogStore
from broker.log.partition_log import PartitionLog
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, data_records, open_log, read_all

HOUR_MS = 3_600_000


def log_with(folder: Path, properties: dict[str, str], *, roll_jitter: float = 0.0) -> PartitionLog:
    """A log on a broker whose file has these properties."""
    return open_log(folder, config=LogConfig.from_topic_configs(properties, {}), now_ms=NOW_MS, roll_jitter=roll_jitter)


def put(log: PartitionLog, value: bytes = b"v" * 100, *, key: bytes = b"k", time_ms: int = NOW_MS) -> None:
    records = batch([(key, value)], timestamp_ms=time_ms)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)


def segment_count(folder: Path) -> int:
    return sum(name.endswith(".log") for name in os.listdir(folder))


def settle(log: PartitionLog, now_ms: int = NOW_MS) -> None:
    log.roll_if_due(now_ms + 10**13)
    log.advance_high_watermark(log.log_end_offset)
    log.flush_now()


def test_segments_end_at_the_sites_size(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"log.segment.bytes": "1048576"})
    for _ in range(3):
        put(log, b"v" * 500_000)
    assert segment_count(tmp_path) == 2


@pytest.mark.parametrize(
    ("properties", "roll_jitter", "age_ms"),
    [
        ({"log.roll.ms": "5000"}, 0.0, 5001),
        ({"log.roll.hours": "2"}, 0.0, 2 * HOUR_MS + 1),
        ({"log.roll.ms": "5000", "log.roll.jitter.ms": "2000"}, 1.0, 3001),
        ({"log.roll.hours": "2", "log.roll.jitter.hours": "1"}, 1.0, HOUR_MS + 1),
    ],
)
def test_segments_end_at_the_sites_age_less_its_jitter(
    tmp_path: Path, properties: dict[str, str], roll_jitter: float, age_ms: int
) -> None:
    log = log_with(tmp_path, properties, roll_jitter=roll_jitter)
    put(log)
    assert not log.roll_if_due(NOW_MS + age_ms - 2)
    assert log.roll_if_due(NOW_MS + age_ms)


def test_a_full_index_ends_a_segment(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"log.index.size.max.bytes": "64", "log.index.interval.bytes": "0"})
    for number in range(30):
        put(log, time_ms=NOW_MS + number)
    # eight entries of the offset index fill it, the time index holds fewer
    assert segment_count(tmp_path) >= 4


def test_an_index_entry_stands_for_the_sites_interval(tmp_path: Path) -> None:
    entries = []
    for interval in ("0", "1000"):
        log = log_with(tmp_path / interval, {"log.index.interval.bytes": interval})
        for _ in range(40):
            put(log)
        entries.append(log.segments.active.offset_index.count)
    assert entries[0] == 39
    assert 0 < entries[1] < 10


@pytest.mark.parametrize(
    ("properties", "kept_ms"),
    [
        ({"log.retention.ms": "7000"}, 7000),
        ({"log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "4"}, 4 * HOUR_MS),
        ({"log.retention.hours": "4", "log.retention.ms": "7000"}, 7000),
    ],
)
def test_records_are_kept_for_the_sites_time(tmp_path: Path, properties: dict[str, str], kept_ms: int) -> None:
    log = log_with(tmp_path, properties)
    put(log)
    log.advance_high_watermark(1)
    assert log.expire_segments(NOW_MS + kept_ms) == ""
    assert "retention" in log.expire_segments(NOW_MS + kept_ms + 1)


def test_records_are_kept_up_to_the_sites_size(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"log.retention.bytes": "600000", "log.segment.bytes": "1048576"})
    for _ in range(4):
        put(log, b"v" * 600_000)
    log.advance_high_watermark(4)
    assert "retention.bytes" in log.expire_segments(NOW_MS)
    assert log.log_start_offset == 3


def test_given_up_files_wait_for_the_sites_delay(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"log.segment.delete.delay.ms": "9000", "log.retention.ms": "0"})
    put(log)
    log.advance_high_watermark(1)
    assert log.expire_segments(NOW_MS + 1)
    assert log.removals.take_due(NOW_MS + 9000) == []
    assert log.removals.take_due(NOW_MS + 9001) != []


@pytest.mark.parametrize(
    ("properties", "is_needed_after", "is_due_after_ms"),
    [
        ({"log.flush.interval.messages": "3"}, 3, None),
        ({"log.flush.interval.ms": "4000"}, None, 4000),
        ({"log.flush.scheduler.interval.ms": "2500"}, None, 2500),
    ],
)
def test_logs_are_flushed_as_the_site_says(
    tmp_path: Path, properties: dict[str, str], is_needed_after: int | None, is_due_after_ms: int | None
) -> None:
    log = log_with(tmp_path, properties)
    needs = []
    for _ in range(4):
        put(log)
        needs.append(log.needs_flush)
    assert needs == [is_needed_after is not None and count >= is_needed_after for count in range(1, 5)]
    dues = [log.is_flush_due(NOW_MS + after_ms) for after_ms in ((is_due_after_ms or 10**9) - 1, is_due_after_ms or 0)]
    assert dues == [False, is_due_after_ms is not None]


def test_records_have_the_sites_kind_of_timestamp(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"log.message.timestamp.type": "LogAppendTime"})
    put(log, time_ms=5)
    assert [header.max_timestamp for header in read_all(log)] == [NOW_MS]


@pytest.mark.parametrize(
    ("key", "sound_ms", "wrong_ms"),
    [
        ("log.message.timestamp.after.max.ms", NOW_MS + 400, NOW_MS + 401),
        ("log.message.timestamp.before.max.ms", NOW_MS - 400, NOW_MS - 401),
    ],
)
def test_timestamps_beyond_the_sites_bounds_are_refused(tmp_path: Path, key: str, sound_ms: int, wrong_ms: int) -> None:
    bounds = {"log.message.timestamp.after.max.ms": {"log.message.timestamp.after.max.ms": "400"}}
    log = log_with(tmp_path, bounds.get(key, {"log.message.timestamp.before.max.ms": "400"}))
    put(log, time_ms=sound_ms)
    with pytest.raises(BatchRejected) as refused:
        put(log, time_ms=wrong_ms)
    assert refused.value.code is ErrorCode.invalid_timestamp


def test_batches_above_the_sites_size_are_refused(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"message.max.bytes": "300"})
    put(log)
    with pytest.raises(BatchRejected) as refused:
        put(log, b"v" * 300)
    assert refused.value.code is ErrorCode.message_too_large


@pytest.mark.parametrize("is_clean", [True, False])
def test_segments_have_their_length_in_advance_and_lose_it_at_a_roll_and_a_stop(tmp_path: Path, is_clean: bool) -> None:
    log = log_with(tmp_path, {"log.preallocate": "true", "log.segment.bytes": "1048576"})
    paths = [f"{tmp_path}/{offset:020d}.log" for offset in (0, 3)]
    assert os.path.getsize(paths[0]) == 1048576
    for _ in range(3):
        put(log, b"v" * 300_000)
    assert os.path.getsize(paths[0]) == 1048576
    put(log, b"v" * 300_000)
    size = log.size_bytes // 4
    assert [os.path.getsize(path) for path in paths] == [3 * size, 1048576]
    assert [record.offset for record in data_records(log)] == [0, 1, 2, 3]
    if is_clean:
        log.close()
        assert os.path.getsize(paths[1]) == size
    else:
        log.abandon()
    again = open_log(tmp_path, is_clean=is_clean)
    assert (again.log_end_offset, again.size_bytes, again.recovery.dropped) == (4, 4 * size, ())
    assert [note.split(" at ")[0] for note in again.recovery.notes] == (
        [] if is_clean else [f"{1048576 - size} bytes of zeros"]
    )
    put(again)
    assert [record.offset for record in data_records(again)] == [0, 1, 2, 3, 4]
    again.close()


def test_a_cut_of_a_segment_with_its_length_in_advance_leaves_nothing_behind(tmp_path: Path) -> None:
    log = log_with(tmp_path, {"log.preallocate": "true", "log.segment.bytes": "1048576"})
    for _ in range(3):
        put(log)
    log.truncate_to(1)
    put(log, b"w")
    log.truncate_fully_and_start_at(9)
    put(log, b"x")
    log.close()
    again = open_log(tmp_path, is_clean=True)
    assert [(record.offset, record.value) for record in data_records(again)] == [(9, b"x")]
    again.close()


COMPACTED = {"log.cleanup.policy": "compact", "log.segment.bytes": "1048576"}


def compacted(log: PartitionLog, now_ms: int = NOW_MS) -> bool:
    plan = plan_compaction(log, now_ms)
    if plan is None:
        return False
    return asyncio.run(swap_in(log, plan, clean(plan, RealDisk()), log._descriptors, now_ms))


def test_the_site_may_compact(tmp_path: Path) -> None:
    log = log_with(tmp_path, COMPACTED)
    for number in range(5):
        put(log, b"%d" % number)
    settle(log)
    assert compacted(log)
    assert [record.value for record in data_records(log)] == [b"4"]
    assert log.expire_segments(NOW_MS + 10**12) == ""


def test_tombstones_stay_for_the_sites_time(tmp_path: Path) -> None:
    log = log_with(tmp_path, {**COMPACTED, "log.cleaner.delete.retention.ms": "1000"})
    put(log)
    log.append_as_leader(batch([(b"k", None)], timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    settle(log)
    assert compacted(log)
    left = []
    for now_ms in (NOW_MS + 999, NOW_MS + 1001):
        put(log, key=b"other", time_ms=NOW_MS)
        settle(log)
        assert compacted(log, now_ms)
        left.append(any(record.key == b"k" for record in data_records(log)))
    assert left == [True, False]


def test_records_younger_than_the_sites_lag_are_not_compacted(tmp_path: Path) -> None:
    log = log_with(tmp_path, {**COMPACTED, "log.cleaner.min.compaction.lag.ms": "5000"})
    put(log)
    put(log)
    settle(log)
    assert plan_compaction(log, NOW_MS + 4999) is None
    assert plan_compaction(log, NOW_MS + 5001) is not None


def test_compacted_logs_roll_within_the_sites_largest_lag(tmp_path: Path) -> None:
    log = log_with(tmp_path, {**COMPACTED, "log.cleaner.max.compaction.lag.ms": "6000"})
    put(log)
    assert [log.roll_if_due(NOW_MS + after_ms) for after_ms in (5999, 6001)] == [False, True]


async def test_logs_are_worth_cleaning_from_the_sites_share_of_dirt_on(tmp_path: Path) -> None:
    ratio = {"log.cleaner.min.cleanable.ratio": "0.75"}
    logs = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: NOW_MS)
    logs.open(node_id=1, cluster_id="c")
    logs.load(lambda _: LogConfig())
    config = LogConfig.from_topic_configs({**COMPACTED, **ratio}, {})
    log = logs.open_or_create("t", 0, topic_id=bytes(range(16)), config=config)
    outcomes = []
    for count in (10, 20, 30):
        for number in range(count):
            put(log, key=b"%d-%d" % (count, number))
        settle(log)
        outcomes.append(len(await logs.compact()))
    # all is dirty, then 20 of 30, then 50 of 60
    assert outcomes == [1, 0, 1]
    logs.abandon()
