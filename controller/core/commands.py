"""The controller's commands and what they result in: commands in, one `Decision` out.

Commands that a client waits for carry a `TopicOutcome` per topic back in `Decision.reply`. Chance
enters as data (`topic_id`, `start_shift`), so that a decision is a function of cluster and command.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from controller.core.cluster import Broker, Leadership, Topic
from controller.core.facts import Fact
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.acls import AccessEntry, Acl, AclFilter, ResourcePattern
from wire.rules.client_quotas import QuotaEntity
from wire.rules.delegation_tokens import DelegationToken


class LinkClaim(Struct, frozen=True, kw_only=True):
    """A mirror's claim to act for a link at an epoch; an empty name claims nothing."""

    link: str = ""
    epoch: int = 0


class TopicRequest(Struct, frozen=True, kw_only=True):
    """One topic to create; counts of -1 mean the site's defaults, an empty assignment lets the
    controller place.
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
    """Create topics, each for itself."""

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


class ConfigChange(Struct, frozen=True, kw_only=True):
    """Overrides to set and to remove; with `replaces_all`, what is not set goes."""

    name: str
    set_configs: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    replaces_all: bool = False
    claim: LinkClaim = LinkClaim()


class AlterTopicConfigs(Struct, frozen=True, kw_only=True):
    """Change overrides of topics."""

    changes: tuple[ConfigChange, ...]
    is_validate_only: bool = False


class TakeOver(Struct, frozen=True, kw_only=True):
    """This controller has just been elected and its cluster loaded; nothing listens any more at the
    `unreachable` of its brokers.
    """

    unreachable: frozenset[int] = frozenset()


class BrokersListed(Struct, frozen=True, kw_only=True):
    """All brokers that are registered now."""

    brokers: Mapping[int, Broker]


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
    """All links as stored now; a link that cannot be understood has its stand-in, and the reason
    among the problems.
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
    """Time to ask living brokers again for deletions that failed."""


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
    """One broker's proposals, all that had gathered there."""

    node_id: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]


class BrokerUnreachable(Struct, frozen=True, kw_only=True):
    """A report that nothing listens any more at the address of this registration: the controller
    treats the broker as dead.
    """

    node_id: int
    broker_epoch: int


class BrokerAnswered(Struct, frozen=True, kw_only=True):
    """A broker that was held for dead has answered, under the registration that stands."""

    node_id: int
    broker_epoch: int


class ControlledShutdown(Struct, frozen=True, kw_only=True):
    """A broker is about to stop."""

    node_id: int
    broker_epoch: int


class UnregisterBroker(Struct, frozen=True, kw_only=True):
    """An operator gives up a broker that is gone for good (KIP-631)."""

    node_id: int


class ReplicasOffline(Struct, frozen=True, kw_only=True):
    """A broker lives, but these of its replicas have no log directory any more; all others have."""

    node_id: int
    broker_epoch: int
    partitions: frozenset[TopicPartition]


class ElectLeaders(Struct, frozen=True, kw_only=True):
    """Elect preferred leaders, or unclean ones where there is no leader; `partitions` None means
    all.
    """

    partitions: tuple[TopicPartition, ...] | None = None
    is_unclean: bool = False


class BalanceLeaders(Struct, frozen=True, kw_only=True):
    """Time to see which brokers lead too little of what they are preferred for."""

    imbalance_percentage: int


class UncleanElectionRead(Struct, frozen=True, kw_only=True):
    """The altered config that allows or forbids unclean elections for all topics; None when the
    properties file counts.
    """

    is_allowed: bool | None


class AlterReassignments(Struct, frozen=True, kw_only=True):
    """Other replicas for partitions; None cancels what is under way."""

    targets: tuple[tuple[TopicPartition, tuple[int, ...] | None], ...]
    must_keep_replication_factor: bool = False


class QuotaChange(Struct, frozen=True, kw_only=True):
    """Quotas of one entity to set and to remove."""

    entity: QuotaEntity
    set_values: Mapping[str, float] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


class AlterClientQuotas(Struct, frozen=True, kw_only=True):
    """Change client quotas, each entity for itself."""

    changes: tuple[QuotaChange, ...]
    is_validate_only: bool = False


class ClientQuotasRead(Struct, frozen=True, kw_only=True):
    """All client quotas as they are stored now, after a notice of change."""

    quotas: Mapping[QuotaEntity, Mapping[str, float]]


class ScramUserChange(Struct, frozen=True, kw_only=True):
    """SCRAM credentials of one user to set and to remove, by mechanism."""

    name: str
    set_credentials: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


class AlterScramUsers(Struct, frozen=True, kw_only=True):
    """Change SCRAM credentials, each user for itself."""

    changes: tuple[ScramUserChange, ...]


class ScramUsersRead(Struct, frozen=True, kw_only=True):
    """All SCRAM credentials as they are stored now, after a notice of change."""

    users: Mapping[str, Mapping[str, str]]


