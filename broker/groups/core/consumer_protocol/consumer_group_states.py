"""A KIP-848 consumer group: its members, the assignment that it works towards, and what each member
owns now. Pure.

The state is exactly what its records say (`wire/batches/consumer_group_records.py`); `put` is the
only way to change it. There are three epochs. The group epoch grows with every change of members,
subscriptions or topics. The target epoch is the group epoch at which the target was computed. A
member epoch is the target epoch that the member has reached. A member revokes partitions before it
gets new ones, and gets a partition only when no other member owns it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.groups.core.consumer_protocol.server_assignors import Owned, TopicIdPartition
from wire.batches.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Partitions,
    TargetAssignment,
    TargetEpoch,
)

TopicShape = tuple[bytes, int]
"""A topic's id and partition count."""
TopicShapes = Mapping[str, TopicShape]

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2


class MemberState(enum.IntEnum):
    """Kafka's numbers in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class Reached(NamedTuple):
    """The partitions that a member owns, and its progress towards the target assignment."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = frozenset()
    pending_revocation: Owned = frozenset()

    @property
    def held(self) -> Owned:
        """The partitions that no other member may own."""
        return self.assigned | self.pending_revocation


NOTHING_REACHED: Final = Reached()


class ConsumerFact(NamedTuple):
    """A durable record of a consumer group; a value of None removes what the key names."""

    key: ConsumerGroupKey
    value: ConsumerGroupValue | None


@dataclass(slots=True)
class ConsumerGroup:
    """One group of the consumer protocol; `put` changes it."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, MemberMetadata] = field(default_factory=dict)
    targets: dict[str, Owned] = field(default_factory=dict)
    reached: dict[str, Reached] = field(default_factory=dict)
    checked_topics: TopicShapes | None = field(default=None, compare=False)
    """Topics that are known to change nothing: this saves a check of every subscription at each
    heartbeat.
    """
    reported_owned: dict[str, Owned] = field(default_factory=dict, compare=False)
    """The partitions that each member last reported as owned to this coordinator; not in the
    log.
    """

    def put(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """Apply one record of the log."""
        match value:
            case None:
                self._remove(key)
            case GroupEpoch():
                self.epoch, self.metadata_hash = value
            case MemberMetadata():
                self.members[key.member_id] = value
                self.checked_topics = None
            case TargetEpoch():
                self.target_epoch = value.epoch
            case TargetAssignment():
                self.targets[key.member_id] = owned_of(value.partitions)
            case CurrentAssignment():
                self.reached[key.member_id] = Reached(
                    value.epoch,
                    value.previous_epoch,
                    MemberState(value.state),
                    owned_of(value.assigned),
                    owned_of(value.pending_revocation),
                )

    def _remove(self, key: ConsumerGroupKey) -> None:
        self.checked_topics = None
        match key.kind:
            case 5:
                self.members.pop(key.member_id, None)
                self.reported_owned.pop(key.member_id, None)
            case 7:
                self.targets.pop(key.member_id, None)
            case 8:
                self.reached.pop(key.member_id, None)
            case _:
                pass

    def reached_by(self, member_id: str) -> Reached:
        """The partitions that the member owns; none for a new member."""
        return self.reached.get(member_id, NOTHING_REACHED)

    def static_member(self, instance_id: str | None) -> str | None:
        """Id of the member with this instance id."""
        if instance_id is None:
            return None
        return next((name for name, member in self.members.items() if member.instance_id == instance_id), None)

    def holders(self, *, but: str) -> set[TopicIdPartition]:
        """Partitions that members other than this one own."""
        held: set[TopicIdPartition] = set()
        for member_id, reached in self.reached.items():
            if member_id != but:
                held |= reached.held
        return held

    @property
    def state(self) -> str:
        """The group's state under the name that Kafka's tools print."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_settled = all(
            self.reached_by(name).epoch == self.target_epoch and self.reached_by(name).state is MemberState.STABLE
            for name in self.members
        )
        return "Stable" if is_settled else "Reconciling"

    def violations(self) -> Iterable[str]:
        """The invariants that the group violates; empty for a valid group."""
        seen: set[TopicIdPartition] = set()
        for member_id, reached in self.reached.items():
            if member_id not in self.members:
                yield f"{member_id} owns partitions but is not a member"
            if seen & reached.held:
                yield f"{member_id} owns a partition of another member"
            seen |= reached.held
        if self.target_epoch > self.epoch:
            yield f"target epoch {self.target_epoch} above group epoch {self.epoch}"


def owned_of(partitions: Partitions) -> Owned:
    """A set of partitions from its form in records."""
    return frozenset(TopicIdPartition(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes)


def partitions_of(owned: Iterable[TopicIdPartition]) -> Partitions:
    """The set's form in records, in order."""
    found: dict[bytes, tuple[int, ...]] = {}
    for topic_id, index in sorted(owned):
        found[topic_id] = (*found.get(topic_id, ()), index)
    return found


def copy_of(group: ConsumerGroup) -> ConsumerGroup:
    """A copy of the group on which a decision is computed."""
    return ConsumerGroup(
        group_id=group.group_id,
        epoch=group.epoch,
        metadata_hash=group.metadata_hash,
        target_epoch=group.target_epoch,
        members=dict(group.members),
        targets=dict(group.targets),
        reached=dict(group.reached),
    )
