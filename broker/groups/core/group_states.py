"""A consumer group as a value: its state, its members, and properties derived from them. Pure and
immutable.

| state | members | left by |
| --- | --- | --- |
| EMPTY | none (it may hold offsets) | a join, or its removal |
| PREPARING_REBALANCE | those of the last generation and newcomers, as they join | everybody joined, or the rebalance timeout |
| COMPLETING_REBALANCE | the new generation, waiting for its leader's assignment | the leader's sync, or any member that comes or goes |
| STABLE | the generation with its assignment | any member that comes, goes or changes |

DEAD is the state of a group that does not exist. The generation as of the last STABLE or EMPTY
state and its members are durable. Waiting requests, assigned member ids and the remaining delay of
the first rebalance exist in memory only. `durable` is the part that a replay of the log must
reproduce.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

NO_GENERATION: Final = -1
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class GroupState(enum.Enum):
    """Named as Kafka's tools print them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class AssignmentProtocol(NamedTuple):
    """A protocol that a member supports for assignment, with its subscription under it; opaque to
    the broker.
    """

    name: str
    metadata: bytes


class Member(Struct, frozen=True, kw_only=True):
    """One member. `join_token` and `sync_token` identify a request that waits for its answer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[AssignmentProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_token: int | None = None
    sync_token: int | None = None

    @property
    def is_static(self) -> bool:
        """True for a member with a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """True while one of the member's requests waits: it cannot send heartbeats then."""
        return self.join_token is not None or self.sync_token is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """The member's metadata under the protocol; empty if the member does not support it."""
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), b"")


class InitialDelay(Struct, frozen=True, kw_only=True):
    """The first rebalance of an empty group waits, so that members that start together join one
    generation (KIP-134).
    """

    left_ms: int
    has_newcomer: bool = False


class Group(Struct, frozen=True, kw_only=True):
    """One group; see the module."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    """Member ids that were assigned and have not joined yet."""
    unsynced: frozenset[str] = frozenset()
    """Members of this generation that have not asked for their assignment yet."""
    initial_delay: InitialDelay | None = None

    @property
    def is_simple(self) -> bool:
        """True for a group that never had members: a client stores offsets under its name."""
        return self.protocol_type is None

    @property
    def has_all_joined(self) -> bool:
        """True when no member is awaited before the next generation."""
        return not self.pending and all(member.join_token is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks the others to wait."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member(self, group_instance_id: str | None) -> Member | None:
        """The member with this instance id."""
        if group_instance_id is None:
            return None
        return next((member for member in self.members.values() if member.group_instance_id == group_instance_id), None)

    def supports(self, protocol_type: str, protocols: Iterable[AssignmentProtocol]) -> bool:
        """True if a member with these protocols can join the group."""
        if not self.members:
            return True
        return protocol_type == self.protocol_type and not self._candidates().isdisjoint(
            offered.name for offered in protocols
        )

    def vote(self) -> str:
        """The protocol that all members support and most prefer; in a tie, the earliest member's
        preference decides.
        """
        candidates = self._candidates()
        votes = Counter(
            next(offered.name for offered in member.protocols if offered.name in candidates)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _candidates(self) -> set[str]:
        offers = [{offered.name for offered in member.protocols} for member in self.members.values()]
        return set.intersection(*offers) if offers else set()

    def with_member(self, member: Member) -> Group:
        """A copy with the member added or replaced; the first member leads and sets the protocol
        type.
        """
        return replace(self, members={**self.members, member.member_id: member}, leader=self.leader or member.member_id)

    def with_members(self, members: Iterable[Member]) -> Group:
        """A copy with exactly these members, in their order."""
        return replace(self, members={member.member_id: member for member in members})

    def with_renamed_member(self, member_id: str, successor: Member) -> Group:
        """A static member returned under a new id: its assignment and, if it had it, its leadership
        move to the new id.
        """
        return replace(
            self,
            members={
                (successor if former.member_id == member_id else former).member_id: (
                    successor if former.member_id == member_id else former
                )
                for former in self.members.values()
            },
            leader=successor.member_id if self.leader == member_id else self.leader,
            unsynced=frozenset(successor.member_id if known == member_id else known for known in self.unsynced),
        )

    def without_member(self, member_id: str) -> Group:
        """The group without the member; the next one in order of joining becomes leader."""
        members = {known: member for known, member in self.members.items() if known != member_id}
        leader = next(iter(members), None) if self.leader == member_id else self.leader
        return replace(self, members=members, leader=leader, unsynced=self.unsynced - {member_id})

    def in_state(self, state: GroupState, *, now_ms: int) -> Group:
        """A copy in this state, since `now_ms`."""
        return replace(self, state=state, state_since_ms=now_ms)

    def durable(self) -> Group:
        """The part of a STABLE or EMPTY group that the log holds, as a replay restores it."""
        members = {
            member_id: replace(
                member,
                protocols=(AssignmentProtocol(self.protocol or "", member.metadata_for(self.protocol)),),
                is_new=False,
                join_token=None,
                sync_token=None,
            )
            for member_id, member in self.members.items()
        }
        state = GroupState.STABLE if members else GroupState.EMPTY
        return replace(
            self, state=state, members=members, pending=frozenset(), unsynced=frozenset(), initial_delay=None
        )

    def violations(self) -> Iterable[str]:
        """The invariants that this value violates; empty for a valid value."""
        if (self.state is GroupState.EMPTY) is bool(self.members) and self.state is not GroupState.PREPARING_REBALANCE:
            yield f"state {self.state.value} with {len(self.members)} members"
        is_replayed = self.state is GroupState.STABLE and must_rebalance(self)
        if self.members and self.leader not in self.members and not is_replayed:
            yield f"leader {self.leader} is not a member"
        if not self.pending.isdisjoint(self.members):
            yield "a pending id is a member"
        if not self.unsynced <= set(self.members):
            yield "an id awaited in the sync is not a member"
        instances = Counter(member.group_instance_id for member in self.members.values() if member.is_static)
        if any(count > 1 for count in instances.values()):
            yield "an instance id is used twice"
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            if any(member.join_token is not None for member in self.members.values()):
                yield "a join waits although the generation is complete"
            if self.protocol is None:
                yield "members without a protocol"
        if self.state is not GroupState.COMPLETING_REBALANCE and any(
            member.sync_token is not None for member in self.members.values()
        ):
            yield f"a sync waits in state {self.state.value}"
        if self.initial_delay is not None and self.state is not GroupState.PREPARING_REBALANCE:
            yield f"an initial delay in state {self.state.value}"


def must_rebalance(group: Group) -> bool:
    """True for a replayed group that has just become a classic group: it has no leader yet."""
    return bool(group.members) and group.leader is None