class AlterAcls(Struct, frozen=True, kw_only=True):
    """Add ACLs, then remove those that a filter means."""

    creations: tuple[Acl, ...] = ()
    removals: tuple[AclFilter, ...] = ()


class AclsRead(Struct, frozen=True, kw_only=True):
    """All ACLs as they are stored now, after a notice of change."""

    acls: Mapping[ResourcePattern, frozenset[AccessEntry]]


class DelegationTokenChange(Struct, frozen=True, kw_only=True):
    """A delegation token to make (`is_new`), to alter, or to remove (None)."""

    token_id: str
    token: DelegationToken | None
    is_new: bool = False


class AlterDelegationTokens(Struct, frozen=True, kw_only=True):
    """Change delegation tokens, each for itself."""

    changes: tuple[DelegationTokenChange, ...]


class DelegationTokensRead(Struct, frozen=True, kw_only=True):
    """All delegation tokens as they are stored now, after a notice of change."""

    tokens: Mapping[str, DelegationToken]


class RemoveExpiredTokens(Struct, frozen=True, kw_only=True):
    """Remove the tokens that have expired before this time (Unix ms)."""

    now_ms: int


class GroupConfigChange(Struct, frozen=True, kw_only=True):
    """Configs of one group to set and to remove; with `replaces_all` what is not set is removed."""

    group: str
    set_values: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    replaces_all: bool = False


class AlterGroupConfigs(Struct, frozen=True, kw_only=True):
    """Change configs of groups; the broker that asks has checked the values."""

    changes: tuple[GroupConfigChange, ...]


class GroupConfigsRead(Struct, frozen=True, kw_only=True):
    """The configs of all groups as they are stored now, after a notice of change."""

    configs: Mapping[str, Mapping[str, str]]


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
    | UncleanElectionRead
    | AlterReassignments
    | AlterClientQuotas
    | ClientQuotasRead
    | AlterScramUsers
    | ScramUsersRead
    | AlterAcls
    | AclsRead
    | AlterDelegationTokens
    | DelegationTokensRead
    | RemoveExpiredTokens
    | AlterGroupConfigs
    | GroupConfigsRead
)


EntityConfigCommand = (
    AlterClientQuotas
    | ClientQuotasRead
    | AlterScramUsers
    | ScramUsersRead
    | AlterAcls
    | AclsRead
    | AlterDelegationTokens
    | DelegationTokensRead
    | RemoveExpiredTokens
    | AlterGroupConfigs
    | GroupConfigsRead
)


class TopicOutcome(Struct, frozen=True, kw_only=True):
    """The outcome for one topic of a request."""

    name: str
    error: ErrorCode = ErrorCode.none
    message: str = ""
    topic: Topic | None = None


class PartitionOutcome(Struct, frozen=True, kw_only=True):
    """The outcome for one partition of a request."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.none
    message: str = ""


class QuotaOutcome(Struct, frozen=True, kw_only=True):
    """The outcome for one entity of a request about quotas, or one user of a request about
    credentials.
    """

    error: ErrorCode = ErrorCode.none
    message: str = ""


class AclOutcome(Struct, frozen=True, kw_only=True):
    """The result of one creation or one filter of a request about ACLs."""

    error: ErrorCode = ErrorCode.none
    message: str = ""
    removed: tuple[Acl, ...] = ()


class Publish(Struct, frozen=True, kw_only=True):
    """Effect: send a change to every living broker. A named topic goes with its configs, partitions
    with their leaderships.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    deleted_topics: tuple[tuple[str, bytes], ...] = ()
    links: frozenset[str] = frozenset()
    deleted_links: tuple[str, ...] = ()
    quotas: frozenset[QuotaEntity] = frozenset()
    scram_users: frozenset[str] = frozenset()
    acls: frozenset[ResourcePattern] = frozenset()
    delegation_tokens: frozenset[str] = frozenset()
    group_configs: frozenset[str] = frozenset()


class PublishImage(Struct, frozen=True, kw_only=True):
    """Effect: send the whole image to these brokers; they are new or restarted."""

    node_ids: tuple[int, ...]


Effect = Publish | PublishImage


class Decision(Struct, frozen=True, kw_only=True):
    """Facts to make durable and apply, effects to act on afterwards, the reply (by topic, by
    partition, by quota entity, or an error for the whole request), and why in one sentence.
    """

    facts: tuple[Fact, ...] = ()
    effects: tuple[Effect, ...] = ()
    reply: tuple[TopicOutcome, ...] = ()
    partitions: tuple[PartitionOutcome, ...] = ()
    quotas: tuple[QuotaOutcome, ...] = ()
    acls: tuple[AclOutcome, ...] = ()
    error: ErrorCode = ErrorCode.none
    message: str = ""
    """The message for the client beside `error`."""
    reason: str = ""
