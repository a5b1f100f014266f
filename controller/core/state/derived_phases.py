"""The phases of partitions and replicas when a controller takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.state.site_values import Replica, Topic
from wire.protocol.ids import NO_NODE, TopicPartition

if TYPE_CHECKING:
    from controller.core.state.cluster import Cluster


def derive_phases(cluster: Cluster) -> None:
    """Give every loaded partition and replica the phase that follows from what is stored and who is
    alive.

    A leader that registered after its leadership was written is another incarnation of that broker:
    it may have lost the unflushed end of its log, so its partitions count as offline and get a new
    leader epoch.
    """
    for topic in cluster.topics.values():
        derive_topic(cluster, topic)


def derive_topic(cluster: Cluster, topic: Topic) -> None:
    """Give the partitions and replicas of one topic their phases."""
    for partition in topic.partitions():
        cluster.partition_phases[partition] = _derived_phase(cluster, partition)
    for replica in topic.replicas():
        cluster.replica_phases[replica] = _derived_replica_phase(cluster, replica)


def _derived_phase(cluster: Cluster, partition: TopicPartition) -> PartitionPhase:
    leadership = cluster.leaderships.get(partition)
    if leadership is None:
        return PartitionPhase.NEW
    leader = None if leadership.leader == NO_NODE else cluster.brokers.get(leadership.leader)
    if leader is None or leader.epoch > leadership.known_zxid:
        return PartitionPhase.OFFLINE
    return PartitionPhase.ONLINE


def _derived_replica_phase(cluster: Cluster, replica: Replica) -> ReplicaPhase:
    if replica.node in cluster.brokers:
        return ReplicaPhase.ONLINE
    return ReplicaPhase.DELETION_INELIGIBLE if cluster.is_deleting(replica.topic) else ReplicaPhase.OFFLINE
