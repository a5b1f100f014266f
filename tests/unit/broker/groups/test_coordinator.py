"""The coordinator over an in-memory log: leadership, loading, failed commits, linked groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.consumer_protocol.consumer_groups import MemberHeartbeat
from broker.groups.core.group_messages import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    JoinGroup,
    MirrorOffsets,
    PartitionsReply,
    SyncGroup,
)
from broker.groups.core.group_states import AssignmentProtocol, GroupState
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.metadata.core.cluster_image import ClusterImage, group_partition
from broker.metadata.core.image_updates import apply_batch, confirm_link
from broker.replication.hosted_partition import PartitionFailure
from broker.site.group_reports import GroupReports
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from wire.batches.consumer_protocol import Subscription, encode_subscription
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.record_batch import iterate_headers
from wire.batches.records import Record, encode_batch
from wire.control.broker_pb2 import ControlBatch, DeletedTopic
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, TopicInfo
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import SyncReport

PARTITIONS = 4
GROUP = "billing"
HOME = group_partition(GROUP, PARTITIONS)
T0 = TopicPartition("t", 0)
LIMITS = GroupLimits(initial_rebalance_delay_ms=0, offsets_retention_ms=1000)


def link(
    *, active: str = "a", epoch: int = 1, phase: LinkPhase = LinkPhase.MIRRORING, is_routed: bool = True
) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        epoch=epoch,
        active_site=active,
        phase=phase,
        group_whitelist=[GROUP],
        topic_whitelist=["t"],
        is_routed=is_routed,
    )


class Site:
    """A coordinator of site a that leads all partitions, with its log and image."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.log = MemoryLog()
        self.log.epochs = dict.fromkeys(range(PARTITIONS), 1)
        partitions = [PartitionState(partition=index, leader=1) for index in range(PARTITIONS)]
        batch = ControlBatch(
            is_full=True,
            brokers=[BrokerInfo(node_id=1)],
            topics=[
                TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=partitions),
                TopicInfo(name="t", topic_id=b"t" * 16, partitions=partitions[:1]),
            ],
        )
        self.image = apply_batch(ClusterImage(site="a", node_id=1), batch)
        self.coordinator = self.made()

    def made(self) -> GroupCoordinator:
        return GroupCoordinator(LIMITS, self.log, ImageRouting(lambda: self.image), self.clock)

    async def loaded(self) -> None:
        self.coordinator.refresh_leadership()
        await eventually(lambda: not self.coordinator.is_loading)

    async def change(self, batch: ControlBatch) -> None:
        before, self.image = self.image, apply_batch(self.image, batch)
        await self.coordinator.on_image(before, self.image)

    async def link(self, record: LinkRecord) -> None:
        await self.change(ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[record]))

    async def commit(self, offset: int, **values: Any) -> ErrorCode:
        command = CommitOffsets(group_id=GROUP, offsets={T0: CommittedOffset(offset, 3, "")}, **values)
        return outcome(await self.coordinator.commit(command))

    def committed(self, *, is_own_tool: bool = True) -> int | None:
        found = self.coordinator.offsets_of(GROUP, is_own_tool=is_own_tool).get(T0)
        return None if found is None else found.offset

    def committed_or_none(self) -> int | None:
        try:
            return self.committed()
        except CoordinatorRefusal:
            return None

    def join(self, member_id: str = "", *, topics: tuple[str, ...] = ("t",)) -> asyncio.Task[Any]:
        command = JoinGroup(
            group_id=GROUP,
            member_id=member_id,
            fresh_member_id="m-1",
            group_instance_id=None,
            client_id="m",
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(AssignmentProtocol("range", encode_subscription(Subscription(1, topics, {}))),),
            requires_known_member=False,
            may_skip_assignment=True,
        )
        return asyncio.ensure_future(self.coordinator.join(command))

    def sync(self, generation: int = 1) -> asyncio.Task[Any]:
        command = SyncGroup(
            group_id=GROUP,
            member_id="m-1",
            group_instance_id=None,
            generation=generation,
            protocol_type=None,
            protocol=None,
            assignments={"m-1": b"all"},
        )
        return asyncio.ensure_future(self.coordinator.sync(command))

    async def with_member(self, *, topics: tuple[str, ...] = ("t",)) -> None:
        await self.join(topics=topics)
        assert (await self.sync()).assignment == b"all"


