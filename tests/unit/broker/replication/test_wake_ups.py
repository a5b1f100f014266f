"""A request that waits for a partition is woken by every change that may end the wait, over real
replicas and logs that real images change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.handlers.links.mirror_append import _answer_replicated, handle_frame
from broker.handlers.records import delete_records
from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.metrics import BrokerMetrics
from broker.replication.core.fetch_sessions import FetchPartitionState, FetchSession
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.following.follower_append import apply_answer
from broker.replication.hosted_partition import HostedPartition
from broker.replication.mirror_append import Outcome, append_mirrored
from broker.replication.offline_reports import OfflineReplicaReports
from broker.replication.replica_listeners import ReplicaListeners
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.loading import load_broker_settings
from broker.site.control_service import BrokerControlService
from runtime.disk import Disk, RealDisk
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from tests.support.disks.thread_noting_disk import ThreadNotingDisk
from tests.support.eventually import eventually
from wire.control import broker_pb2, controller_pb2
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, TopicInfo
from wire.protocol.messages.fetch_codec import PartitionFetched
from wire.protocol.messages.mirror_append_codec import (
    MirrorAppend,
    PartitionToMirror,
    TopicToMirror,
    mirror_append_parts,
)
from wire.rules.links import LinkEpoch

KEY = ("t", 0)
TOPIC_ID = bytes(range(16))
OWN, OTHER, THIRD = 1, 2, 3
LONG_MS = 3_600_000.0


class Waiting:
    """A request that ends with the first change that wakes it."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        """Ends the wait at any change."""
        self.received.append(grown_bytes)
        return True

    def complete(self) -> None:
        """Notes that the request is answered."""


class Leader:
    """A broker's replicas, as its controller sees them."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.clock = ManualClock()
        self.on_offline_changed: Callable[[], None] = lambda: None
        settings = load_broker_settings(
            {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": str(directory), "zookeeper.connect": "none:1"}
        )
        self.cluster = Cluster(ClusterImage(site="a", node_id=OWN))
        self.logs = LogStore([str(directory)], disk or RealDisk(), now_ms=self.clock.now_ms)
        self.logs.open(node_id=OWN, cluster_id="c")
        self.replicas = Replicas(
            settings,
            self.clock,
            self.logs,
            BrokerMetrics(),
            cuts=TruncatedRecords(RealDisk(), bytes_max=0),
            listeners=ReplicaListeners(offline_changed=lambda: self.on_offline_changed()),
        )
        self.control = BrokerControlService(
            OWN,
            self.cluster,
            self.replicas,
            broker_epoch=lambda: 1,
            describe_groups=None,  # type: ignore[arg-type]
            handover=None,  # type: ignore[arg-type]
        )
        self.control.on_image(self.replicas.on_image)
        self.logs.load(lambda _: self.replicas.assigned.log_config(SimpleNamespace(name="", configs={})))  # type: ignore[arg-type]

    async def hear(
        self,
        *,
        replicas: tuple[int, ...] = (OWN, OTHER),
        isr: tuple[int, ...] = (OWN, OTHER),
        partition_epoch: int = 1,
        leader: int = OWN,
        leader_epoch: int = 1,
        alive: tuple[int, ...] = (OWN, OTHER, THIRD),
        links: tuple[LinkRecord, ...] = (),
    ) -> HostedPartition:
        """Takes a batch of the controller; returns the partition."""
        state = PartitionState(
            partition=0,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=replicas,
            isr=isr,
        )
        reported = broker_pb2.ControlBatch(
            controller_epoch=1,
            brokers=[BrokerInfo(node_id=node, broker_epoch=node) for node in alive],
            topics=[TopicInfo(name="t", topic_id=TOPIC_ID, partitions=[state])],
            links=links,
        )
        await self.control.Apply(reported, None)  # type: ignore[arg-type]
        found = self.replicas.find(*KEY)
        assert found is not None
        return found

    def follower_fetches_to(self, hosted: HostedPartition, node: int, offset: int, *, log_start_offset: int) -> None:
        """A follower fetches, and reports its log end by that."""
        self.replicas.record_fetch(hosted, node, offset, broker_epoch=node, log_start_offset=log_start_offset)


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    made = Leader(tmp_path)
    yield made
    made.logs.abandon()


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def link(*, active_site: str, phase: int = LinkPhase.MIRRORING, epoch: int = 1) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active_site,
        phase=phase,  # type: ignore[arg-type]
        epoch=epoch,
        topic_whitelist=["t"],
        is_routed=True,
    )


