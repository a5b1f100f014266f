"""Facts: the state changes that a decision consists of. `Cluster.apply` takes them one by one;
`controller/stored/cluster_reader.py` makes some of them durable.

Facts marked "Memory only" are not stored: phases, and brokers and links that other processes write
to ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from controller.core.state.partition_states import PartitionPhase
    from controller.core.state.replica_states import ReplicaPhase
    from controller.core.state.site_values import Broker, EpochRaise, Leadership, NewReplicas, Replica, Topic
    from wire.control.cluster_pb2 import LinkRecord
    from wire.protocol.ids import TopicPartition
    from wire.rules.acls import AccessEntry, ResourcePattern
    from wire.rules.client_quotas import QuotaEntity
    from wire.rules.delegation_tokens import DelegationToken


class BrokerJoined(Struct, frozen=True, kw_only=True):
    """A broker registered. Memory only."""

    broker: Broker


class BrokerLeft(Struct, frozen=True, kw_only=True):
    """A broker's registration is gone, or the broker is still registered and presumed dead. Memory
    only.
    """

    node_id: int
    is_presumed: bool = False


class PresumptionDropped(Struct, frozen=True, kw_only=True):
    """A broker has ceased to be presumed dead: it answered, registered again, or its registration
    ended. Memory only.
    """

    node_id: int


class BrokerLeaving(Struct, frozen=True, kw_only=True):
    """A broker begins a controlled shutdown and becomes ineligible as leader. Memory only."""

    node_id: int


class OfflineReplicasKnown(Struct, frozen=True, kw_only=True):
    """A living broker has lost the log directories of exactly these replicas. Memory only."""

    node_id: int
    partitions: frozenset[TopicPartition]


class RegistrationsListed(Struct, frozen=True, kw_only=True):
    """The brokers are known as of this zxid, that of the newest change of registrations. Memory
    only.
    """

    zxid: int


class BrokerUnregistered(Struct, frozen=True, kw_only=True):
    """An operator unregistered a broker that is gone. A deletion of a topic does not wait for its
    replicas there.
    """

    node_id: int


class UnregistrationEnded(Struct, frozen=True, kw_only=True):
    """A broker that an operator unregistered has registered again, and is treated as any other
    broker.
    """

    node_id: int


class TopicCreated(Struct, frozen=True, kw_only=True):
    """A topic exists; `must_store` is false when another process wrote its znodes."""

    topic: Topic
    must_store: bool = True


class PartitionsAdded(Struct, frozen=True, kw_only=True):
    """A topic has more partitions; `over_version` is the version of the znode when another process
    wrote it last.
    """

    topic: str
    assignment: Mapping[int, tuple[int, ...]]
    over_version: int | None = None


class PartitionsReassigned(Struct, frozen=True, kw_only=True):
    """Partitions of a topic have other replicas, or a reassignment to them begins. `here` and
    `registrations_zxid` are for the removals that are stored, see `Topic.reassigned`.
    """

    topic: str
    partitions: Mapping[int, NewReplicas]
    here: frozenset[int]
    registrations_zxid: int

    def of(self, topic: Topic) -> Topic:
        """The topic after it."""
        return topic.reassigned(self.partitions, here=self.here, zxid=self.registrations_zxid)


class TopicConfigsReplaced(Struct, frozen=True, kw_only=True):
    """A topic has these overrides; `must_store` is false when another tool wrote them."""

    topic: str
    configs: Mapping[str, str]
    must_store: bool = True


class LeadershipChanged(Struct, frozen=True, kw_only=True):
    """A partition has this leader and these in-sync replicas."""

    partition: TopicPartition
    leadership: Leadership
    is_unclean: bool = False
    """The leader was not in sync: records may be lost. Memory only."""


class LeaderEpochsRaised(Struct, frozen=True, kw_only=True):
    """The partitions of these topics have leader epochs at or above the floor."""

    epoch_raise: EpochRaise


class EpochRaiseEnded(Struct, frozen=True, kw_only=True):
    """Every partition of the raise has its leader epoch in its own znode."""

    name: str


class UncleanElectionAltered(Struct, frozen=True, kw_only=True):
    """Unclean elections are allowed or forbidden for topics without that config; None: the
    properties file decides. Memory only.
    """

    is_allowed: bool | None


class PartitionMoved(Struct, frozen=True, kw_only=True):
    """A partition is in another phase. Memory only."""

    partition: TopicPartition
    phase: PartitionPhase


class ReplicaMoved(Struct, frozen=True, kw_only=True):
    """A replica is in another phase. Memory only."""

    replica: Replica
    phase: ReplicaPhase


class TopicDeletionRequested(Struct, frozen=True, kw_only=True):
    """A topic is to be deleted; `must_store` is false when the mark was found in ZooKeeper."""

    topic: str
    must_store: bool = True


class TopicDeleted(Struct, frozen=True, kw_only=True):
    """Every replica of a topic is deleted, and with them the topic."""

    topic: str


class DeletionMarkDropped(Struct, frozen=True, kw_only=True):
    """The deletion mark of a topic that does not exist, or may not be deleted, is removed."""

    topic: str


class TopicReleased(Struct, frozen=True, kw_only=True):
    """A topic leaves the quarantine with these leaderships. Memory only."""

    topic: Topic
    leaderships: Mapping[TopicPartition, Leadership]


class QuarantineRead(Struct, frozen=True, kw_only=True):
    """Exactly these topics are in quarantine, each with the reason. Memory only."""

    problems: Mapping[str, str]


class LinkProblemsRead(Struct, frozen=True, kw_only=True):
    """Exactly these links cannot be decoded, each with the reason. Memory only."""

    problems: Mapping[str, str]


class LinkStored(Struct, frozen=True, kw_only=True):
    """A link has this record. Memory only: site agents write links."""

    link: LinkRecord


class LinkRemoved(Struct, frozen=True, kw_only=True):
    """A link is gone. Memory only."""

    name: str


class ClientQuotaReplaced(Struct, frozen=True, kw_only=True):
    """A client quota entity has these quotas, or none; `must_store` is false when another tool
    wrote them.
    """

    entity: QuotaEntity
    values: Mapping[str, float]
    must_store: bool = True


class ScramUserReplaced(Struct, frozen=True, kw_only=True):
    """A user has these SCRAM credentials, by mechanism, or none; `must_store` is false when another
    tool wrote them.
    """

    user: str
    credentials: Mapping[str, str]
    must_store: bool = True


class AclsReplaced(Struct, frozen=True, kw_only=True):
    """A pattern of resources has these ACLs, or none; `must_store` is false when another tool wrote
    them.
    """

    pattern: ResourcePattern
    entries: frozenset[AccessEntry]
    must_store: bool = True


class DelegationTokenReplaced(Struct, frozen=True, kw_only=True):
    """A delegation token has this content, or is removed; `must_store` is false when another tool
    wrote it.
    """

    token_id: str
    token: DelegationToken | None
    must_store: bool = True


class GroupConfigsReplaced(Struct, frozen=True, kw_only=True):
    """A group has these configs of its own, or none; `must_store` is false when another tool wrote
    them.
    """

    group: str
    configs: Mapping[str, str]
    must_store: bool = True


Fact = (
    BrokerJoined
    | BrokerLeft
    | PresumptionDropped
    | BrokerLeaving
    | OfflineReplicasKnown
    | BrokerUnregistered
    | UnregistrationEnded
    | TopicCreated
    | PartitionsAdded
    | PartitionsReassigned
    | RegistrationsListed
    | TopicConfigsReplaced
    | LeadershipChanged
    | LeaderEpochsRaised
    | EpochRaiseEnded
    | UncleanElectionAltered
    | PartitionMoved
    | ReplicaMoved
    | TopicDeletionRequested
    | TopicDeleted
    | DeletionMarkDropped
    | TopicReleased
    | QuarantineRead
    | LinkProblemsRead
    | LinkStored
    | LinkRemoved
    | ClientQuotaReplaced
    | ScramUserReplaced
    | AclsReplaced
    | DelegationTokenReplaced
    | GroupConfigsReplaced
)
