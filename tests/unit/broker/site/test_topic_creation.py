"""Internal topics are asked for as their settings say, once enough brokers are registered; until
then the log says once what is missing.
"""

from __future__ import annotations

from typing import cast

from structlog.testing import capture_logs

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.settings.loading import load_broker_settings
from broker.site.topic_creation import TopicCreator
from tests.support.eventually import eventually
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.clients import ControllerClient
from wire.control.cluster_pb2 import BrokerInfo

PROPERTIES = {"node.id": "1", "listeners": "CLIENT://h:1", "log.dirs": "none", "zookeeper.connect": "none:1"}


class Asked:
    """A controller that creates everything and remembers what it was asked."""

    def __init__(self) -> None:
        self.topics: list[pb.NewTopic] = []

    async def create_topics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsReply:
        self.topics += request.topics
        return pb.CreateTopicsReply()


def site_of(*brokers: int) -> ClusterImage:
    batch = ControlBatch(controller_epoch=1, is_full=True, brokers=[BrokerInfo(node_id=node) for node in brokers])
    return apply_batch(ClusterImage(node_id=1, site="a"), batch)


def creator(**properties: str) -> tuple[TopicCreator, Asked]:
    asked = Asked()
    given = PROPERTIES | {name.replace("_", "."): value for name, value in properties.items()}
    return TopicCreator(load_broker_settings(given), cast("ControllerClient", asked)), asked


async def test_an_internal_topic_waits_for_as_many_brokers_as_it_has_replicas_and_the_log_says_so_once() -> None:
    topics, asked = creator()
    with capture_logs() as said:
        for _ in range(3):
            topics.request_missing(OFFSETS_TOPIC, site_of(1, 2))
            topics.request_missing(TRANSACTIONS_TOPIC, site_of(1, 2))
    keys = ["offsets.topic.replication.factor", "transaction.state.log.replication.factor"]
    assert [(line["key"], line["value"], line["registered"]) for line in said] == [(key, 3, [1, 2]) for key in keys]
    assert topics.request([OFFSETS_TOPIC, "orders"], site_of(1, 2)) == ["orders"]

    topics.request_missing(OFFSETS_TOPIC, site_of(1, 2, 3))
    topics.request_missing(TRANSACTIONS_TOPIC, site_of(1, 2, 3))
    await eventually(lambda: len(asked.topics) == 3)
    _, groups, transactions = asked.topics
    assert (groups.name, groups.partition_count, groups.replication_factor) == (OFFSETS_TOPIC, 50, 3)
    assert (transactions.replication_factor, transactions.configs["min.insync.replicas"]) == (3, "2")


async def test_a_single_broker_makes_the_topics_when_its_settings_want_one_copy() -> None:
    topics, asked = creator(transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1")
    topics.request_missing(TRANSACTIONS_TOPIC, site_of(1))
    await eventually(lambda: bool(asked.topics))
    assert (asked.topics[0].replication_factor, asked.topics[0].configs["min.insync.replicas"]) == (1, "1")


async def test_segments_of_internal_topics_are_as_long_as_the_file_says() -> None:
    topics, asked = creator(
        offsets_topic_segment_bytes="20480",
        transaction_state_log_segment_bytes="10240",
        offsets_topic_replication_factor="1",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    )
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        topics.request_missing(name, site_of(1))
    await eventually(lambda: len(asked.topics) == 2)
    assert {topic.name: topic.configs["segment.bytes"] for topic in asked.topics} == {
        OFFSETS_TOPIC: "20480",
        TRANSACTIONS_TOPIC: "10240",
    }