def outcome(reply: PartitionsReply) -> ErrorCode:
    return reply.error if reply.error is not ErrorCode.none else reply.errors[T0]


async def refusal(work: Any) -> ErrorCode:
    with pytest.raises(CoordinatorRefusal) as refused:
        await work
    return refused.value.code


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


async def test_who_does_not_lead_the_partition_is_not_the_coordinator(site: Site) -> None:
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


async def test_what_one_decision_writes_is_not_spread_over_batches_by_others(site: Site) -> None:
    """A log is cut between batches: half a decision must not be what is left of it."""
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


async def test_the_passive_site_sends_clients_away_and_takes_the_mirrors_offsets(site: Site) -> None:
    await site.loaded()
    await site.link(link(active="b", epoch=3))
    assert await refusal(site.commit(1)) is ErrorCode.not_coordinator
    assert await refusal(site.join()) is ErrorCode.not_coordinator
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})

    def mirror(link_name: str, epoch: int) -> Any:
        return site.coordinator.commit_mirrored(mirrored, link=link_name, link_epoch=epoch)

    assert outcome(await mirror("a-b", 3)) is ErrorCode.none
    assert await refusal(mirror("a-b", 2)) is ErrorCode.fenced_leader_epoch
    assert await refusal(mirror("a-b", 4)) is ErrorCode.unknown_leader_epoch
    assert await refusal(mirror("x", 3)) is ErrorCode.unknown_leader_epoch
    assert site.committed() == 9
    with pytest.raises(CoordinatorRefusal):
        site.committed(is_own_tool=False)
    assert [group.group_id for group in site.coordinator.list_groups(is_own_tool=True)] == [GROUP]
    assert not list(site.coordinator.list_groups(is_own_tool=False))


async def test_offsets_that_a_link_brings_live_as_long_as_at_the_active_site_and_grow_old_from_a_promotion_on(
    site: Site,
) -> None:
    """M3: at the standby nobody moves the offset of a quiet partition, and its group has no members
    there.
    """
    await site.loaded()
    await site.link(link(active="b", epoch=3))
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=3)
    site.clock.advance(5000)
    await site.coordinator.expire_offsets()
    assert site.committed() == 9
    promoted = link(active="a", epoch=4)
    promoted.updated_at_ms = site.clock.now_ms()
    await site.link(promoted)
    site.image = confirm_link(site.image, "a-b", 4) or site.image
    for _ in range(2):
        await site.coordinator.expire_offsets()
        assert site.committed() == 9
        site.clock.advance(500)
    await site.coordinator.expire_offsets()
    await eventually(lambda: site.committed() is None)


async def test_what_the_active_site_has_forgotten_its_mirror_has_forgotten_here(site: Site) -> None:
    await site.loaded()
    await site.link(link(active="b", epoch=3))
    t1 = TopicPartition("t", 1)

    async def mirror(**offsets: int) -> None:
        places = {"t0": T0, "t1": t1}
        wanted = {places[name]: CommittedOffset(offset, -1, "") for name, offset in offsets.items()}
        mirrored = MirrorOffsets(group_id=GROUP, offsets=wanted)
        reply = await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=3)
        assert dict(reply.errors) == dict.fromkeys(wanted, ErrorCode.none)

    await mirror(t0=9, t1=4)
    await mirror(t0=-1)
    assert site.coordinator.offsets_of(GROUP, is_own_tool=True).keys() == {t1}
    await mirror(t0=-1, t1=-1)
    assert not site.coordinator.offsets_of(GROUP, is_own_tool=True)
    assert not list(site.coordinator.list_groups(is_own_tool=True))
    await mirror(t0=10)
    await mirror(t0=-1, t1=3)
    assert site.coordinator.offsets_of(GROUP, is_own_tool=True).keys() == {t1}


async def test_an_active_site_takes_no_mirrors_offsets(site: Site) -> None:
    await site.loaded()
    await site.link(link(epoch=3))
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    refused = site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=3)
    assert await refusal(refused) is ErrorCode.not_coordinator


