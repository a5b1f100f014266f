"""The standby of a sync link, over real replicas: which partitions are checked with the clock, and
when their reports are wanted although nothing in them is new.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.links import link_progress
from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.loading import load_broker_settings
from broker.site.control_service import BrokerControlService
from dr.agent.core.site_view import SiteFacts
from runtime.disk import RealDisk
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from wire.control.broker_pb2 import ConfirmLinkReply, ConfirmLinkRequest, ControlBatch, EpochRaise, SyncMark
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, TopicInfo
from wire.rules.links import SyncPolicy
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment

PARTITIONS = 3
TIMEOUT_MS = 1_000
PERMIT_UNTIL_MS = 1_000_000


class Active:
    """The broker of a site that is active under a sync link."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        settings = load_broker_settings(
            {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": str(directory), "zookeeper.connect": "none:1"}
        )
        self.cluster = Cluster(ClusterImage(site="a", node_id=1))
        self.logs = LogStore([str(directory)], RealDisk(), now_ms=self.clock.now_ms)
        self.logs.open(node_id=1, cluster_id="c")
        cuts = TruncatedRecords(RealDisk(), bytes_max=0)
        self.replicas = Replicas(settings, self.clock, self.logs, BrokerMetrics(), cuts=cuts)
        self.control = BrokerControlService(
            1,
            self.cluster,
            self.replicas,
            broker_epoch=lambda: 1,
            describe_groups=None,  # type: ignore[arg-type]
            handover=None,  # type: ignore[arg-type]
            clock=self.clock,
        )
        self.logs.load(lambda _: self.replicas.assigned.log_config(SimpleNamespace(name="", configs={})))  # type: ignore[arg-type]

    async def take(
        self,
        policy: SyncPolicy,
        *,
        leader: int = 1,
        leader_epoch: int = 1,
        revision: int = 1,
        epoch: int = 1,
        lease_ms: int = 0,
        made_at_ms: int = 0,
        active_site: str = "a",
    ) -> None:
        """Take an image with the link under this policy; with a lease also a permit."""
        states = [
            PartitionState(
                partition=index,
                leader=leader,
                leader_epoch=leader_epoch,
                partition_epoch=leader_epoch,
                replicas=(1,),
                isr=(1,),
            )
            for index in range(PARTITIONS)
        ]
        link = LinkRecord(
            name="a-b",
            source_site="a",
            target_site="b",
            active_site=active_site,
            phase=LinkPhase.MIRRORING,
            epoch=epoch,
            revision=revision,
            lease_ms=lease_ms,
            made_at_ms=made_at_ms,
            topic_whitelist=["t"],
            sync_policy=policy.value,
            sync_timeout_ms=TIMEOUT_MS,
            sync_bound_ms=500 if policy is SyncPolicy.BOUND else 0,
        )
        image = ControlBatch(
            controller_epoch=1,
            brokers=[BrokerInfo(node_id=1, broker_epoch=1)],
            topics=[TopicInfo(name="t", topic_id=bytes(range(16)), partitions=states)],
            links=[link],
        )
        await self.control.Apply(image, None)  # type: ignore[arg-type]
        await self.confirm(epoch=epoch, permit_until_ms=PERMIT_UNTIL_MS if lease_ms else 0)

    async def confirm(
        self, *, epoch: int = 1, permit_until_ms: int = 0, mark: SyncMark = SyncMark.SYNC_MARK_UNCHANGED
    ) -> ConfirmLinkReply:
        """Confirm the link, as the site agent does."""
        request = ConfirmLinkRequest(link="a-b", epoch=epoch, permit_until_ms=permit_until_ms, mark=mark)
        return await self.control.ConfirmLink(request, None)  # type: ignore[arg-type]

    def hosted(self, index: int = 0) -> HostedPartition:
        found = self.replicas.find("t", index)
        assert found is not None
        return found

    async def report(self, *offsets: int) -> ErrorCode:
        """Report these offsets of the first partitions; the answer."""
        partitions = [SimpleNamespace(index=index, acknowledged_offset=offset) for index, offset in enumerate(offsets)]
        request = SimpleNamespace(
            link="a-b", link_epoch=1, topics=[SimpleNamespace(name="t", partitions=partitions)] if offsets else []
        )
        doors = link_progress.Doors(cluster=self.cluster, replicas=self.replicas)
        response = await link_progress.handle(request, SimpleNamespace(), doors)  # type: ignore[arg-type]
        code: ErrorCode = response.error_code
        return code

    def pass_time(self, by_ms: int) -> None:
        """The clock goes on, and the broker checks its standbys."""
        self.clock.advance(by_ms)
        self.replicas.standbys.check()


