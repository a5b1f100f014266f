"""A leader's answers applied to a follower's real log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.log.cleaning.cleaner import clean
from broker.log.cleaning.log_compaction import plan_compaction, swap_in
from broker.log.core.batch_checks import BatchRejected
from broker.log.directories import checkpoints
from broker.log.directories.log_store import LogStore
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.following.core.follower import resume_out_of_range
from broker.replication.following.follower_append import (
    apply_answer,
    position_of,
    resume_in_range,
    truncate_where_histories_differ,
    truncation_wanted,
    where_histories_part,
)
from broker.replication.hosted_partition import HostedPartition
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, data_records, open_log, read_all
from tests.support.memory.quiet_replicas import QuietReplicas
from wire.protocol.messages.fetch_codec import EpochEnd, PartitionFetched

CUTS = TruncatedRecords(RealDisk(), bytes_max=1 << 20)


REPLICAS: Any = QuietReplicas(CUTS)


def follower_of(log: PartitionLog, *, leader_epoch: int = 9, isr: tuple[int, ...] = (2, 1)) -> HostedPartition:
    state = Partition(node_id=1, log_end_offset=log.log_end_offset)
    image = PartitionImage(index=0, leader=2, leader_epoch=leader_epoch, partition_epoch=0, replicas=(2, 1), isr=isr)
    state.change(image, now_ms=0)
    return HostedPartition(
        topic="t", topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )


def filled(path: Path, *epochs: int) -> PartitionLog:
    """A log with one record of each epoch."""
    path.mkdir(exist_ok=True)
    log: PartitionLog = open_log(path)
    for epoch in epochs:
        log.append_as_leader(batch([b"%d" % epoch], timestamp_ms=NOW_MS), leader_epoch=epoch, now_ms=NOW_MS)
    return log


def answer_of(leader: PartitionLog, follower: HostedPartition, *, high_watermark: int = 0) -> PartitionFetched:
    """As the leader's Fetch handler answers."""
    asked = position_of(follower, now_ms=0.0)
    diverging = leader.divergence(asked.last_fetched_epoch, asked.fetch_offset)
    if diverging is not None:
        return PartitionFetched(0, diverging_epoch=EpochEnd(*diverging))
    with leader.read(asked.fetch_offset, max_bytes=1 << 20) as piece:
        records = memoryview(piece.read_bytes())
    return PartitionFetched(0, high_watermark=high_watermark, log_start_offset=leader.log_start_offset, records=records)


def follow(leader: PartitionLog, follower: HostedPartition, *, rounds: int = 6) -> None:
    for _ in range(rounds):
        fetched, kept_bytes = answer_of(leader, follower, high_watermark=leader.log_end_offset), 0
        if truncation_wanted(follower, fetched) is not None:
            from_offset = where_histories_part(follower, EpochEnd(*fetched.diverging_epoch))
            kept_bytes = asyncio.run(CUTS.keep(follower.log, from_offset))
        apply_answer(REPLICAS, follower, fetched, now_ms=NOW_MS, kept_bytes=kept_bytes)


def test_records_are_appended_with_the_leaders_offsets_and_epochs(tmp_path: Path) -> None:
    leader, follower = filled(tmp_path / "l", 1, 1, 4), follower_of(filled(tmp_path / "f"))
    follow(leader, follower, rounds=1)
    assert read_all(follower.log) == read_all(leader)
    assert follower.log.high_watermark == follower.state.high_watermark == 3


def test_the_high_watermark_stays_within_what_is_here(tmp_path: Path) -> None:
    leader, follower = filled(tmp_path / "l", 1, 1), follower_of(filled(tmp_path / "f"))
    apply_answer(REPLICAS, follower, answer_of(leader, follower, high_watermark=50), now_ms=NOW_MS)
    assert follower.state.high_watermark == 2


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ((1, 1, 1), (1, 4)),
        ((1, 1, 2, 2), (1, 1, 3)),
        ((1, 2, 2, 5, 5), (1, 2, 3, 3, 3, 6)),
        ((2, 2), (4,)),
        ((1, 3, 3, 3), (1, 2, 2, 4)),
        # a leader that takes no writes, as at a passive site, begins no epoch of its own
        ((1, 1, 7, 7), (1, 1)),
        ((1, 6, 7), (1, 1, 1, 1)),
    ],
)
def test_a_log_that_went_another_way_ends_equal_to_the_leaders(
    tmp_path: Path, here: tuple[int, ...], there: tuple[int, ...]
) -> None:
    leader, follower = filled(tmp_path / "l", *there), follower_of(filled(tmp_path / "f", *here))
    follow(leader, follower)
    assert read_all(follower.log) == read_all(leader)
    assert follower.state.log_end_offset == leader.log_end_offset


