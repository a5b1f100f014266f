"""Control batches, images and views of two sites with a link, built from a few words."""

from __future__ import annotations

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import (
    apply_batch,
)
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo

OWN, PEER = 1001, 2001


def topic(name: str, *, count: int = 1, leader: int = OWN, epoch: int = 0, topic_id: bytes = b"i" * 16) -> TopicInfo:
    states = [
        PartitionState(partition=index, leader=leader, leader_epoch=epoch, replicas=[leader], isr=[leader])
        for index in range(count)
    ]
    return TopicInfo(name=name, topic_id=topic_id, partitions=states)


def link(
    *, epoch: int = 1, active: str = "a", phase: LinkPhase = LinkPhase.MIRRORING, routed: bool = True
) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        mode="exact",
        epoch=epoch,
        active_site=active,
        phase=phase,
        topic_whitelist=["orders.*"],
        topic_blacklist=["orders-home"],
        group_whitelist=["billing"],
        is_routed=routed,
    )


def batch(*topics: TopicInfo, links: list[LinkRecord] | None = None, **fields: object) -> ControlBatch:
    values: dict[str, object] = {"is_full": True, "controller_epoch": 1, "cluster_id": "c", **fields}
    return ControlBatch(brokers=[BrokerInfo(node_id=OWN)], topics=topics, links=links or [], **values)  # type: ignore[arg-type]


def image(*topics: TopicInfo, site: str = "a", links: list[LinkRecord] | None = None) -> ClusterImage:
    return apply_batch(ClusterImage(site=site, node_id=OWN), batch(*topics, links=links))


def peer_view(*topics: TopicInfo, coordinators: list[int] | None = None) -> SiteView:
    return SiteView(
        site="a", version=1, brokers=[BrokerInfo(node_id=PEER)], topics=topics, group_coordinators=coordinators or []
    )