@pytest.fixture
async def active(tmp_path: Path) -> AsyncIterator[Active]:
    made = Active(tmp_path)
    yield made
    await made.control.stop()
    made.logs.abandon()


@pytest.mark.parametrize("policy", [SyncPolicy.BLOCK, SyncPolicy.DEGRADE, SyncPolicy.BOUND])
async def test_partitions_without_waiting_records_are_not_checked(active: Active, policy: SyncPolicy) -> None:
    """Ten thousand idle partitions of a sync link must not cost a look each at every check."""
    await active.take(policy)
    await active.report(0, 0, 0)
    active.pass_time(100)
    assert not active.replicas.checked_holds
    active.replicas.append(active.hosted(), batch(), acks=1)
    assert set(active.replicas.checked_holds) == {("t", 0)}
    await active.report(1)
    active.pass_time(100)
    assert not active.replicas.checked_holds


async def test_the_standby_gets_its_whole_timeout_after_an_idle_time(active: Active) -> None:
    await active.take(SyncPolicy.DEGRADE)
    await active.report(0, 0, 0)
    active.pass_time(100)
    active.pass_time(100 * TIMEOUT_MS)
    hosted = active.hosted()
    active.replicas.append(hosted, batch(), acks=1)
    active.pass_time(TIMEOUT_MS - 1)
    assert hosted.state.high_watermark == 0
    active.pass_time(1)
    assert (hosted.state.high_watermark, active.replicas.degradations) == (1, 1)


async def test_the_lag_of_a_bounded_standby_begins_with_a_record_and_not_before(active: Active) -> None:
    await active.take(SyncPolicy.BOUND)
    await active.report(0, 0, 0)
    active.pass_time(100)
    active.pass_time(100_000)
    hosted = active.hosted()
    active.replicas.append(hosted, batch(), acks=1)
    active.pass_time(100)
    active.replicas.append(hosted, batch(), acks=1)
    assert hosted.state.high_watermark == 2  # the lag is far below the bound
    active.pass_time(1_000)
    active.replicas.append(hosted, batch(), acks=1)
    assert hosted.state.high_watermark == 2
    await active.report(3)
    assert hosted.state.high_watermark == 3


async def test_reports_are_wanted_until_each_partition_has_had_one(active: Active) -> None:
    await active.take(SyncPolicy.BLOCK)
    assert await active.report() is ErrorCode.offset_not_available
    assert await active.report(0, 0) is ErrorCode.offset_not_available
    assert await active.report(0, 0, 0) is ErrorCode.none
    assert await active.report() is ErrorCode.none


async def test_reports_are_wanted_by_a_new_leadership_and_by_a_new_policy(active: Active) -> None:
    await active.take(SyncPolicy.NONE)
    assert await active.report() is ErrorCode.none
    await active.take(SyncPolicy.BLOCK, revision=2)
    assert await active.report() is ErrorCode.offset_not_available
    assert await active.report(0, 0, 0) is ErrorCode.none
    await active.take(SyncPolicy.BLOCK, revision=2, leader_epoch=2)
    assert await active.report() is ErrorCode.offset_not_available


async def test_reports_are_wanted_until_a_standby_that_was_given_up_is_waited_for_again(active: Active) -> None:
    """A report that says nothing new brings a quiet partition back."""
    await active.take(SyncPolicy.DEGRADE)
    await active.report(0, 0, 0)
    active.replicas.append(active.hosted(), batch(), acks=1)
    active.pass_time(0)
    active.pass_time(TIMEOUT_MS)
    hold = active.hosted().state.hold
    assert hold is not None
    assert hold.is_degraded
    assert await active.report(1) is ErrorCode.offset_not_available
    assert await active.report(1) is ErrorCode.none
    assert hold.is_holding


async def test_a_broker_whose_permit_was_withdrawn_has_no_mark_in_a_later_epoch(active: Active) -> None:
    """The agent has removed the mark at the arbiter with the permit: records that the standby lacks
    may be acknowledged only after another one.
    """
    await active.take(SyncPolicy.DEGRADE, lease_ms=10_000)
    await active.report(0, 0, 0)
    hosted = active.hosted()
    active.replicas.append(hosted, batch(), acks=1)
    active.pass_time(TIMEOUT_MS)
    assert (await active.confirm()).wants_mark
    await active.confirm(mark=SyncMark.OUT_OF_SYNC)
    active.pass_time(100)
    assert hosted.state.high_watermark == 1
    await active.confirm(permit_until_ms=-1)
    await active.take(SyncPolicy.DEGRADE, lease_ms=10_000, epoch=2)
    active.replicas.append(hosted, batch(), acks=1)
    active.pass_time(2 * TIMEOUT_MS)
    assert hosted.state.high_watermark == 1
    assert (await active.confirm(epoch=2)).wants_mark
    await active.confirm(epoch=2, mark=SyncMark.OUT_OF_SYNC)
    active.pass_time(100)
    assert hosted.state.high_watermark == 2


