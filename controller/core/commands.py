"""The commands of the controller; each results in one `Decision`.

If a client waits for a command, `Decision.reply` has a `TopicOutcome` for each topic. Random values
are part of the command (`topic_id`, `start_shift`), so that a decision is a function of cluster and
command.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from controller.core.entity_commands import EntityConfigCommand
from controller.core.link_claims import LinkClaim
from controller.core.state.site_values import Broker, Leadership, Topic
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition


class TopicRequest(Struct, frozen=True, kw_only=True):
    """One topic to create; counts of -1 mean the site's defaults; with an empty assignment the
    controller chooses the brokers.
    """

    name: str
    topic_id: bytes
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    claim: LinkClaim = LinkClaim()
    start_shift: int = 0


class CreateTopics(Struct, frozen=True, kw_only=True):
    """Create topics; a refused topic does not affect the others."""

    topics: tuple[TopicRequest, ...]
    is_validate_only: bool = False


class DeleteTopics(Struct, frozen=True, kw_only=True):
    """Delete topics by name or by id."""

    names: tuple[str, ...] = ()
    topic_ids: tuple[bytes, ...] = ()
    claim: LinkClaim = LinkClaim()


class GrowthRequest(Struct, frozen=True, kw_only=True):
    """One topic to grow to `total_count` partitions; assignments are for the new ones, in order."""

    name: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] = ()
    claim: LinkClaim = LinkClaim()
    start_shift: int = 0


class CreatePartitions(Struct, frozen=True, kw_only=True):
    """Add partitions to topics."""

    topics: tuple[GrowthRequest, ...]
    is_validate_only: bool = False


class ListChange(Struct, frozen=True, kw_only=True):
    """Items to append to the override of a list, or to remove from it (`is_removal`). A topic
    without an override begins with `inherited`.
    """

    name: str
    items: tuple[str, ...]
    inherited: str
    is_removal: bool = False


class ConfigChange(Struct, frozen=True, kw_only=True):
    """Overrides to set and to remove, and lists to change; with `replaces_all`, all other overrides
    are removed.
    """

    name: str
    set_configs: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    lists: tuple[ListChange, ...] = ()
    replaces_all: bool = False
    claim: LinkClaim = LinkClaim()


class AlterTopicConfigs(Struct, frozen=True, kw_only=True):
    """Change overrides of topics."""

    changes: tuple[ConfigChange, ...]
    is_validate_only: bool = False


class TakeOver(Struct, frozen=True, kw_only=True):
    """This controller has been elected and has loaded its cluster; the `unreachable` brokers refuse
    connections.
    """

    unreachable: frozenset[int] = frozenset()


class BrokersListed(Struct, frozen=True, kw_only=True):
    """All brokers that are registered now, and the zxid of the newest change among them."""

    brokers: Mapping[int, Broker]
    registrations_zxid: int = 0


class TopicsDiscovered(Struct, frozen=True, kw_only=True):
    """Topics that another process wrote to ZooKeeper."""

    topics: tuple[Topic, ...]


class PartitionsFound(Struct, frozen=True, kw_only=True):
    """All partitions of a topic as another process wrote them to ZooKeeper, and the znode's
    version.
    """

    topic: str
    assignment: Mapping[int, tuple[int, ...]]
    version: int


class TopicConfigsRead(Struct, frozen=True, kw_only=True):
    """Overrides of a topic as they are stored now, after a notice of change."""

    topic: str
    configs: Mapping[str, str]


class DeletionsMarked(Struct, frozen=True, kw_only=True):
    """All topics whose deletion is marked in ZooKeeper now."""

    topics: tuple[str, ...]


class QuarantineLookedAt(Struct, frozen=True, kw_only=True):
    """The topics in quarantine were read again: those that can be understood now, and the reasons
    of those that cannot.
    """

    topics: tuple[Topic, ...] = ()
    leaderships: Mapping[TopicPartition, Leadership] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


class LinksListed(Struct, frozen=True, kw_only=True):
    """All links as stored now. A link that cannot be decoded is represented by a stand-in, and
    `problems` has the reason.
    """

    links: Mapping[str, LinkRecord]
    problems: Mapping[str, str] = field(default_factory=dict)


class DeletionsAnswered(Struct, frozen=True, kw_only=True):
    """A broker applied a batch that named deleted topics; `failed` are partitions whose logs it
    could not delete.
    """

    node_id: int
    broker_epoch: int
    topic_ids: tuple[bytes, ...]
    failed: tuple[TopicPartition, ...] = ()


class RetryDeletions(Struct, frozen=True, kw_only=True):
    """The interval after which living brokers are asked again for failed deletions has passed."""


class IsrProposal(Struct, frozen=True, kw_only=True):
    """In-sync replicas that a leader wants, each with the broker epoch that it knows (-1:
    unchecked).
    """

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class AlterPartitions(Struct, frozen=True, kw_only=True):
    """All proposals that one broker has collected."""

    node_id: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]


class BrokerUnreachable(Struct, frozen=True, kw_only=True):
    """The address of this registration refuses connections: the controller presumes the broker
    dead.
    """

    node_id: int
    broker_epoch: int


class BrokerAnswered(Struct, frozen=True, kw_only=True):
    """A broker that was presumed dead has answered, and its registration is the same."""

    node_id: int
    broker_epoch: int


class ControlledShutdown(Struct, frozen=True, kw_only=True):
    """A broker is about to stop."""

    node_id: int
    broker_epoch: int


class UnregisterBroker(Struct, frozen=True, kw_only=True):
    """An operator unregisters a broker that will not return (KIP-631)."""

    node_id: int


class ReplicasOffline(Struct, frozen=True, kw_only=True):
    """A living broker has lost the log directories of exactly these replicas."""

    node_id: int
    broker_epoch: int
    partitions: frozenset[TopicPartition]


class ElectLeaders(Struct, frozen=True, kw_only=True):
    """Elect preferred leaders, or unclean ones for partitions without a leader; `partitions` None
    means all.
    """

    partitions: tuple[TopicPartition, ...] | None = None
    is_unclean: bool = False


class BalanceLeaders(Struct, frozen=True, kw_only=True):
    """The interval of the leader balance check has passed."""

    imbalance_percentage: int


class StoreRaised(Struct, frozen=True, kw_only=True):
    """Store the states of at most so many partitions whose leader epochs are raised."""

    count_max: int


class UncleanElectionRead(Struct, frozen=True, kw_only=True):
    """The altered config that allows or forbids unclean elections for all topics; None when the
    properties file counts.
    """

    is_allowed: bool | None


class AlterReassignments(Struct, frozen=True, kw_only=True):
    """Other replicas for partitions; None cancels a reassignment."""

    targets: tuple[tuple[TopicPartition, tuple[int, ...] | None], ...]
    must_keep_replication_factor: bool = False


Command = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterTopicConfigs
    | TakeOver
    | BrokersListed
    | TopicsDiscovered
    | PartitionsFound
    | TopicConfigsRead
    | DeletionsMarked
    | QuarantineLookedAt
    | LinksListed
    | DeletionsAnswered
    | RetryDeletions
    | AlterPartitions
    | BrokerUnreachable
    | BrokerAnswered
    | ControlledShutdown
    | UnregisterBroker
    | ReplicasOffline
    | ElectLeaders
    | BalanceLeaders
    | StoreRaised
    | UncleanElectionRead
    | AlterReassignments
    | EntityConfigCommand
)
