"""The inputs and outputs of the group machine: commands, replies, records, effects. Values only.

Commands are imperatives from clients (with a token that identifies the waiting request) or from the
shell (a timer that fired, a role that changed). Records are facts: durable ones go to
`__consumer_offsets` and are valid once they are committed; the others exist in memory only. Effects
are executed after the records of the same decision were applied.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact, TopicShapes
from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply, MemberHeartbeat
from broker.groups.core.group_states import NO_GENERATION, AssignmentProtocol, Group
from wire.batches.group_records import OffsetValue
from wire.protocol.ids import NO_TIMESTAMP, TopicPartition

# --- commands


class Command(Struct, frozen=True, kw_only=True):
    """A command for one group."""

    group_id: str


class JoinGroup(Command, frozen=True, kw_only=True):
    """Become or stay a member. `fresh_member_id` is used if the member has no id yet."""

    member_id: str
    fresh_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[AssignmentProtocol, ...]
    requires_known_member: bool
    """True from version 4 on: a member joins again with the member id that the broker gave it
    (KIP-394).
    """
    may_skip_assignment: bool
    """True from version 9 on: the response can let a static leader keep its assignment
    (KIP-814).
    """
    topics: TopicShapes = field(default_factory=dict)
    """The topics that clients see, for a group with KIP-848 members."""


class SyncGroup(Command, frozen=True, kw_only=True):
    """Ask for the assignment; the leader's request has the assignments of all members."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    topics: TopicShapes = field(default_factory=dict)


class Heartbeat(Command, frozen=True, kw_only=True):
    """Say that the member lives."""

    member_id: str
    group_instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """A member that leaves; a static member may be named by its group instance id alone."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(Command, frozen=True, kw_only=True):
    """Take members out."""

    members: tuple[LeavingMember, ...]
    topics: TopicShapes = field(default_factory=dict)


class CommittedOffset(NamedTuple):
    """An offset that a client commits. `retention_ms` -1 means the broker's own retention."""

    offset: int
    leader_epoch: int
    metadata: str
    retention_ms: int = -1


class CommitOffsets(Command, frozen=True, kw_only=True):
    """Store offsets, as a member of a generation or, without one, for a group that has no
    members.
    """

    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = NO_GENERATION
    offsets: Mapping[TopicPartition, CommittedOffset]
    knows_member_epochs: bool = True
    """False for a request of a version from before KIP-848."""


class CommitTransactionOffsets(CommitOffsets, frozen=True, kw_only=True):
    """Store offsets that become valid when the producer's transaction is committed. `guard` comes
    from the admission of the command.
    """

    producer_id: int
    producer_epoch: int
    guard: int


class EndProducerTransaction(Command, frozen=True, kw_only=True):
    """The marker that ends a producer's transaction. It belongs to no group: the group id is
    empty.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class MirrorOffsets(Command, frozen=True, kw_only=True):
    """Store offsets that a mirror read at the active site, and remove offsets that the active site
    has removed (offset -1). Refused while the group has members here. The metadata of a removed
    offset is the offset that the mirror knows here: if the group has another one, it stays.
    `carried_by` names the link and its epoch, and is stored with the offsets; the coordinator sets
    it.
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    carried_by: str = ""


class DeleteGroup(Command, frozen=True, kw_only=True):
    """Forget the group and its offsets."""


class DeleteOffsets(Command, frozen=True, kw_only=True):
    """Forget some offsets."""

    partitions: tuple[TopicPartition, ...]


class ForgetTopics(Command, frozen=True, kw_only=True):
    """Topics were deleted: remove their offsets."""

    topics: frozenset[str]


class ExpireOffsets(Command, frozen=True, kw_only=True):
    """Remove offsets older than the retention time, which is counted from `counted_from_ms` at the
    earliest.
    """

    counted_from_ms: int = NO_TIMESTAMP


class EvictMembers(Command, frozen=True, kw_only=True):
    """Another site coordinates the group now: its members must find their coordinator again."""


class ResumeGroup(Command, frozen=True, kw_only=True):
    """After a replay of the log: members have one session timeout to return."""