async def test_a_mirror_gets_the_error_that_fewer_replicas_are_in_sync(leader: Leader) -> None:
    hosted = await leader.hear()
    waiting = Waiting()
    leader.replicas.append(hosted, batch(), acks=1)
    leader.replicas.purgatory.wait(waiting, DelayedOperation.MIRROR_FETCH, keys=[KEY], timeout_ms=LONG_MS)
    await leader.hear(isr=(OWN,), partition_epoch=2)
    assert hosted.state.mirrorable_end == 1
    await turn()
    assert waiting.received == [hosted.log.size_bytes]


async def test_a_consumer_at_a_follower_gets_the_records_below_its_new_high_watermark(leader: Leader) -> None:
    hosted = await leader.hear(leader=OTHER)
    waiting = Waiting()
    leader.replicas.purgatory.wait(waiting, DelayedOperation.CONSUMER_FETCH, keys=[KEY], timeout_ms=LONG_MS)
    records = memoryview(batch([b"value"] * 100, leader_epoch=1))
    for sent, high_watermark in ((records, 0), (None, 100)):
        answer = PartitionFetched(0, high_watermark=high_watermark, log_start_offset=0, records=sent)
        apply_answer(leader.replicas, hosted, answer, now_ms=leader.clock.now_ms())
        await turn()
    assert waiting.received == [len(records)]


def waiting_follower(leader: Leader, hosted: HostedPartition) -> tuple[FetchSession, Waiting]:
    """The session of a follower that has everything of this partition, and its fetch that waits."""
    session = FetchSession(session_id=1, has_topic_ids=False, used_at_ms=0, follower=OTHER)
    wanted = FetchPartitionState(topic=hosted.topic, partition=0, fetch_offset=0, partition_max_bytes=100)
    session.ask([wanted], ())
    session.settle(wanted.key)
    leader.replicas.purgatory.sessions.watch(session, wanted, hosted)
    waiting = Waiting()
    leader.replicas.purgatory.wait(waiting, DelayedOperation.FOLLOWER_FETCH, keys=[session], timeout_ms=LONG_MS)
    return session, waiting


async def test_a_follower_that_waits_without_a_new_partition_is_answered_when_it_gets_records(leader: Leader) -> None:
    hosted = await leader.hear()
    own = {"log": hosted.log, "state": hosted.state, "config": hosted.config, "metrics": hosted.metrics}
    _, following = waiting_follower(leader, HostedPartition(topic="older", topic_id=bytes(16), index=0, **own))
    leader.replicas.append(hosted, batch(), acks=-1)
    await turn()
    assert following.received == [0]


def deletion(offset: int, timeout_s: float) -> Any:
    asked = SimpleNamespace(partition_index=0, offset=offset)
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[asked])], timeout=timedelta(seconds=timeout_s))


async def test_a_deletion_no_longer_waits_for_a_replica_that_is_moved_away(leader: Leader) -> None:
    hosted = await leader.hear(replicas=(OWN, OTHER, THIRD), isr=(OWN, OTHER))
    leader.replicas.append(hosted, batch([b"1", b"2"]), acks=1)
    leader.follower_fetches_to(hosted, OTHER, 2, log_start_offset=0)
    doors: Any = SimpleNamespace(replicas=leader.replicas, logs=leader.logs, cluster=leader.cluster)
    context = RequestContext(
        api_key=21, api_version=2, correlation_id=0, client_id=None, listener="CLIENT", client_address=""
    )
    deleting = asyncio.ensure_future(delete_records.handle(deletion(2, 3_600), context, doors))
    await turn()
    leader.follower_fetches_to(hosted, OTHER, 2, log_start_offset=2)
    await turn()
    assert not deleting.done()
    await leader.hear(partition_epoch=2)
    response = await asyncio.wait_for(deleting, 10)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.low_watermark) == (ErrorCode.none, 2)


