"""QuarantineRecords and Quarantine as their handlers answer them: the mirrors that may ask, the
records that are kept, and the way an operator reads them.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.links import quarantine, quarantine_records
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.hosted_partition import HostedPartition
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from wire.batches.records import decode_records
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.messages.quarantine_messages import DELETE, LIST, READ

TOPIC_ID = uuid.UUID(int=7)
FLOOR = 16
LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="a",
    epoch=3,
    phase=LinkPhase.MIRRORING,
    is_routed=True,
    topic_whitelist=[".*"],
)


def doors_at(directory: Path, *values: bytes, bytes_max: int = 1 << 20) -> Any:
    """The parts that the handlers use, of a broker of site b that leads t-0."""
    log = open_log(directory / "t-0")
    for value in values:
        log.append_as_leader(batch([value], timestamp_ms=NOW_MS), leader_epoch=1, now_ms=NOW_MS)
    state = Partition(node_id=1, log_end_offset=log.log_end_offset)
    state.change(
        PartitionImage(index=0, leader=1, leader_epoch=2, partition_epoch=0, replicas=(1,), isr=(1,)), now_ms=0
    )
    hosted = HostedPartition(
        topic="t", topic_id=TOPIC_ID.bytes, index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )
    image = apply_batch(ClusterImage(site="b", node_id=1), ControlBatch(is_full=True, links=[LINK]))
    replicas = SimpleNamespace(
        find=lambda topic, index: hosted if (topic, index) == ("t", 0) else None,
        cuts=TruncatedRecords(RealDisk(), bytes_max=bytes_max),
    )
    notified: list[HostedPartition] = []
    replicas.act, replicas.notified = lambda changed, _effects: notified.append(changed), notified
    checkpoints: list[int] = []

    async def checkpoint_high_watermarks() -> None:
        checkpoints.append(state.high_watermark)

    logs = SimpleNamespace(
        directories=[SimpleNamespace(path=str(directory))],
        checkpoint_high_watermarks=checkpoint_high_watermarks,
        checkpoints=checkpoints,
    )
    return SimpleNamespace(cluster=Cluster(image), replicas=replicas, clock=ManualClock(), logs=logs)


async def keep(
    doors: Any,
    *,
    first_offset: int = 1,
    link_epoch: int = 3,
    topic_id: uuid.UUID = TOPIC_ID,
    must_truncate: bool = False,
) -> Any:
    partition = SimpleNamespace(index=0, first_offset=first_offset)
    topic = SimpleNamespace(name="t", topic_id=topic_id, partitions=(partition,))
    request = SimpleNamespace(
        link="a-b", link_epoch=link_epoch, reason="histories differ", topics=(topic,), must_truncate=must_truncate
    )
    (outcome,) = (await quarantine_records.handle(request, None, doors)).outcomes  # type: ignore[arg-type]
    return outcome


async def asked(doors: Any, action: int, name: str = "", position: int = 0) -> Any:
    request = SimpleNamespace(action=action, name=name, position=position)
    return await quarantine.handle(request, None, doors)  # type: ignore[arg-type]


async def test_the_end_of_a_log_is_kept_listed_read_and_deleted(tmp_path: Path) -> None:
    doors = doors_at(tmp_path, b"a", b"b", b"c")
    kept = await keep(doors)
    assert (kept.error_code, kept.topic, kept.index) == (ErrorCode.none, "t", 0)
    (entry,) = (await asked(doors, LIST)).entries
    assert (entry.name, entry.first_offset, entry.end_offset) == (kept.name, 1, 3)
    assert (entry.origin_site, entry.link, entry.link_epoch, entry.reason) == ("b", "a-b", 3, "histories differ")
    read = await asked(doors, READ, kept.name)
    assert [record.value for record in decode_records(read.records)] == [b"b", b"c"]
    assert (await asked(doors, READ, kept.name, len(read.records))).records == b""
    assert (await asked(doors, DELETE, kept.name)).error_code is ErrorCode.none
    assert (await asked(doors, LIST)).entries == ()
    gone = await asked(doors, READ, kept.name)
    assert gone.error_code is ErrorCode.resource_not_found
    assert kept.name in gone.error_message


async def test_nothing_is_kept_of_what_is_not_there(tmp_path: Path) -> None:
    doors = doors_at(tmp_path, b"a")
    kept = await keep(doors, first_offset=1)
    assert (kept.error_code, kept.name) == (ErrorCode.none, "")
    assert (await asked(doors, LIST)).entries == ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"link_epoch": 2}, ErrorCode.fenced_leader_epoch),
        ({"link_epoch": 4}, ErrorCode.unknown_leader_epoch),
        ({"topic_id": uuid.UUID(int=8)}, ErrorCode.inconsistent_topic_id),
    ],
)
async def test_a_mirror_that_may_not_change_the_copy_has_nothing_kept(
    tmp_path: Path, options: dict[str, Any], expected: ErrorCode
) -> None:
    doors = doors_at(tmp_path, b"a", b"b")
    assert (await keep(doors, **options)).error_code is expected
    assert (await asked(doors, LIST)).entries == ()


async def test_records_that_do_not_fit_are_refused_with_the_key(tmp_path: Path) -> None:
    refused = await keep(doors_at(tmp_path, b"a", b"b", bytes_max=10))
    assert refused.error_code is ErrorCode.policy_violation
    assert "antipode.truncated.records.max.bytes is 10" in refused.error_message


async def test_an_action_that_is_not_known_is_refused(tmp_path: Path) -> None:
    refused = await asked(doors_at(tmp_path, b"a"), 9)
    assert refused.error_code is ErrorCode.invalid_request
    assert "accepted: 0 (list), 1 (read) and 2 (delete)" in refused.error_message


async def test_a_copy_is_truncated_after_its_end_is_kept(tmp_path: Path) -> None:
    doors = doors_at(tmp_path, b"a", b"b", b"c")
    hosted = doors.replicas.find("t", 0)
    hosted.state.record_append(3)
    hosted.log.advance_high_watermark(hosted.state.high_watermark)
    outcome = await keep(doors, must_truncate=True)
    assert (outcome.error_code, outcome.log_end_offset) == (ErrorCode.none, 1)
    (entry,) = (await asked(doors, LIST)).entries
    assert (entry.name, entry.kind, entry.first_offset, entry.end_offset) == (outcome.name, "reinstated", 1, 3)
    assert [record.value for record in decode_records((await asked(doors, READ, entry.name)).records)] == [
        b"b",
        b"c",
    ]
    assert (hosted.log.log_end_offset, hosted.log.high_watermark) == (1, 1)
    assert (hosted.state.log_end_offset, hosted.state.high_watermark) == (1, 1)
    assert hosted.log.epoch_end_offset(1).end_offset == 1
    assert doors.replicas.notified == [hosted], "followers compare their epochs at once"
    assert doors.logs.checkpoints == [1], "a restart does not take the old high watermark for the new one"
    repeated = await keep(doors, must_truncate=True)
    assert (repeated.error_code, repeated.name, repeated.log_end_offset) == (ErrorCode.none, "", 1)
    assert len((await asked(doors, LIST)).entries) == 1


async def test_a_truncation_that_was_lost_in_a_crash_is_repeated_and_keeps_nothing_twice(tmp_path: Path) -> None:
    doors = doors_at(tmp_path, b"a", b"b", b"c")
    kept = await keep(doors)
    assert kept.log_end_offset == -1
    again = await keep(doors, must_truncate=True)
    assert (again.name, again.log_end_offset) == (kept.name, 1)
    assert len((await asked(doors, LIST)).entries) == 1


async def test_another_end_at_the_same_offsets_is_kept_too(tmp_path: Path) -> None:
    doors = doors_at(tmp_path, b"a", b"b", b"c")
    log = doors.replicas.find("t", 0).log
    await keep(doors, must_truncate=True)
    for value in (b"d", b"e"):
        log.append_as_leader(batch([value], timestamp_ms=NOW_MS), leader_epoch=9, now_ms=NOW_MS)
    second = await keep(doors, must_truncate=True)
    assert second.log_end_offset == 1
    names = {entry.name for entry in (await asked(doors, LIST)).entries}
    assert len(names) == 2
    read = await asked(doors, READ, second.name)
    assert [record.value for record in decode_records(read.records)] == [b"d", b"e"]


async def test_a_copy_is_not_truncated_below_its_start(tmp_path: Path) -> None:
    doors = doors_at(tmp_path, b"a", b"b", b"c")
    log = doors.replicas.find("t", 0).log
    log.advance_high_watermark(3)
    log.advance_log_start_offset(2)
    refused = await keep(doors, must_truncate=True)
    assert refused.error_code is ErrorCode.offset_out_of_range
    assert refused.error_message == "the log starts at 2 and cannot end at 1"
    assert log.log_end_offset == 3


async def test_a_copy_that_was_compacted_together_with_its_own_records_is_not_truncated(tmp_path: Path) -> None:
    """Below the truncated end it would lack the former records of the keys."""
    doors = doors_at(tmp_path, b"a", b"b", b"c")
    log = doors.replicas.find("t", 0).log
    log.thinned_to = 2
    refused = await keep(doors, must_truncate=True)
    assert refused.error_code is ErrorCode.offset_out_of_range
    assert "antipode links reset" in refused.error_message
    assert log.log_end_offset == 3
    assert (await asked(doors, LIST)).entries == ()
    log.thinned_to = 1
    assert (await keep(doors, must_truncate=True)).log_end_offset == 1


async def test_a_copy_that_grows_while_its_end_is_kept_is_not_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = doors_at(tmp_path, b"a", b"b")
    log, quarantined = doors.replicas.find("t", 0).log, doors.replicas.cuts.quarantine
    keep_records = quarantined.keep

    async def kept_and_grown(*arguments: Any, **options: Any) -> Any:
        entry = await keep_records(*arguments, **options)
        log.append_as_leader(batch([b"c"], timestamp_ms=NOW_MS), leader_epoch=1, now_ms=NOW_MS)
        return entry

    monkeypatch.setattr(quarantined, "keep", kept_and_grown)
    refused = await keep(doors, must_truncate=True)
    assert refused.error_code is ErrorCode.offset_out_of_range
    assert log.log_end_offset == 3


async def test_a_copy_whose_site_became_active_meanwhile_is_not_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = doors_at(tmp_path, b"a", b"b")
    log, quarantined = doors.replicas.find("t", 0).log, doors.replicas.cuts.quarantine
    keep_records = quarantined.keep

    async def kept_and_promoted(*arguments: Any, **options: Any) -> Any:
        entry = await keep_records(*arguments, **options)
        promoted = LinkRecord()
        promoted.CopyFrom(LINK)
        promoted.epoch, promoted.active_site = 4, "b"
        doors.cluster.image = apply_batch(doors.cluster.image, ControlBatch(is_full=True, links=[promoted]))
        return entry

    monkeypatch.setattr(quarantined, "keep", kept_and_promoted)
    refused = await keep(doors, must_truncate=True)
    assert refused.error_code is ErrorCode.fenced_leader_epoch
    assert log.log_end_offset == 2


def failing_over(directory: Path) -> Any:
    """The doors of a broker of site b that leads t-0 in sync with broker 2, after a failover to b
    that truncates.
    """
    doors = doors_at(directory, b"a", b"b", b"c")
    state = doors.replicas.find("t", 0).state
    state.change(
        PartitionImage(index=0, leader=1, leader_epoch=FLOOR, partition_epoch=1, replicas=(1, 2), isr=(1, 2)), now_ms=0
    )
    raised = LinkRecord()
    raised.CopyFrom(LINK)
    raised.epoch, raised.active_site, raised.kept_before_ms, raised.leader_epoch_floor = 4, "b", NOW_MS, FLOOR
    image = apply_batch(doors.cluster.image, ControlBatch(is_full=True, links=[raised]))
    return SimpleNamespace(**{**vars(doors), "cluster": Cluster(image)})


async def test_a_failover_is_answered_when_the_in_sync_replicas_have_removed_the_records(tmp_path: Path) -> None:
    """One of them may lead next, and would have the records again."""
    doors = failing_over(tmp_path)
    state = doors.replicas.find("t", 0).state
    truncated = asyncio.Event()
    doors.replicas.act = lambda _hosted, _effects: truncated.set()
    answering = asyncio.create_task(keep(doors, link_epoch=4, must_truncate=True))
    await truncated.wait()
    done, _ = await asyncio.wait({answering}, timeout=5 * quarantine_records.POLL_S)
    assert not done
    state.record_fetch(2, 1, now_ms=1)
    outcome = await answering
    assert (outcome.error_code, outcome.log_end_offset) == (ErrorCode.none, 1)


@pytest.mark.parametrize(("thinned_to", "is_named"), [(2, True), (1, False)])
async def test_a_failover_that_truncates_below_a_compaction_names_the_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, thinned_to: int, is_named: bool
) -> None:
    doors = failing_over(tmp_path)
    hosted = doors.replicas.find("t", 0)
    hosted.log.thinned_to = thinned_to
    doors.replicas.act = lambda _hosted, _effects: hosted.state.record_fetch(2, 1, now_ms=1)
    assert (await keep(doors, link_epoch=4, must_truncate=True)).log_end_offset == 1
    lines = [line for line in caplog.messages if "keys may be missing" in line]
    assert len(lines) == is_named
    assert all("compacted_to=2" in line and "topic=t" in line for line in lines)


async def test_a_replica_that_does_not_follow_a_failover_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine_records, "FOLLOWED_MS_MAX", 0)
    doors = failing_over(tmp_path)
    for _ in range(2):
        refused = await keep(doors, link_epoch=4, must_truncate=True)
        assert refused.error_code is ErrorCode.request_timed_out
        assert refused.error_message == "in-sync replicas may still have the removed records (brokers 2)"
    doors.replicas.find("t", 0).state.record_fetch(2, 1, now_ms=1)
    assert (await keep(doors, link_epoch=4, must_truncate=True)).error_code is ErrorCode.none


async def test_a_leader_that_is_deposed_while_replicas_follow_does_not_confirm_a_failover(tmp_path: Path) -> None:
    doors = failing_over(tmp_path)
    state = doors.replicas.find("t", 0).state
    successor = PartitionImage(index=0, leader=2, leader_epoch=FLOOR + 1, partition_epoch=2, replicas=(1, 2), isr=(2,))
    doors.replicas.act = lambda _hosted, _effects: state.change(successor, now_ms=1)
    refused = await keep(doors, link_epoch=4, must_truncate=True)
    assert refused.error_code is ErrorCode.not_leader_or_follower