class ConsumerHeartbeat(Command, frozen=True, kw_only=True):
    """A member of a KIP-848 group reports its subscription and partitions. `topics` are all topics
    that clients can see.
    """

    said: MemberHeartbeat
    topics: TopicShapes


class TimerKind(enum.Enum):
    """The purpose of a timer."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    PENDING = "pending"
    CONSUMER_SESSION = "consumer session"
    CONSUMER_REBALANCE = "consumer rebalance"
    REJOIN = "rejoin"
    """A classic member of a KIP-848 group was asked to rejoin."""
    FIRST_SYNC = "first sync"
    """The member has joined, and must ask for its assignment."""


class TimerKey(NamedTuple):
    """One timer of a group; `member_id` is empty for timers of the whole group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class FireTimer(Command, frozen=True, kw_only=True):
    """A timer's time has come."""

    key: TimerKey
    topics: TopicShapes = field(default_factory=dict)


class TakeMembers(Command, frozen=True, kw_only=True):
    """The members that the group has at the other site, which stops coordinating it."""

    records: tuple[MemberRecord, ...]


# --- replies


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinReply(Struct, frozen=True, kw_only=True):
    """The generation that was joined."""

    error: ErrorCode = ErrorCode.none
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncReply(Struct, frozen=True, kw_only=True):
    """The member's assignment."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class CodeReply(Struct, frozen=True, kw_only=True):
    """Done, or why not."""

    error: ErrorCode = ErrorCode.none


class LeaveReply(Struct, frozen=True, kw_only=True):
    """The result for each member, in the order of the request."""

    errors: tuple[ErrorCode, ...]


class PartitionsReply(Struct, frozen=True, kw_only=True):
    """The result for the whole group, then for each partition."""

    error: ErrorCode = ErrorCode.none
    errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


Reply = JoinReply | SyncReply | CodeReply | LeaveReply | PartitionsReply | HeartbeatReply


# --- records


class GroupStored(Struct, frozen=True, kw_only=True):
    """Durable: the group's current generation."""

    group: Group


class GroupChanged(Struct, frozen=True, kw_only=True):
    """In memory only: the group is between two generations."""

    group: Group


class GroupRemoved(Struct, frozen=True, kw_only=True):
    """Durable: the group was deleted (its offsets are removed one by one)."""

    group_id: str


class OffsetCommitted(Struct, frozen=True, kw_only=True):
    """Durable: the group's offset of a partition."""

    group_id: str
    partition: TopicPartition
    value: OffsetValue


class OffsetRemoved(Struct, frozen=True, kw_only=True):
    """Durable: the group has no offset of the partition."""

    group_id: str
    partition: TopicPartition


class OffsetPending(Struct, frozen=True, kw_only=True):
    """Durable: an offset that becomes valid when the producer's transaction is committed."""

    group_id: str
    partition: TopicPartition
    value: OffsetValue
    producer_id: int
    producer_epoch: int


class TransactionEnded(Struct, frozen=True, kw_only=True):
    """Durable, as a marker: the producer's pending offsets become valid, or are dropped."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


MemberRecord = GroupStored | ConsumerFact
"""A record that restores members of a group."""
KeyedRecord = GroupStored | GroupRemoved | OffsetCommitted | OffsetRemoved | OffsetPending | ConsumerFact
DurableRecord = KeyedRecord | TransactionEnded
GroupRecord = DurableRecord | GroupChanged


# --- effects


class Answer(Struct, frozen=True, kw_only=True):
    """Answer the request with this token; it may have ended already."""

    token: int
    reply: Reply


class StartTimer(Struct, frozen=True, kw_only=True):
    """Start or restart the timer; with `keeps_running`, a running timer is not restarted."""

    key: TimerKey
    delay_ms: int
    keeps_running: bool = False


class CancelTimer(Struct, frozen=True, kw_only=True):
    """Stop the timer if it runs."""

    key: TimerKey


Effect = Answer | StartTimer | CancelTimer


class Decision(Struct, frozen=True, kw_only=True):
    """Records to commit and apply, then effects to execute; `reason` is one sentence for the
    log.
    """

    records: tuple[GroupRecord, ...] = ()
    effects: tuple[Effect, ...] = ()
    reason: str = ""
