"""Finds the topics of a link that the standby does not protect: missing, incomplete, or the copy of
an older topic with that name.

A site finds them from its own topics and its peer's last report, so it knows them even if the peer
is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec import Struct

from wire.control.cluster_pb2 import LinkRecord, TopicInfo
from wire.rules.links import carries_topic
from wire.znodes.topic_znodes import TopicAssignment


class UnprotectedTopic(Struct, frozen=True, kw_only=True):
    """Partitions of the active site's topic of which the other site keeps nothing, and the
    reason.
    """

    topic: str
    partitions: tuple[int, ...]
    reason: str


def unprotected_topics(
    own: Mapping[str, TopicAssignment], peer: Iterable[TopicInfo], link: LinkRecord, *, site: str
) -> list[UnprotectedTopic]:
    """Return the peer's topics that the link carries and the site lacks, by name."""
    found = [_unprotected(theirs, own.get(theirs.name), site) for theirs in peer if carries_topic(link, theirs.name)]
    return sorted((topic for topic in found if topic.partitions), key=lambda topic: topic.topic)


def _unprotected(theirs: TopicInfo, ours: TopicAssignment | None, site: str) -> UnprotectedTopic:
    partitions = tuple(sorted(state.partition for state in theirs.partitions))
    if ours is None:
        reason = f"topic {theirs.name} is not at {site}: no record of it is kept there"
    elif bytes(ours.topic_id) != theirs.topic_id:
        reason = (
            f"topic {theirs.name} was deleted and made again (id {UUID(bytes=theirs.topic_id)}), and {site} has a copy of the old "
            f"one (id {UUID(bytes=bytes(ours.topic_id))}): no record of the new one is kept there until `antipode links reset`"
        )
    else:
        partitions = tuple(partition for partition in partitions if partition not in ours.partitions)
        named = ", ".join(map(str, partitions))
        reason = f"partitions {named} of topic {theirs.name} are not at {site}: no record of them is kept there"
    return UnprotectedTopic(topic=theirs.name, partitions=partitions, reason=reason)
