"""gRPC messages between processes: from a controller to a broker, from a peer's agents, and link
records. A message is applied as a whole or refused, and a refused one leaves the image as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import (
    OtherCluster,
    StaleControllerEpoch,
    apply_batch,
    check_fence,
    with_peer_view,
)
from dr.sites.core.evidence import positions_of, site_groups
from dr.sites.core.link_checks import pair_problems, record_problems
from dr.sites.core.sync_policies import policy_sentence
from wire.control.broker_pb2 import ControlBatch, DescribePartitionsReply
from wire.control.cluster_pb2 import (
    BrokerInfo,
    Endpoint,
    LinkRecord,
    PartitionState,
    SiteView,
    TopicInfo,
)
from wire.control.site_pb2 import DescribeGroupsReply
from wire.rules.links import carries_topic

IMAGE: Final = ClusterImage(site="a", node_id=1)


def _control_batch(data: bytes) -> None:
    batch = ControlBatch.FromString(data)
    check_fence(IMAGE, batch, broker_epoch=1)
    try:
        image = apply_batch(IMAGE, batch)
    except ValueError:
        return  # refused whole: the service answers with the error
    for topic in image.topics.values():
        image.role_in(image.link_of(topic.name))


def _site_view(data: bytes) -> None:
    view = SiteView.FromString(data)
    with_peer_view(IMAGE, view)
    pair_problems(view, view, source_site="a", target_site="b")


def _link_record(data: bytes) -> None:
    record = LinkRecord.FromString(data)
    if not record_problems(record):
        carries_topic(record, "orders")
        policy_sentence(record)


READERS: Final[Sequence[Callable[[bytes], Any]]] = (
    _control_batch,
    _site_view,
    _link_record,
    lambda data: positions_of(DescribePartitionsReply.FromString(data).partitions),
    lambda data: site_groups(DescribeGroupsReply.FromString(data)),
)


def run(data: bytes) -> None:
    """Every reader is given the bytes of the message."""
    for reader in READERS:
        try:
            reader(data)
        except (DecodeError, OtherCluster, StaleControllerEpoch):
            continue


def seeds() -> Sequence[bytes]:
    """A message of each kind with every repeated field filled."""
    topic = TopicInfo(
        name="orders",
        topic_id=bytes(15) + b"\x01",
        partitions=[PartitionState(partition=0, leader=1, leader_epoch=3, isr=[1, 2], replicas=[1, 2])],
        configs={"cleanup.policy": "compact"},
    )
    broker = BrokerInfo(node_id=1, endpoints=[Endpoint(listener="CLIENT", host="h", port=9092)])
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=2, topic_whitelist=[".*"])
    batch = ControlBatch(
        controller_id=1,
        controller_epoch=4,
        is_full=True,
        cluster_id="c",
        brokers=[broker],
        topics=[topic],
        links=[link],
        deleted_links=["x-y"],
    )
    view = SiteView(site="b", brokers=[broker], topics=[topic])
    return [message.SerializeToString() for message in (batch, view, link)]
