"""Makes the `ControlBatch` for a broker: the cluster, or the changed parts of it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from controller.core.decisions import Publish
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import Broker, EpochRaise, Topic
from wire.control.broker_pb2 import ControlBatch, DeletedTopic, RemovedReplicas
from wire.control.broker_pb2 import EpochRaise as EpochRaiseMessage
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, PartitionState, ScramUser, TopicInfo
from wire.protocol.ids import NO_EPOCH, NO_NODE, TopicPartition
from wire.rules.acls import ResourcePattern
from wire.rules.client_quotas import QuotaEntity, quota_message
from wire.znodes.acl_znodes import acls_message
from wire.znodes.group_configs import group_configs_message
from wire.znodes.token_znodes import token_message


def broker_info(broker: Broker) -> BrokerInfo:
    """The message about a registered broker, for the other brokers."""
    registration = broker.registration
    return BrokerInfo(
        node_id=registration.node_id,
        broker_epoch=broker.epoch,
        rack=registration.rack,
        endpoints=[
            Endpoint(
                listener=endpoint.listener,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=endpoint.security_protocol,
            )
            for endpoint in registration.endpoints
        ],
        grpc_address=registration.grpc_address,
    )


class TopicMessages:
    """Messages about topics: mostly the same for every broker, so they are built once while the
    cluster is unchanged.
    """

    def __init__(self) -> None:
        self._revision = -1
        self._built: dict[tuple[str, tuple[TopicPartition, ...]], TopicInfo] = {}

    def about(self, cluster: Cluster, topic: Topic, partitions: tuple[TopicPartition, ...]) -> TopicInfo:
        """A topic with its configs and the partitions named."""
        if cluster.revision != self._revision:
            self._revision = cluster.revision
            self._built.clear()
        found = self._built.get((topic.name, partitions))
        if found is None:
            found = self._built[topic.name, partitions] = topic_info(cluster, topic, partitions)
        return found


class PendingChanges(Struct):
    """Changes that one broker has not received yet. Names only: the batch is built from the cluster
    when it is sent, so that ten changes of one partition become one, and the pending set never
    outgrows the cluster.
    """

    is_full: bool = False
    has_news: bool = False
    topics: set[str] = field(default_factory=set)
    partitions: set[TopicPartition] = field(default_factory=set)
    raises: list[EpochRaise] = field(default_factory=list)
    deleted_topics: dict[bytes, str] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)
    deleted_links: set[str] = field(default_factory=set)
    quotas: set[QuotaEntity] = field(default_factory=set)
    scram_users: set[str] = field(default_factory=set)
    acls: set[ResourcePattern] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)
    group_configs: set[str] = field(default_factory=set)

    def add(self, publish: Publish) -> None:
        """Add a change to the pending ones."""
        self.has_news = True
        self.topics |= publish.topics
        self.partitions |= publish.partitions
        self.raises += publish.raises
        self.deleted_topics |= {topic_id: name for name, topic_id in publish.deleted_topics}
        self.links |= publish.links
        self.deleted_links |= set(publish.deleted_links)
        self.quotas |= publish.quotas
        self.scram_users |= publish.scram_users
        self.acls |= publish.acls
        self.delegation_tokens |= publish.delegation_tokens
        self.group_configs |= publish.group_configs

    def add_image(self) -> None:
        """The broker needs the whole image."""
        self.has_news = self.is_full = True

    def batch(self, cluster: Cluster, *, node_id: int, broker_epoch: int, topics: TopicMessages) -> ControlBatch:
        """The batch that brings the broker up to date."""
        batch = ControlBatch(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.controller_epoch,
            broker_epoch=broker_epoch,
            is_full=self.is_full,
            cluster_id=cluster.cluster_id,
            brokers=[broker_info(cluster.brokers[node]) for node in sorted(cluster.brokers)],
        )
        deleted = dict(self.deleted_topics)
        if self.is_full:
            batch.topics.extend(
                topics.about(cluster, topic, tuple(topic.partitions()))
                for topic in cluster.topics.values()
                if not cluster.is_deleting(topic.name)
            )
            deleted |= {cluster.topics[name].topic_id: name for name in cluster.deletions}
            batch.quarantined_topics.extend(sorted(cluster.quarantine))
            batch.links.extend(cluster.links.values())
            batch.client_quotas.extend(quota_message(entity, values) for entity, values in cluster.quotas.items())
            groups: Iterable[str] = cluster.group_configs
        else:
            batch.topics.extend(self._changed_topics(cluster, topics))
            batch.epoch_raises.extend(
                EpochRaiseMessage(floor=one.floor, topics=sorted(one.topics)) for one in self.raises
            )
            batch.links.extend(cluster.links[name] for name in sorted(self.links) if name in cluster.links)
            batch.deleted_links.extend(name for name in sorted(self.deleted_links) if name not in cluster.links)
            batch.client_quotas.extend(quota_message(entity, cluster.quotas.get(entity, {})) for entity in self.quotas)
            groups = self.group_configs
        users: Iterable[str] = cluster.scram_users if self.is_full else self.scram_users
        batch.scram_users.extend(
            ScramUser(name=user, credentials=cluster.scram_users.get(user, {})) for user in sorted(users)
        )
        batch.acls.extend(
            acls_message(pattern, cluster.acls.get(pattern, ()))
            for pattern in (cluster.acls if self.is_full else self.acls)
        )
        tokens: Iterable[str] = cluster.delegation_tokens if self.is_full else self.delegation_tokens
        batch.delegation_tokens.extend(
            token_message(token_id, cluster.delegation_tokens.get(token_id)) for token_id in sorted(tokens)
        )
        batch.group_configs.extend(
            group_configs_message(group, cluster.group_configs.get(group, {})) for group in sorted(groups)
        )
        batch.deleted_topics.extend(DeletedTopic(name=name, topic_id=topic_id) for topic_id, name in deleted.items())
        batch.removed_replicas.extend(self._removed(cluster, node_id))
        return batch

    def _removed(self, cluster: Cluster, node_id: int) -> Iterable[RemovedReplicas]:
        names: Iterable[str] = cluster.topics if self.is_full else {one.topic for one in self.partitions}
        for name in names:
            topic = cluster.topics.get(name)
            if topic is None:
                continue
            by_zxid: dict[int, list[int]] = {}
            for index in sorted(topic.removed.keys() | topic.removed_while_away.keys()):
                if node_id in topic.removed.get(index, ()):
                    by_zxid.setdefault(0, []).append(index)
                elif zxid := topic.removed_while_away.get(index, {}).get(node_id, 0):
                    by_zxid.setdefault(zxid, []).append(index)
            for zxid, indexes in by_zxid.items():
                yield RemovedReplicas(topic_id=topic.topic_id, partitions=indexes, registrations_zxid=zxid)

    def _changed_topics(self, cluster: Cluster, topics: TopicMessages) -> Iterable[TopicInfo]:
        by_topic: dict[str, list[TopicPartition]] = {name: [] for name in sorted(self.topics)}
        for partition in sorted(self.partitions):
            by_topic.setdefault(partition.topic, []).append(partition)
        for name, partitions in by_topic.items():
            topic = cluster.topics.get(name)
            if topic is not None and not cluster.is_deleting(name):
                yield topics.about(cluster, topic, tuple(partitions))


def topic_info(cluster: Cluster, topic: Topic, partitions: Iterable[TopicPartition]) -> TopicInfo:
    """A topic with its configs and the partitions named."""
    return TopicInfo(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=dict(topic.configs),
        partitions=[
            partition_state(cluster, partition) for partition in partitions if partition.partition in topic.assignment
        ],
    )


def partition_state(cluster: Cluster, partition: TopicPartition) -> PartitionState:
    """The message about a partition; epochs are -1 if it never had a leader."""
    leadership = cluster.leaderships.get(partition)
    replicas = cluster.replicas_of(partition)
    if leadership is None:
        return PartitionState(
            partition=partition.partition,
            leader=NO_NODE,
            leader_epoch=NO_EPOCH,
            partition_epoch=NO_EPOCH,
            controller_epoch=cluster.controller_epoch,
            replicas=replicas,
            offline_replicas=_offline(cluster, partition, replicas),
        )
    return PartitionState(
        partition=partition.partition,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        partition_epoch=leadership.partition_epoch,
        controller_epoch=leadership.controller_epoch,
        replicas=replicas,
        isr=leadership.isr,
        offline_replicas=_offline(cluster, partition, replicas),
    )


def _offline(cluster: Cluster, partition: TopicPartition, replicas: Iterable[int]) -> list[int]:
    """Replicas whose brokers have lost the log directory. Replicas on dead brokers are not listed:
    receivers derive them from the list of brokers.
    """
    if not cluster.offline_replicas:
        return []
    return [node for node in replicas if cluster.is_replica_offline(partition, node)]