async def test_the_mark_stays_while_a_partition_has_no_leader(active: Active) -> None:
    """The broker may have led it before its restart, and nothing says what the standby lacks."""
    await active.take(SyncPolicy.DEGRADE, leader=-1, lease_ms=10_000)
    await active.confirm(mark=SyncMark.OUT_OF_SYNC)
    assert (await active.confirm(mark=SyncMark.IN_SYNC)).is_standby_behind
    await active.take(SyncPolicy.DEGRADE, leader_epoch=2, lease_ms=10_000)
    assert (await active.confirm(mark=SyncMark.IN_SYNC)).is_standby_behind
    await active.report(0, 0, 0)
    assert not (await active.confirm(mark=SyncMark.IN_SYNC)).is_standby_behind


async def test_the_digest_of_the_leaders_is_zookeepers_once_the_broker_has_applied_them(active: Active) -> None:
    """A raise of many epochs is in ZooKeeper with the link alone."""

    def kept(leader: int, leader_epoch: int) -> SiteFacts:
        state = StoredPartitionState(leader=leader, leader_epoch=leader_epoch, isr=(1,), controller_epoch=1)
        topic = TopicAssignment(topic_id=bytes(range(16)), partitions=dict.fromkeys(range(PARTITIONS), (1,)))
        return SiteFacts(
            site="a", topics={"t": topic}, states={("t", index): (state, 0) for index in range(PARTITIONS)}
        )

    async def digest() -> int:
        asked = ConfirmLinkRequest(link="a-b", epoch=1, asks_leaders=True)
        return (await active.control.ConfirmLink(asked, None)).leaders_digest  # type: ignore[arg-type]

    await active.take(SyncPolicy.DEGRADE, lease_ms=10_000, leader_epoch=2)
    link = active.cluster.image.links["a-b"]
    assert await digest() == kept(1, 2).leaders_digest(link)
    assert await digest() not in (kept(1, 3).leaders_digest(link), kept(2, 2).leaders_digest(link), 0)
    link.leader_epoch_floor = 7
    raised = ControlBatch(controller_epoch=1, links=[link], epoch_raises=[EpochRaise(floor=7, topics=["t"])])
    await active.control.Apply(raised, None)  # type: ignore[arg-type]
    assert await digest() == kept(1, 2).leaders_digest(link) != kept(1, 8).leaders_digest(link)


async def test_a_link_that_was_deleted_and_made_again_has_no_mark(active: Active) -> None:
    await active.take(SyncPolicy.DEGRADE, lease_ms=10_000)
    await active.confirm(mark=SyncMark.OUT_OF_SYNC)
    await active.control.Apply(ControlBatch(controller_epoch=1, deleted_links=["a-b"]), None)  # type: ignore[arg-type]
    await active.take(SyncPolicy.DEGRADE, lease_ms=10_000, made_at_ms=1)
    hosted = active.hosted()
    active.replicas.append(hosted, batch(), acks=1)
    active.pass_time(2 * TIMEOUT_MS)
    assert hosted.state.high_watermark == 0
    assert (await active.confirm()).wants_mark


async def test_a_mark_is_wanted_again_while_the_standby_is_behind(active: Active) -> None:
    """An arbiter that has lost its data needs it."""
    await active.take(SyncPolicy.DEGRADE, lease_ms=10_000)
    await active.report(0, 0, 0)
    hosted = active.hosted()
    active.replicas.append(hosted, batch(), acks=1)
    active.pass_time(TIMEOUT_MS)
    await active.confirm(mark=SyncMark.OUT_OF_SYNC)
    active.pass_time(100)
    assert hosted.state.high_watermark == 1
    assert (await active.confirm()).wants_mark
    for _ in range(3):
        await active.report(1, 0, 0)
    assert not (await active.confirm(mark=SyncMark.IN_SYNC)).wants_mark


async def test_partitions_are_copies_while_the_other_site_leads(active: Active) -> None:
    for epoch, active_site in enumerate("aba", 1):
        await active.take(SyncPolicy.DEGRADE, epoch=epoch, leader_epoch=epoch, active_site=active_site)
        assert active.hosted().is_copy is (active_site == "b")