async def test_members_are_evicted_when_the_other_site_becomes_active(site: Site) -> None:
    await site.loaded()
    await site.link(link(epoch=1))
    await site.with_member()
    await site.link(link(active="b", epoch=2))
    assert await refusal(site.sync()) is ErrorCode.not_coordinator

    def is_empty() -> bool:
        found = site.coordinator.describe(GROUP, is_own_tool=True)
        return found is not None and found.state is GroupState.EMPTY

    await eventually(is_empty)
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    assert outcome(await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=2)) is ErrorCode.none


async def test_members_found_in_a_passive_sites_log_are_evicted(site: Site) -> None:
    await site.loaded()
    await site.with_member()
    await site.coordinator.stop()
    site.image = replace(site.image, links={"a-b": link(active="b", epoch=2)})
    site.coordinator = site.made()
    await site.loaded()

    def is_empty() -> bool:
        found = site.coordinator.describe(GROUP, is_own_tool=True)
        return found is not None and found.state is GroupState.EMPTY

    await eventually(is_empty)


@pytest.mark.parametrize("phase", [LinkPhase.MIRRORING, LinkPhase.FENCED])
async def test_an_unconfirmed_or_fenced_site_commits_nothing_and_keeps_its_members(
    site: Site, phase: LinkPhase
) -> None:
    await site.loaded()
    await site.with_member()
    await site.link(link(phase=phase))
    assert await refusal(site.commit(1, member_id="m-1", generation=1)) is ErrorCode.coordinator_load_in_progress
    if phase is LinkPhase.MIRRORING:
        confirmed = confirm_link(site.image, "a-b", 1)
        assert confirmed is not None
        site.image = confirmed
        assert await site.commit(1, member_id="m-1", generation=1) is ErrorCode.none


async def test_nobody_joins_a_group_under_a_fence(site: Site) -> None:
    await site.loaded()
    await site.link(link(phase=LinkPhase.FENCED))
    assert await refusal(site.join()) is ErrorCode.coordinator_load_in_progress


async def test_the_groups_of_a_link_are_told_with_every_commit_that_was_taken(site: Site) -> None:
    await site.loaded()
    await site.link(link(is_routed=False))
    transactions = TransactionCoordinator(
        TransactionLimits(),
        MemoryLog(),
        TransactionRouting(lambda: site.image),
        site.clock,
        producer_ids=None,  # type: ignore[arg-type]
        markers=None,  # type: ignore[arg-type]
    )
    reports = GroupReports(lambda: site.image, site.coordinator, transactions, site.clock)
    carried = CommitOffsets(group_id=GROUP, offsets={T0: CommittedOffset(7, 3, "")})
    other = CommitOffsets(group_id="not carried", offsets={T0: CommittedOffset(8, 3, "")})
    confirmed = confirm_link(site.image, "a-b", 1)
    assert confirmed is not None
    site.image = confirmed
    begun = [site.coordinator.commit(command) for command in (carried, other)]
    for ago_ms in (50, 70):
        reports.note_report("a-b", SyncReport(synced_at_ms=1, synced_ms_ago=ago_ms), link_epoch=1)
    reported = await reports.describe("a-b")
    assert all(commit.done() for commit in begun)
    assert [(group.group, [item.offset for item in group.offsets]) for group in reported.groups] == [(GROUP, [7])]
    assert (list(reported.partitions), reported.partition_count) == (list(range(PARTITIONS)), PARTITIONS)
    assert set(reported.synced_ms_ago) == {50}
    assert not (await reports.describe("unknown")).groups


async def test_a_passive_site_that_is_not_routed_answers_for_itself(site: Site) -> None:
    await site.loaded()
    await site.link(link(active="b", is_routed=False))
    assert await site.commit(5) is ErrorCode.none
    assert site.committed(is_own_tool=False) == 5


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
async def test_what_heartbeats_built_upon_is_forgotten_when_its_append_fails(site: Site, is_appended: bool) -> None:
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
async def test_who_waits_for_an_append_that_breaks_is_told_and_the_partition_is_loaded_again(
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