async def test_followers_and_producers_hear_that_a_mirrored_log_restarts_higher(leader: Leader) -> None:
    hosted = await leader.hear(links=(link(active_site="b"),))
    leader.follower_fetches_to(hosted, OTHER, 0, log_start_offset=0)
    session, following = waiting_follower(leader, hosted)
    producing = Waiting()
    leader.replicas.purgatory.wait(producing, DelayedOperation.PRODUCE, keys=[KEY], timeout_ms=LONG_MS)
    sent = PartitionToMirror(0, 100, 100, 100, 1, None)
    append_mirrored(leader.replicas, hosted, sent, now_ms=leader.clock.now_ms())
    assert hosted.state.log_end_offset == 100
    await turn()
    assert following.received
    assert producing.received
    assert list(session.unsettled) == [("t", 0)]


async def test_a_fence_wakes_nothing_that_reads(leader: Leader) -> None:
    hosted = await leader.hear(links=(link(active_site="a"),))
    leader.cluster.replace(replace(leader.cluster.image, confirmed_epochs={"a-b": LinkEpoch(1, 0)}))
    await leader.hear(partition_epoch=2, links=(link(active_site="a"),))
    assert hosted.write_error is ErrorCode.none
    waiting = Waiting()
    for operation in DelayedOperation:
        leader.replicas.purgatory.wait(waiting, operation, keys=[KEY], timeout_ms=LONG_MS)
    await leader.hear(partition_epoch=3, links=(link(active_site="a", phase=LinkPhase.FENCED),))
    assert hosted.write_error is ErrorCode.not_leader_or_follower
    await turn()
    assert waiting.received == []


async def test_a_consumer_is_directed_to_the_other_site(leader: Leader) -> None:
    hosted = await leader.hear(links=(link(active_site="a", phase=LinkPhase.FENCED),))
    assert hosted.read_error is ErrorCode.none
    waiting = Waiting()
    leader.replicas.purgatory.wait(waiting, DelayedOperation.CONSUMER_FETCH, keys=[KEY], timeout_ms=LONG_MS)
    await leader.hear(links=(link(active_site="b", epoch=2),))
    assert hosted.read_error is ErrorCode.not_leader_or_follower
    await turn()
    assert waiting.received == [0]


class Asked:
    """A mirror's request, and its answers."""

    def __init__(self) -> None:
        self.header = SimpleNamespace(body_position=0)
        self.answers: list[bytes] = []
        self.tasks: list[asyncio.Task[None]] = []

    def on_cancelled(self, callback: object) -> None:
        """The connection stays."""

    def defer(self, answering: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(answering))

    def throttle_time_ms(self) -> int:
        return 0

    def resume(self, answering: Any) -> None:
        answering()

    def count_errors(self, codes: Iterable[int]) -> None:
        self.errors = [code for code in codes if code]

    def reply_body(self, parts: list[bytes], *, body_size: int) -> None:
        self.answers.append(b"".join(parts))


@pytest.mark.parametrize("is_led_again", [False, True])
async def test_a_mirror_gets_an_error_when_the_leadership_was_lost_during_a_flush(
    leader: Leader, is_led_again: bool
) -> None:
    hosted = await leader.hear(links=(link(active_site="b"),))
    sent = PartitionToMirror(0, 0, 1, 0, 1, batch())
    append_mirrored(leader.replicas, hosted, sent, now_ms=leader.clock.now_ms())
    outcome = Outcome(0, 1)
    outcome.hosted = hosted
    outcome.took(hosted)
    await leader.hear(leader=OTHER, leader_epoch=2, partition_epoch=2)
    if is_led_again:
        await leader.hear(leader_epoch=3, partition_epoch=3)
    await turn()
    doors: Any = SimpleNamespace(replicas=leader.replicas)
    asked: Any = Asked()
    _answer_replicated(doors, asked, [("t", [outcome])])
    assert asked.answers
    assert outcome.error is ErrorCode.not_leader_or_follower


