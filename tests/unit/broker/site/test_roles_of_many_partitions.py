"""What a broker leaves out when an image changes the roles of thousands of partitions, for which
writers wait.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metrics import BrokerMetrics
from broker.replication.following.replica_fetchers import ReplicaFetchers
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.loading import load_broker_settings
from broker.site import control_service
from broker.site.control_service import BrokerControlService
from runtime.disk import RealDisk
from tests.support.clock import ManualClock
from wire.control.broker_pb2 import ControlBatch, DescribePartitionsRequest, EpochRaise
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, TopicInfo

FLOOR = 1 << 20
NO_CONTEXT: Any = None


class Site:
    """The only broker of site a, with the topics of its controller."""

    def __init__(self, directory: Path) -> None:
        clock = ManualClock()
        settings = load_broker_settings(
            {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": str(directory), "zookeeper.connect": "none:1"}
        )
        self.logs = LogStore([str(directory)], RealDisk(), now_ms=clock.now_ms)
        self.logs.open(node_id=1, cluster_id="c")
        cuts = TruncatedRecords(RealDisk(), bytes_max=0)
        self.replicas = Replicas(settings, clock, self.logs, BrokerMetrics(), cuts=cuts)
        self.control = BrokerControlService(
            1,
            Cluster(ClusterImage(site="a", node_id=1)),
            self.replicas,
            broker_epoch=lambda: 1,
            describe_groups=NO_CONTEXT,
            handover=NO_CONTEXT,
        )
        configs: Any = SimpleNamespace(name="", configs={})
        self.logs.load(lambda _: self.replicas.assigned.log_config(configs))

    async def take(self, **change: Any) -> None:
        """Take a batch of the controller."""
        brokers = [BrokerInfo(node_id=1, broker_epoch=1)]
        await self.control.Apply(ControlBatch(controller_epoch=1, brokers=brokers, **change), NO_CONTEXT)

    def epochs(self) -> list[int]:
        return [hosted.state.leader_epoch for hosted in self.replicas]


def topic(partitions: int, topic_id: bytes = bytes(16)) -> TopicInfo:
    """Topic t, which broker 1 leads."""
    states = [
        PartitionState(partition=index, leader=1, leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1])
        for index in range(partitions)
    ]
    return TopicInfo(name="t", topic_id=topic_id, partitions=states)


async def test_only_topics_with_logs_to_make_have_former_logs_put_out_of_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Site(tmp_path)
    named: list[int] = []
    make_way = at.logs.make_way

    async def noting(topics: Any, *, node_id: int) -> None:
        named.append(len(list(topics)))
        await make_way(topics, node_id=node_id)

    monkeypatch.setattr(at.logs, "make_way", noting)
    await at.take(topics=[topic(2)])
    await at.take(epoch_raises=[EpochRaise(floor=FLOOR, topics=["t"])])
    assert at.epochs() == [FLOOR, FLOOR]
    await at.take(topics=[topic(3)])
    await at.take(topics=[topic(3, bytes(15) + b"1")])
    assert named == [1, 0, 1, 1]
    at.logs.abandon()


@pytest.mark.parametrize(
    ("active", "phase", "looks"),
    [("a", LinkPhase.FENCED, 0), ("b", LinkPhase.MIRRORING, 0), ("a", LinkPhase.MIRRORING, 1)],
)
async def test_only_a_promotion_looks_for_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, active: str, phase: LinkPhase, looks: int
) -> None:
    at = Site(tmp_path)
    looked_for: list[LinkRecord] = []
    has_leaders = control_service.has_leaders_above_floor

    def noting(image: ClusterImage, record: LinkRecord) -> bool:
        looked_for.append(record)
        return has_leaders(image, record)

    monkeypatch.setattr(control_service, "has_leaders_above_floor", noting)
    record = LinkRecord(
        name="a-b", source_site="a", target_site="b", active_site=active, phase=phase, topic_whitelist=["t"]
    )
    await at.take(topics=[topic(2)], links=[record])
    request = DescribePartitionsRequest(link="a-b", is_brief=True, awaited=record, wait_ms=1_000)
    reply = await at.control.DescribePartitions(request, NO_CONTEXT)
    assert (reply.has_leaders, len(looked_for)) == (bool(looks), looks)
    at.logs.abandon()


async def test_only_partitions_that_are_led_elsewhere_or_followed_are_looked_at_by_fetchers() -> None:
    states = {
        index: SimpleNamespace(is_follower=index > 1, leader=1 if index < 2 else 2, leader_epoch=1)
        for index in range(4)
    }
    hosted = {
        ("t", index): SimpleNamespace(key=("t", index), topic="t", index=index, state=states[index]) for index in states
    }
    looked_at: list[int] = []

    def find(name: str, index: int) -> Any:
        looked_at.append(index)
        return hosted[name, index]

    replicas: Any = SimpleNamespace(find=find)
    settings: Any = SimpleNamespace(replica_fetcher_count=1)
    fetchers = ReplicaFetchers(
        replicas, NO_CONTEXT, settings, ManualClock(), broker_epoch=lambda: 1, on_lost=lambda _: None
    )
    followed: list[int] = []
    fetcher = SimpleNamespace(follow=lambda some: followed.extend(one.index for one in some), leave=lambda _: None)
    fetchers._fetcher = lambda *_: fetcher  # type: ignore[assignment, method-assign, return-value]
    images = {
        index: PartitionImage(
            index=index, leader=state.leader, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(1, 2)
        )
        for index, state in states.items()
    }
    before = ClusterImage(site="a", node_id=1)
    first = replace(before, topics={"t": TopicImage(name="t", topic_id=bytes(16), configs={}, partitions=images)})
    await fetchers.on_image(before, first)
    assert (looked_at, followed, len(fetchers)) == ([2, 3], [2, 3], 2)
    looked_at.clear()
    states[3].is_follower, states[3].leader = False, 1
    moved = replace(first.topics["t"], partitions={**images, 3: replace(images[3], leader=1)})
    await fetchers.on_image(first, replace(first, topics={"t": moved}))
    assert (sorted(set(looked_at)), followed, len(fetchers)) == ([2, 3], [2, 3], 1)