def test_a_leader_without_epochs_names_no_difference_but_its_offsets(tmp_path: Path) -> None:
    leader, follower = filled(tmp_path / "l", 1, 1, 1), follower_of(filled(tmp_path / "f", 1, 1, 2))
    leader.truncate_fully_and_start_at(3)
    follow(leader, follower, rounds=1)
    assert follower.log.log_start_offset == leader.log_start_offset == 3


def test_a_leader_that_wrote_nothing_follows_without_its_empty_epoch(tmp_path: Path) -> None:
    leader, follower = filled(tmp_path / "l", 1, 1, 1), follower_of(filled(tmp_path / "f", 1, 1))
    follower.log.start_leader_epoch(7)
    assert (follower.log.latest_epoch, follower.last_record_epoch) == (7, 1)
    with pytest.raises(BatchRejected):
        follow(leader, follower, rounds=1)
    follower.log.truncate_to(follower.log.log_end_offset)
    follow(leader, follower, rounds=1)
    assert read_all(follower.log) == read_all(leader)


def test_a_cut_below_the_high_watermark_takes_it_along(tmp_path: Path) -> None:
    follower = follower_of(filled(tmp_path / "f", 1, 1, 1, 1))
    follower.state.follow_high_watermark(4)
    follower.log.advance_high_watermark(4)
    truncate_where_histories_differ(REPLICAS, follower, EpochEnd(1, 2), now_ms=NOW_MS)  # type: ignore[arg-type]
    assert (follower.log.log_end_offset, follower.log.high_watermark, follower.state.high_watermark) == (2, 2, 2)


def test_a_follower_below_the_leaders_start_begins_anew_there(tmp_path: Path) -> None:
    follower = follower_of(filled(tmp_path / "f", 1, 1))
    found = resume_out_of_range(leader_start=40, leader_end=50, log_end_offset=2)
    resume_in_range(REPLICAS, follower, found, now_ms=NOW_MS)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (40, 40)
    assert (follower.state.log_end_offset, follower.state.high_watermark) == (40, 40)


def test_the_log_start_follows_the_leaders_up_to_the_high_watermark(tmp_path: Path) -> None:
    leader, follower = filled(tmp_path / "l", 1, 1, 1), follower_of(filled(tmp_path / "f"))
    follow(leader, follower, rounds=1)
    leader.advance_high_watermark(3)
    leader.advance_log_start_offset(2)
    follow(leader, follower, rounds=1)
    assert follower.log.log_start_offset == 2


