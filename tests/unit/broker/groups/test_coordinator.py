"""The coordinator over an in-memory log: leadership, loading, failed commits, expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.core.consumer_protocol.consumer_groups import MemberHeartbeat
from broker.groups.core.group_messages import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
)
from broker.groups.core.group_states import GroupState
from broker.metadata.core.cluster_image import group_partition
from broker.replication.hosted_partition import PartitionFailure
from runtime.supervision import deaths
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.coordinator_site import GROUP, PARTITIONS, Site, refusal
from wire.batches.record_batch import iterate_headers
from wire.batches.records import Record, encode_batch
from wire.control.broker_pb2 import ControlBatch, DeletedTopic
from wire.control.cluster_pb2 import BrokerInfo
from wire.protocol.ids import TopicPartition

HOME = group_partition(GROUP, PARTITIONS)


@pytest.fixture
async def site(clock: ManualClock) -> AsyncIterator[Site]:
    made = Site(clock)
    yield made
    await made.coordinator.stop()
    assert made.coordinator.timer_count == 0


async def test_a_partition_answers_once_it_is_loaded(site: Site) -> None:
    site.log.gate.clear()
    site.coordinator.refresh_leadership()
    assert await refusal(site.commit(1)) is ErrorCode.coordinator_load_in_progress
    assert site.coordinator.is_loading
    site.log.gate.set()
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none


async def test_a_broker_that_does_not_lead_the_partition_is_not_the_coordinator(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    del site.log.epochs[HOME]
    site.coordinator.refresh_leadership()
    assert await refusal(site.commit(2)) is ErrorCode.not_coordinator
    site.log.epochs[HOME] = 2
    await site.loaded()
    assert site.committed() == 1


async def test_an_offset_is_answered_only_once_it_is_committed(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    site.log.gate.clear()
    commits = [asyncio.ensure_future(site.commit(offset)) for offset in (2, 3, 4)]
    await eventually(lambda: site.log.append_count == 2)
    assert site.committed() == 1
    assert not any(commit.done() for commit in commits)
    site.log.gate.set()
    assert await asyncio.gather(*commits) == [ErrorCode.none] * 3
    assert site.committed() == 4


async def test_commits_that_come_together_share_a_batch(site: Site) -> None:
    await site.loaded()
    assert await asyncio.gather(*(site.commit(offset) for offset in range(50))) == [ErrorCode.none] * 50
    assert site.log.append_count == 1
    assert len(site.log.records(HOME)) == 50
    (batches,) = site.log.appends[HOME]
    assert len(list(iterate_headers(batches))) == 1


async def test_the_records_of_one_decision_are_not_spread_over_batches_by_others(site: Site) -> None:
    """A log is truncated between batches: a truncation must not leave half of a decision."""
    await site.loaded()
    metadata = "m" * 4000
    many = {TopicPartition("t", index): CommittedOffset(1, 3, metadata) for index in range(100)}
    commands = [CommitOffsets(group_id=GROUP, offsets=many) for _ in range(2)]
    await asyncio.gather(*(site.coordinator.commit(command) for command in commands))
    (batches,) = site.log.appends[HOME]
    assert [header.record_count for _, header in iterate_headers(batches)] == [100, 100]


@pytest.mark.parametrize("is_appended", [False, True])
async def test_a_failed_append_is_settled_by_reading_the_log_again(site: Site, is_appended: bool) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    site.log.failures.append((ErrorCode.request_timed_out, is_appended))
    assert await refusal(site.commit(2)) is ErrorCode.coordinator_not_available
    assert await refusal(site.commit(3)) is ErrorCode.not_coordinator
    await eventually(lambda: site.committed_or_none() == (2 if is_appended else 1))


async def test_a_lost_leadership_sends_those_who_wait_elsewhere(site: Site) -> None:
    await site.loaded()
    parked = site.join()
    site.log.gate.clear()
    commit = asyncio.ensure_future(site.coordinator.delete_group(DeleteGroup(group_id="other")))
    await asyncio.sleep(0)
    del site.log.epochs[HOME]
    site.coordinator.refresh_leadership()
    assert await refusal(parked) is ErrorCode.not_coordinator
    site.log.gate.set()
    assert (await commit).error is ErrorCode.group_id_not_found


async def test_members_and_offsets_survive_a_new_coordinator(site: Site) -> None:
    await site.loaded()
    await site.with_member()
    assert await site.commit(7, member_id="m-1", generation=1) is ErrorCode.none
    await site.coordinator.stop()
    site.coordinator = site.made()
    await site.loaded()
    found = site.coordinator.describe(GROUP, is_own_tool=False)
    assert found is not None
    assert (found.state, found.members["m-1"].assignment) == (GroupState.STABLE, b"all")
    assert site.coordinator.timer_count == 1
    site.clock.advance(10_000)
    shard = site.coordinator._led.shards[HOME]
    shard.timers.run_due()
    await shard.settled()
    found = site.coordinator.describe(GROUP, is_own_tool=False)
    assert found is not None
    assert found.state is GroupState.EMPTY


async def test_a_record_that_cannot_be_read_is_passed_over(site: Site) -> None:
    strange = [Record(b"\0\1\0\x09g", b""), Record(None, b"no key"), Record(b"\0\7later kind", b"")]
    site.log.appends[HOME] = [encode_batch(strange)]
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none


async def test_a_command_waits_for_the_write_before_it(site: Site) -> None:
    await site.loaded()
    site.log.gate.clear()
    commit = asyncio.ensure_future(site.commit(1))
    await eventually(lambda: site.log.append_count == 1)
    deletion = asyncio.ensure_future(site.coordinator.delete_group(DeleteGroup(group_id=GROUP)))
    after = asyncio.ensure_future(site.commit(2))
    site.log.gate.set()
    assert await commit is ErrorCode.none
    assert (await deletion).error is ErrorCode.none
    assert await after is ErrorCode.none
    assert site.committed() == 2
    await site.coordinator.stop()
    site.coordinator = site.made()
    await site.loaded()
    assert site.committed() == 2


async def test_a_client_that_goes_away_leaves_nothing_behind(site: Site) -> None:
    await site.loaded()
    parked = site.join()
    await asyncio.sleep(0)
    requests = site.coordinator._led.shards[HOME]._requests
    assert requests
    parked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await parked
    assert not requests


async def test_offsets_of_a_deleted_topic_are_forgotten(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    gone = DeletedTopic(name="t", topic_id=b"t" * 16)
    await site.change(ControlBatch(brokers=[BrokerInfo(node_id=1)], deleted_topics=[gone]))
    await eventually(lambda: site.committed() is None)
    assert site.coordinator.describe(GROUP, is_own_tool=False) is None


async def test_a_topic_that_is_deleted_during_a_groups_first_commit_leaves_no_offset(site: Site) -> None:
    await site.loaded()
    site.log.gate.clear()
    commit = asyncio.ensure_future(site.commit(1))
    await eventually(lambda: site.log.append_count == 1)
    gone = DeletedTopic(name="t", topic_id=b"t" * 16)
    await site.change(ControlBatch(brokers=[BrokerInfo(node_id=1)], deleted_topics=[gone]))
    site.log.gate.set()
    assert await commit is ErrorCode.none
    await eventually(lambda: site.committed() is None)


async def test_a_topic_that_is_deleted_during_the_load_leaves_no_offsets(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    site.log.epochs[HOME] = 2
    site.log.gate.clear()
    site.coordinator.refresh_leadership()
    gone = DeletedTopic(name="t", topic_id=b"t" * 16)
    await site.change(ControlBatch(brokers=[BrokerInfo(node_id=1)], deleted_topics=[gone]))
    site.log.gate.set()
    await site.loaded()
    await eventually(lambda: site.committed() is None)


@pytest.mark.parametrize("is_led_anew", [False, True], ids=["load fails", "next leader epoch"])
async def test_a_topic_that_is_deleted_during_a_load_in_vain_leaves_no_offsets(site: Site, is_led_anew: bool) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    site.log.epochs[HOME] = 2
    site.log.gate.clear()
    site.coordinator.refresh_leadership()
    gone = DeletedTopic(name="t", topic_id=b"t" * 16)
    await site.change(ControlBatch(brokers=[BrokerInfo(node_id=1)], deleted_topics=[gone]))
    if is_led_anew:
        site.log.epochs[HOME] = 3
        site.coordinator.refresh_leadership()
    else:
        site.log.load_failures.append(ErrorCode.kafka_storage_error)
    site.log.gate.set()
    await eventually(lambda: not site.log.load_failures and HOME in site.coordinator.loaded_partitions)
    await eventually(lambda: site.committed() is None)


async def test_a_leadership_that_is_lost_during_the_load_is_no_defect(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    died = deaths()
    site.log.epochs[HOME] = 2
    site.log.gate.clear()
    site.coordinator.refresh_leadership()
    shard, loads = site.coordinator._led.shards[HOME], tuple(site.coordinator._led._tasks)
    await asyncio.sleep(0)
    del site.log.epochs[HOME]
    site.coordinator.refresh_leadership()
    site.log.gate.set()
    await asyncio.gather(*loads)
    assert (shard.is_loaded, deaths()) == (False, died)


async def test_old_offsets_expire(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    site.clock.advance(1001)
    await site.coordinator.expire_offsets()
    await eventually(lambda: site.committed() is None)
    assert site.log.records(HOME)[-1][1] is None


async def test_a_living_groups_old_offsets_expire_once_it_does_not_read_the_topic(site: Site) -> None:
    await site.loaded()
    assert await site.commit(1) is ErrorCode.none
    await site.with_member()
    site.clock.advance(1001)
    await site.coordinator.expire_offsets()
    assert await site.commit(2, member_id="m-1", generation=1) is ErrorCode.none
    site.clock.advance(1001)
    await site.coordinator.expire_offsets()
    await site.join("m-1", topics=("u",))
    assert site.committed() == 2
    await site.sync(2)
    await site.coordinator.expire_offsets()
    await eventually(lambda: site.committed() is None)
    assert site.coordinator.describe(GROUP, is_own_tool=False) is not None


def said(member_id: str) -> MemberHeartbeat:
    return MemberHeartbeat(
        member_id=member_id,
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        client_id=member_id,
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        topic_names=("t",),
        topic_regex=None,
        server_assignor=None,
        owned=frozenset(),
    )


async def test_heartbeats_of_many_members_share_appends_and_are_answered_once_they_are_in_the_log(site: Site) -> None:
    await site.loaded()
    site.log.gate.clear()
    beats = [asyncio.ensure_future(site.coordinator.consumer_heartbeat("new", said(f"m-{n}"))) for n in range(50)]
    await eventually(lambda: site.log.append_count == 1)
    assert not any(beat.done() for beat in beats)
    site.log.gate.set()
    replies = await asyncio.gather(*beats)
    assert {reply.error for reply in replies} == {ErrorCode.none}
    assert [reply.member_epoch for reply in replies] == list(range(1, 51))
    assert site.log.append_count == 1


async def test_a_heartbeat_that_changes_nothing_is_not_answered_before_what_it_was_built_upon_is_in_the_log(
    site: Site,
) -> None:
    await site.loaded()
    site.log.gate.clear()
    joining = asyncio.ensure_future(site.coordinator.consumer_heartbeat("new", said("m")))
    await eventually(lambda: site.log.append_count == 1)
    repeated = replace(said("m"), member_epoch=1)
    repeating = [asyncio.ensure_future(site.coordinator.consumer_heartbeat("new", repeated)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(beat.done() for beat in (joining, *repeating))
    site.log.gate.set()
    replies = await asyncio.gather(joining, *repeating)
    assert [(reply.error, reply.member_epoch) for reply in replies] == [(ErrorCode.none, 1)] * 3
    assert site.log.append_count == 1


@pytest.mark.parametrize("is_appended", [False, True])
async def test_the_state_that_heartbeats_built_upon_is_forgotten_when_its_append_fails(
    site: Site, is_appended: bool
) -> None:
    await site.loaded()
    site.log.failures.append((ErrorCode.request_timed_out, is_appended))
    beats = [asyncio.ensure_future(refusal(site.coordinator.consumer_heartbeat("new", said(f"m-{n}")))) for n in (1, 2)]
    assert await asyncio.gather(*beats) == [ErrorCode.coordinator_not_available] * 2

    def is_read_again() -> bool:
        try:
            found = site.coordinator._readable_shard("new", is_own_tool=False).groups.consumers("new")
        except CoordinatorRefusal:
            return False
        assert (found is not None) is is_appended
        return True

    await eventually(is_read_again)


@pytest.mark.parametrize("error", [PartitionFailure(ErrorCode.kafka_storage_error), ValueError("a defect")])
async def test_a_partition_whose_load_failed_for_whatever_reason_is_loaded_again(
    site: Site, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, read_all = iter([error]), site.log.read_all

    async def moody(partition: int) -> AsyncIterator[bytes]:
        for failure in failures if partition == HOME else ():
            raise failure
        async for batches in read_all(partition):
            yield batches

    monkeypatch.setattr(site.log, "read_all", moody)
    await site.loaded()
    await eventually(lambda: HOME in site.coordinator.loaded_partitions)
    assert await site.commit(1) is ErrorCode.none


@pytest.mark.parametrize("error", [ValueError("a defect"), asyncio.CancelledError()])
async def test_waiters_of_a_failed_append_get_an_error_and_the_partition_is_loaded_again(
    site: Site, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.loaded()
    failures, append = iter([error]), site.log.append

    async def moody(partition: int, records: bytes) -> int:
        for failure in failures:
            raise failure
        return await append(partition, records)

    monkeypatch.setattr(site.log, "append", moody)
    assert await asyncio.wait_for(refusal(site.commit(1)), 30) is ErrorCode.coordinator_not_available
    await eventually(lambda: HOME in site.coordinator.loaded_partitions)
    assert await site.commit(2) is ErrorCode.none
