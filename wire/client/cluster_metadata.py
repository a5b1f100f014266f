"""The contents of a Metadata response, the same for all versions: brokers, topics, leaders. A
value, not a cache.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort


class BrokerEndpoint(NamedTuple):
    """A broker as clients reach it."""

    node_id: int
    address: HostPort
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition's leader (-1: none) and replicas; the epoch is -1 where the version does not have
    it.
    """

    partition_index: int
    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicMetadata(NamedTuple):
    """A topic; its id is None where the version has none."""

    name: str
    topic_id: UUID | None
    error_code: ErrorCode
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


class ClusterMetadata(NamedTuple):
    """Brokers and topics as one broker saw them. `controller_id` is -1 when unknown."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerEndpoint]
    topics: Mapping[str, TopicMetadata]

    def leader_of(self, topic: str, partition: int) -> int:
        """Node id of the leader, -1 when there is none or the partition is unknown."""
        found = self.topics.get(topic)
        at = None if found is None else found.partitions.get(partition)
        return -1 if at is None else at.leader_id

    def merged_with(self, newer: "ClusterMetadata") -> "ClusterMetadata":
        """`newer`, keeping the topics that it was not asked about."""
        return newer._replace(topics={**self.topics, **newer.topics})


NOTHING_KNOWN = ClusterMetadata(None, -1, {}, {})


def cluster_metadata(response: Any) -> ClusterMetadata:
    """The content of a Metadata or SiteMetadata response of any version."""
    return ClusterMetadata(
        getattr(response, "cluster_id", None),
        getattr(response, "controller_id", -1),
        {
            broker.node_id: BrokerEndpoint(
                broker.node_id, HostPort(broker.host, broker.port), getattr(broker, "rack", None)
            )
            for broker in response.brokers
        },
        {topic.name: _topic(topic) for topic in response.topics if topic.name is not None},
    )


def _topic(topic: Any) -> TopicMetadata:
    partitions = {
        partition.partition_index: PartitionMetadata(
            partition_index=partition.partition_index,
            error_code=partition.error_code,
            leader_id=partition.leader_id,
            leader_epoch=getattr(partition, "leader_epoch", -1),
            replicas=partition.replica_nodes,
            isr=partition.isr_nodes,
        )
        for partition in topic.partitions
    }
    is_internal = getattr(topic, "is_internal", False)
    return TopicMetadata(topic.name, getattr(topic, "topic_id", None), topic.error_code, is_internal, partitions)
