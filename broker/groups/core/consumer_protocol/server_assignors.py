"""The assignors that the coordinator itself runs for KIP-848 groups: they assign each partition to
a member. Pure.

`uniform` distributes all partitions evenly and moves as few as possible. `range` gives each member,
topic by topic, a sequence of neighbouring partitions, so that topics with the same number of
partitions are divided alike. Both look at members in the order of their ids, so that the same input
gives the same answer everywhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from broker.settings.core.group_configs import RANGE, UNIFORM


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


Owned = frozenset[TopicIdPartition]


class AssignmentInput(NamedTuple):
    """The topic ids that each member subscribes to, partition counts by topic id, and the current
    assignment of each member.
    """

    subscriptions: Mapping[str, Collection[bytes]]
    partition_counts: Mapping[bytes, int]
    current: Mapping[str, Owned]


Assignor = Callable[[AssignmentInput], Mapping[str, Owned]]


def uniform(given: AssignmentInput) -> Mapping[str, Owned]:
    """Distribute all partitions evenly, moving as few as possible."""
    eligible = {member: frozenset(topics) for member, topics in sorted(given.subscriptions.items())}
    counts = given.partition_counts
    assigned: dict[str, set[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for member, topics in eligible.items():
        owned = given.current.get(member, frozenset()) - taken
        kept = {
            found for found in owned if found.topic_id in topics and found.partition < counts.get(found.topic_id, 0)
        }
        assigned[member] = kept
        taken |= kept
    for topic_id, count in sorted(counts.items()):
        takers = [(len(assigned[member]), member) for member, topics in eligible.items() if topic_id in topics]
        heapq.heapify(takers)
        for index in range(count) if takers else ():
            found = TopicIdPartition(topic_id, index)
            if found not in taken:
                size, member = takers[0]
                assigned[member].add(found)
                heapq.heapreplace(takers, (size + 1, member))
    _balance(assigned, eligible)
    return {member: frozenset(owned) for member, owned in assigned.items()}


def _balance(assigned: dict[str, set[TopicIdPartition]], eligible: Mapping[str, frozenset[bytes]]) -> None:
    """Move single partitions from the members with the most to those with the least, while that
    narrows the gap.
    """
    is_moved = True
    while is_moved:
        is_moved = False
        for giver in sorted(assigned, key=lambda member: (-len(assigned[member]), member)):
            for taker in sorted(assigned, key=lambda member: (len(assigned[member]), member)):
                if len(assigned[giver]) - len(assigned[taker]) < 2:
                    break
                movable = [found for found in assigned[giver] if found.topic_id in eligible[taker]]
                if movable:
                    moved = max(movable)
                    assigned[giver].remove(moved)
                    assigned[taker].add(moved)
                    is_moved = True
                    break


def range_by_topic(given: AssignmentInput) -> Mapping[str, Owned]:
    """Give each member neighbouring partitions of each topic."""
    assigned: dict[str, set[TopicIdPartition]] = {member: set() for member in given.subscriptions}
    for topic_id, count in given.partition_counts.items():
        takers = sorted(member for member, topics in given.subscriptions.items() if topic_id in topics)
        if not takers:
            continue
        share, extra = divmod(count, len(takers))
        start = 0
        for position, member in enumerate(takers):
            end = start + share + (position < extra)
            assigned[member].update(TopicIdPartition(topic_id, index) for index in range(start, end))
            start = end
    return {member: frozenset(owned) for member, owned in assigned.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: uniform, RANGE: range_by_topic}
