"""The records that a follower truncates are counted and kept, after any interruption of the
truncation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.log.dropped.truncated_names import TRUNCATED_PREFIX
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.following.follower_append import truncate_replica
from broker.replication.hosted_partition import HostedPartition
from broker.replication.truncated_records import TruncatedRecords, TruncationCounts, path_of
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Buffer, RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from tests.support.memory.quiet_replicas import QuietReplicas
from wire.batches.records import decode_records

ROOM = 1 << 20


def follower(directory: Path, *values: bytes, topic: str = "t") -> HostedPartition:
    """A follower of the topic's partition 0 with a batch for each value."""
    log = open_log(directory / f"{topic}-0", topic=topic)
    for value in values:
        log.append_as_leader(batch([value], timestamp_ms=NOW_MS), leader_epoch=1, now_ms=NOW_MS)
    state = Partition(node_id=1, log_end_offset=log.log_end_offset)
    image = PartitionImage(index=0, leader=2, leader_epoch=2, partition_epoch=0, replicas=(2, 1), isr=(2, 1))
    state.change(image, now_ms=0)
    return HostedPartition(
        topic=topic, topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )


def cut(cuts: TruncatedRecords, hosted: HostedPartition, offset: int) -> None:
    replicas: Any = QuietReplicas(cuts)
    kept_bytes = asyncio.run(cuts.keep(hosted.log, offset))
    truncate_replica(replicas, hosted, offset, reason="test", now_ms=NOW_MS, kept_bytes=kept_bytes)


def kept(directory: Path) -> list[bytes | None]:
    return [record.value for record in decode_records((directory / f"{TRUNCATED_PREFIX}t-0.log").read_bytes())]


def test_truncated_records_are_counted_and_kept_beside_the_logs_folder(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b", b"c", b"d")
    size_bytes = hosted.log.size_bytes
    cut(cuts, hosted, 2)
    found = cuts.of("t", 0)
    assert found == TruncationCounts(
        count=1, records=2, bytes=size_bytes // 2, kept_bytes=size_bytes // 2, first_offset=2, at_ms=NOW_MS
    )
    assert kept(tmp_path) == [b"c", b"d"]
    cut(cuts, hosted, 1)
    assert kept(tmp_path) == [b"c", b"d", b"b"]
    assert (cuts.total.count, cuts.total.records) == (2, 3)


def test_a_cut_that_drops_everything_is_kept_too(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b")
    cut(cuts, hosted, 0)
    assert kept(tmp_path) == [b"a", b"b"]
    assert hosted.log.log_end_offset == 0


def test_only_so_much_is_kept_of_a_partition(tmp_path: Path) -> None:
    hosted = follower(tmp_path, b"a", b"b", b"c")
    one = hosted.log.size_bytes // 3
    cuts = TruncatedRecords(RealDisk(), bytes_max=2 * one + 5)
    cut(cuts, hosted, 0)
    assert kept(tmp_path) == [b"a", b"b"]
    assert (cuts.total.bytes, cuts.total.kept_bytes) == (3 * one, 2 * one)


def test_with_no_room_at_all_cuts_are_counted_only(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=0), follower(tmp_path, b"a", b"b")
    cut(cuts, hosted, 1)
    assert (cuts.total.records, cuts.total.kept_bytes) == (1, 0)
    assert os.listdir(tmp_path) == ["t-0"]


class Stopping(RealDisk):
    """A disk whose process ends in the middle of a write."""

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:  # type: ignore[override]
        os.pwrite(descriptor, bytes(buffers[0])[:30], position)
        raise KeyboardInterrupt


def test_a_cut_goes_on_when_the_disk_keeps_nothing(tmp_path: Path) -> None:
    hosted = follower(tmp_path, b"a", b"b")
    (tmp_path / f"{TRUNCATED_PREFIX}t-0.log").mkdir()
    cuts = TruncatedRecords(RealDisk(), bytes_max=ROOM)
    cut(cuts, hosted, 1)
    assert (hosted.log.log_end_offset, cuts.total.records, cuts.total.kept_bytes) == (1, 1, 0)


def test_a_copy_that_was_interrupted_is_made_whole_by_the_next_one(tmp_path: Path) -> None:
    hosted = follower(tmp_path, b"a", b"b", b"c")
    cut(TruncatedRecords(RealDisk(), bytes_max=ROOM), hosted, 2)
    with pytest.raises(KeyboardInterrupt):
        cut(TruncatedRecords(Stopping(), bytes_max=ROOM), hosted, 1)
    assert hosted.log.log_end_offset == 2
    cut(TruncatedRecords(RealDisk(), bytes_max=ROOM), hosted, 1)
    assert kept(tmp_path) == [b"c", b"b"]


def test_a_cut_interrupted_after_the_copy_loses_nothing(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b")
    asyncio.run(cuts.keep(hosted.log, 1))
    cut(cuts, hosted, 1)
    assert kept(tmp_path) == [b"b", b"b"]


def test_sound_batches_behind_a_damaged_one_in_the_file_are_kept(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b", b"c", b"d", b"e")
    one = hosted.log.size_bytes // 5
    cut(cuts, hosted, 2)
    path = Path(path_of(hosted.log))
    damaged = bytearray(path.read_bytes())
    damaged[one : one + 61] = bytes(61)
    path.write_bytes(damaged)
    cut(cuts, hosted, 1)
    assert kept(tmp_path) == [b"c", b"e", b"b"]
    assert sorted(os.listdir(tmp_path)) == [path.name, "t-0"]


def test_a_deleted_topic_leaves_nothing_behind_but_the_total(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b")
    cut(cuts, hosted, 1)
    cuts.forget(hosted.log, is_copy=False)
    cuts.forget(hosted.log, is_copy=False)
    assert not os.path.exists(path_of(hosted.log))
    assert (cuts.of("t", 0), cuts.total.records) == (None, 1)


def test_records_truncated_from_a_copy_stay_when_the_copy_is_deleted(tmp_path: Path) -> None:
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b")
    cut(cuts, hosted, 1)
    cuts.forget(hosted.log, is_copy=True)
    assert kept(tmp_path) == [b"b"]


@pytest.mark.parametrize("length", [243, 244, 249])
def test_records_truncated_from_the_log_of_the_longest_topic_are_kept_and_listed(tmp_path: Path, length: int) -> None:
    topic = "t" * length
    cuts, hosted = TruncatedRecords(RealDisk(), bytes_max=ROOM), follower(tmp_path, b"a", b"b", b"c", topic=topic)
    cut(cuts, hosted, 1)
    found = Path(path_of(hosted.log))
    assert [record.value for record in decode_records(found.read_bytes())] == [b"b", b"c"]
    (entry,) = cuts.quarantine.entries([str(tmp_path)], topics=["other", topic])
    assert (entry.topic, entry.partition, entry.kind, entry.name) == (topic, 0, "truncated", found.name[:-4])
    (without_topics,) = cuts.quarantine.entries([str(tmp_path)])
    assert topic.startswith(without_topics.topic[:200])
    assert len(cuts.quarantine.read([str(tmp_path)], entry.name, 0)) > 0
    cuts.forget(hosted.log, is_copy=False)
    assert not found.exists()


def test_two_topics_whose_long_names_begin_alike_have_files_of_their_own(tmp_path: Path) -> None:
    first, second = (follower(tmp_path, b"a", topic="t" * 248 + last) for last in "xy")
    assert path_of(first.log) != path_of(second.log)
