"""The target assignment of a KIP-848 group: the topics to which its members subscribe, and the
member that is to own each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b

from broker.groups.core.consumer_protocol.consumer_group_states import (
    ConsumerGroup,
    TopicShapes,
    partitions_of,
)
from broker.groups.core.consumer_protocol.consumer_turn import ConsumerTurn
from broker.groups.core.consumer_protocol.server_assignors import ASSIGNORS, AssignmentInput
from broker.groups.core.consumer_protocol.topic_patterns import is_matched
from wire.batches.consumer_group_records import (
    TARGET_EPOCH_KIND,
    TARGET_KIND,
    MemberMetadata,
    TargetAssignment,
    TargetEpoch,
)


def subscribed_names(member: MemberMetadata, topics: TopicShapes) -> set[str]:
    """Topics that the member wants and that exist."""
    found = {name for name in member.topic_names if name in topics}
    if member.topic_regex:
        found |= {name for name in topics if is_matched(member.topic_regex, name)}
    return found


def subscription(group: ConsumerGroup) -> Callable[[str], bool]:
    """A predicate on topic names: True if members of the group subscribe to the topic; the topic
    need not exist.
    """
    names = {name for member in group.members.values() for name in member.topic_names}
    patterns = {member.topic_regex for member in group.members.values() if member.topic_regex}
    return lambda topic: topic in names or any(is_matched(text, topic) for text in patterns)


def _subscriptions(turn: ConsumerTurn) -> Mapping[str, Collection[str]]:
    remembered: dict[tuple[tuple[str, ...], str | None], set[str]] = {}
    found = {}
    for member_id, member in turn.group.members.items():
        key = (member.topic_names, member.topic_regex)
        if key not in remembered:
            remembered[key] = subscribed_names(member, turn.topics)
        found[member_id] = remembered[key]
    return found


def metadata_hash_of(turn: ConsumerTurn) -> int:
    """A hash that changes when a subscribed topic is created, deleted or gets partitions."""
    names: set[str] = set()
    for subscribed in _subscriptions(turn).values():
        names.update(subscribed)
    if not names:
        return 0
    digest = blake2b(digest_size=8)
    for topic_id, count in sorted(turn.topics[name] for name in names):
        digest.update(topic_id + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)


def assignor_of(group: ConsumerGroup, assignors: Sequence[str]) -> str:
    """The assignor that most members request, among those that the broker offers; of several, or if
    no member requests any, the first in the broker's order.
    """
    votes = [member.server_assignor for member in group.members.values()]
    return max(assignors, key=votes.count)


def work_target_out(turn: ConsumerTurn) -> None:
    """Compute the target assignment for the group's epoch, unless it exists."""
    group = turn.group
    if group.target_epoch == group.epoch:
        return
    subscriptions = _subscriptions(turn)
    shapes = {turn.topics[name] for names in subscriptions.values() for name in names}
    given = AssignmentInput(
        subscriptions={member: {turn.topics[name][0] for name in names} for member, names in subscriptions.items()},
        partition_counts=dict(shapes),
        current={member: group.targets.get(member, frozenset()) for member in group.members},
    )
    for member_id, owned in ASSIGNORS[assignor_of(group, turn.assignors)](given).items():
        if group.targets.get(member_id) != owned:
            turn.put(TARGET_KIND, TargetAssignment(partitions_of(owned)), member_id)
    turn.put(TARGET_EPOCH_KIND, TargetEpoch(group.epoch))