async def test_a_mirrored_log_restarts_higher_without_holding_the_loop(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    leader = Leader(tmp_path, disk)
    hosted = await leader.hear(replicas=(OWN,), isr=(OWN,), links=(link(active_site="b"),))
    first = PartitionToMirror(0, 0, 1, 0, 1, batch())
    append_mirrored(leader.replicas, hosted, first, now_ms=leader.clock.now_ms())
    hosted.log.flush_now()
    (known,) = leader.cluster.image.links.values()
    doors: Any = SimpleNamespace(replicas=leader.replicas, clock=leader.clock, cluster=leader.cluster)
    sent = PartitionToMirror(0, 100, 101, 100, 1, batch(base_offset=100))
    request = MirrorAppend(known.name, known.epoch, [TopicToMirror("t", UUID(bytes=TOPIC_ID), [sent])])
    frame = bytearray(b"".join(mirror_append_parts(request)[0]))
    asked: Any = Asked()
    disk.on_loop.clear()
    handle_frame(memoryview(frame), asked, doors)
    frame[:] = bytes(len(frame))
    await asyncio.gather(*asked.tasks)
    assert (asked.errors, len(asked.answers)) == ([], 1)
    assert disk.on_loop == []
    assert (hosted.log.log_start_offset, hosted.log.log_end_offset) == (100, 101)
    with hosted.log.read(100, max_bytes=1 << 20) as piece:
        assert piece.read_bytes() == bytes(sent.records or b"")
    leader.logs.abandon()


class Controller:
    """Records the replicas that are reported to it."""

    def __init__(self) -> None:
        self.reported: list[list[str]] = []

    async def report_offline_replicas(
        self, request: controller_pb2.ReportOfflineReplicasRequest
    ) -> controller_pb2.ReportOfflineReplicasReply:
        """The call of a controller's client."""
        self.reported.append([partition.topic for partition in request.partitions])
        return controller_pb2.ReportOfflineReplicasReply()


async def test_the_controller_learns_that_a_lost_replica_is_gone_with_its_topic(leader: Leader) -> None:
    controller: Any = Controller()
    reports = OfflineReplicaReports(leader.replicas, controller, node_id=OWN, broker_epoch=lambda: 1)
    leader.on_offline_changed = reports.report
    await leader.hear()
    leader.replicas.offline.add(KEY)
    reports.start()
    await eventually(lambda: controller.reported == [["t"]])
    gone = broker_pb2.DeletedTopic(name="t", topic_id=TOPIC_ID)
    brokers = [BrokerInfo(node_id=OWN, broker_epoch=1)]
    reported = broker_pb2.ControlBatch(controller_epoch=1, brokers=brokers, deleted_topics=[gone])
    await leader.control.Apply(reported, None)  # type: ignore[arg-type]
    try:
        await eventually(lambda: controller.reported == [["t"], []])
    finally:
        await reports.stop()


async def test_requests_wait_from_the_beginning_of_a_fence_until_the_role_is_decided(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leader.hear(links=(link(active_site="a"),))
    leader.cluster.replace(replace(leader.cluster.image, confirmed_epochs={"a-b": LinkEpoch(1, 0)}))
    assert not leader.cluster.has_suspended_link
    seen: list[tuple[bool, bool]] = []
    change_roles = leader.replicas.assigned.apply

    async def apply(*arguments: Any) -> list[broker_pb2.PartitionFailure]:
        failures = await change_roles(*arguments)
        # other requests are handled between the partitions of a large image
        seen.append((leader.cluster.has_suspended_link, leader.cluster.is_suspended("t")))
        return failures

    monkeypatch.setattr(leader.replicas.assigned, "apply", apply)
    await leader.hear(partition_epoch=2, links=(link(active_site="a", phase=LinkPhase.FENCED),))
    await leader.hear(partition_epoch=3, links=(link(active_site="b", epoch=2),))
    assert seen == [(True, True), (True, True)]
    assert (leader.cluster.has_suspended_link, leader.cluster.is_suspended("t")) == (False, False)


async def test_requests_go_on_after_an_image_could_not_be_applied(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leader.hear(links=(link(active_site="a"),))
    leader.cluster.replace(replace(leader.cluster.image, confirmed_epochs={"a-b": LinkEpoch(1, 0)}))

    async def fail(*_: Any) -> None:
        raise OSError("the disk does not answer")

    monkeypatch.setattr(leader.replicas.assigned, "apply", fail)
    with pytest.raises(OSError, match="disk"):
        await leader.hear(partition_epoch=2, links=(link(active_site="a", phase=LinkPhase.FENCED),))
    assert (leader.cluster.has_suspended_link, leader.cluster.is_suspended("t")) == (False, False)
