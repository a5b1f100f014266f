"""The work that a broker has after one image replaced another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from wire.control.cluster_pb2 import LinkRecord


class DeletedTopicImage(Struct, frozen=True, kw_only=True):
    """A topic whose logs must be deleted."""

    name: str
    topic_id: bytes


class ImageChange(Struct, frozen=True, kw_only=True):
    """The work that a broker has to do after one image replaced another."""

    deleted: tuple[DeletedTopicImage, ...]
    changed: tuple[TopicImage, ...]
    """Topics that are new, or whose partitions, configs, link role or sync policy differ."""
    changed_links: tuple[LinkRecord, ...]


NO_CHANGE: Final = ImageChange(deleted=(), changed=(), changed_links=())


def difference(before: ClusterImage, after: ClusterImage) -> ImageChange:
    """The changes to this site's own topics between two images."""
    have_roles_changed = before.links is not after.links or before.confirmed_epochs is not after.confirmed_epochs
    if before.topics is after.topics and not have_roles_changed:
        return NO_CHANGE
    deleted = tuple(
        DeletedTopicImage(name=name, topic_id=topic.topic_id)
        for name, topic in before.topics.items()
        if before.topics is not after.topics and _is_gone(topic, after)
    )
    changed = tuple(
        topic
        for name, topic in after.topics.items()
        if before.topics.get(name) is not topic
        or (have_roles_changed and _part_in_link(before, name) != _part_in_link(after, name))
    )
    links = tuple(link for name, link in after.links.items() if before.links.get(name) != link)
    return ImageChange(deleted=deleted, changed=changed, changed_links=links)


def _part_in_link(image: ClusterImage, topic: str) -> tuple[LinkRole, str, int, int]:
    """Return the fields that a topic's partitions inherit from the link that carries it."""
    link = image.link_of(topic)
    return (
        (image.role_in(link), "", 0, 0)
        if link is None
        else (image.role_in(link), link.sync_policy, link.sync_timeout_ms, link.sync_bound_ms)
    )


def _is_gone(topic: TopicImage, after: ClusterImage) -> bool:
    found = after.topics.get(topic.name)
    return found is None or found.topic_id != topic.topic_id


def leads(image: ClusterImage, partitions: Iterable[PartitionImage]) -> Sequence[PartitionImage]:
    """Return the partitions that this broker leads."""
    return [partition for partition in partitions if partition.leader == image.node_id]