def compacted_past(path: Path, common_end: int) -> PartitionLog:
    """A log whose records up to `common_end` are of epoch 1. A pass has removed one of them,
    because its key has a record of epoch 2.
    """
    topic = LogConfig(is_compacted=True, is_deleted=False, segment_bytes=200, segment_ms=10**12)
    log: PartitionLog = open_log(path, config=topic)
    for number in range(common_end + 8):
        record = (b"k", b"%d" % number) if number in (0, common_end) else (b"%d" % number, b"v")
        epoch = 1 if number < common_end else 2
        log.append_as_leader(batch([record], timestamp_ms=NOW_MS), leader_epoch=epoch, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.flush_now()
    plan = plan_compaction(log, NOW_MS)
    assert plan is not None
    disk = RealDisk()
    assert asyncio.run(swap_in(log, plan, clean(plan, disk), DescriptorCache(disk), NOW_MS))
    assert log.compacted_to > common_end
    assert data_records(log)[0].offset > 0
    return log


def opened_store(path: Path) -> LogStore:
    path.mkdir(exist_ok=True)
    store = LogStore([str(path)], RealDisk(), now_ms=lambda: NOW_MS)
    store.open(node_id=1, cluster_id="c")
    store.load(lambda topic: LogConfig())
    return store


def leader_of_common(path: Path, common_end: int) -> PartitionLog:
    """The leader's log: the same records of epoch 1, and one of a later epoch."""
    log: PartitionLog = open_log(path)
    for number in range(common_end + 1):
        record = (b"k", b"0") if number == 0 else (b"%d" % number, b"v")
        epoch = 1 if number < common_end else 5
        log.append_as_leader(batch([record], timestamp_ms=NOW_MS), leader_epoch=epoch, now_ms=NOW_MS)
    return log


@pytest.mark.parametrize(("isr", "is_copy"), [((2, 1), True), ((2,), False)])
def test_a_log_that_was_compacted_past_its_truncation_is_copied_anew(
    tmp_path: Path, isr: tuple[int, ...], is_copy: bool
) -> None:
    leader, follower = leader_of_common(tmp_path / "l", 6), follower_of(compacted_past(tmp_path / "f", 6), isr=isr)
    follower.is_copy = is_copy
    former = CUTS.total
    follow(leader, follower)
    assert data_records(follower.log) == data_records(leader)
    assert follower.state.log_end_offset == leader.log_end_offset
    # the records of epoch 2; those below are at the leader
    assert CUTS.total.records - former.records == 8
    assert CUTS.total.bytes - former.bytes == CUTS.total.kept_bytes - former.kept_bytes > 0


def test_a_log_that_was_compacted_past_the_end_of_the_leader_s_is_copied_anew(tmp_path: Path) -> None:
    leader, follower = leader_of_common(tmp_path / "l", 6), follower_of(compacted_past(tmp_path / "f", 6), isr=(2,))
    leader.truncate_to(6)
    found = resume_out_of_range(leader_start=0, leader_end=6, log_end_offset=follower.log.log_end_offset)
    resume_in_range(REPLICAS, follower, found, now_ms=NOW_MS)
    follow(leader, follower)
    assert data_records(follower.log) == data_records(leader)


def test_a_replica_in_sync_that_may_lead_next_is_not_emptied_for_a_new_copy(tmp_path: Path) -> None:
    leader, follower = leader_of_common(tmp_path / "l", 6), follower_of(compacted_past(tmp_path / "f", 6))
    follow(leader, follower, rounds=1)
    assert follower.log.log_end_offset == 6


def test_a_new_copy_of_a_compacted_log_knows_that_it_lacks_records(tmp_path: Path) -> None:
    former, leader = compacted_past(tmp_path / "o", 6), leader_of_common(tmp_path / "l", 6)
    follower = follower_of(open_log(tmp_path / "f"), isr=(2,))
    follow(former, follower)
    assert data_records(follower.log) == data_records(former)
    # an unclean election: this leader has the removed record, and not the newer one
    follow(leader, follower)
    assert data_records(follower.log) == data_records(leader)


def test_a_copy_of_a_whole_log_lacks_no_records(tmp_path: Path) -> None:
    leader, follower = filled(tmp_path / "l", 1, 1, 1, 1), follower_of(filled(tmp_path / "f"), isr=(2,))
    follow(leader, follower)
    assert follower.log.whole_end_below(2) == 2


@pytest.mark.parametrize("saved", ["nothing", "everything", "recovery points", "all but one", "a clean stop"])
async def test_a_copy_of_a_compacted_log_knows_after_a_crash_that_it_lacks_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: str
) -> None:
    (tmp_path / "o").mkdir()
    former = await asyncio.to_thread(compacted_past, tmp_path / "o" / "t-0", 6)
    store = opened_store(tmp_path / "d")
    log = store.open_or_create("t", 0, topic_id=bytes(16), config=LogConfig(segment_bytes=100))
    follow(former, follower_of(log))
    thinned_to = log.thinned_to
    assert thinned_to == former.log_end_offset
    await log.flush()
    if saved == "all but one":
        monkeypatch.setattr("broker.log.directories.log_store.THINNED_PER_CHECKPOINT", 0)
    if saved in ("everything", "all but one"):
        await store.checkpoint()
    if saved == "recovery points":
        # as the truncation of another log in the directory does
        store.directories[0].checkpoint_now(checkpoints.RECOVERY_POINTS)
    if saved == "a clean stop":
        store.close()
    else:
        store.abandon()
    log = opened_store(tmp_path / "d").get("t", 0)
    assert log is not None
    assert log.thinned_to == thinned_to
    assert log.whole_end_below(6) == 0


async def test_a_copy_whose_source_is_compacted_further_knows_it_after_a_crash(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    log = store.open_or_create("t", 0, topic_id=bytes(16), config=LogConfig())
    for base_offset, source_end in ((5, 100), (50, 200)):
        records = batch([b"v"], base_offset=base_offset, leader_epoch=1, timestamp_ms=NOW_MS)
        log.append_replicated(records, now_ms=NOW_MS)
        log.note_copied(source_end)
        await log.flush()
        if source_end == 100:
            await store.checkpoint()
            assert log.recovery_point_to_save == 6
    store.directories[0].checkpoint_now(checkpoints.RECOVERY_POINTS)
    store.abandon()
    again = opened_store(tmp_path).get("t", 0)
    assert again is not None
    # the leader's next answer names the end of the source
    assert again.has_new_holes
    again.note_copied(200)
    assert again.thinned_to == 200
