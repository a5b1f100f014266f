"""The result of a controller command: facts, effects, and a reply."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec import Struct

from controller.core.state.facts import Fact
from controller.core.state.site_values import EpochRaise, Topic
from wire.protocol.ids import TopicPartition
from wire.rules.acls import Acl, ResourcePattern
from wire.rules.client_quotas import QuotaEntity


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
    """The outcome for one entity of a request about quotas or configs of groups, or one user of a
    request about credentials.
    """

    error: ErrorCode = ErrorCode.none
    message: str = ""


class AclOutcome(Struct, frozen=True, kw_only=True):
    """The result of one creation or one filter of a request about ACLs."""

    error: ErrorCode = ErrorCode.none
    message: str = ""
    removed: tuple[Acl, ...] = ()


class Publish(Struct, frozen=True, kw_only=True):
    """Effect: send a change to every living broker. The message has the configs of the named topics
    and the leaderships of the partitions.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    raises: tuple[EpochRaise, ...] = ()
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
