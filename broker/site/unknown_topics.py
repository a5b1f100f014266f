"""Ask a peer about topics that a client names and that this site does not know.

A peer's view is up to a second old, and clients ask any broker of both sites. Without the question,
a client could create a topic at one site and get the answer from the other that it does not exist;
librdkafka then fails the records of a topic that it has seen. The peer's answer serves one response
and is not kept; the next view has the topic. Used by the Metadata handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from broker.metadata.core.access import passive_link_for_new_topic
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metadata.core.topic_names import is_valid_topic_name
from broker.network.entities import topic_id_bytes
from broker.site.active_site import ActiveSite
from wire.client.cluster_metadata import TopicMetadata
from wire.rules.topic_names import is_internal_topic

ASK_TIMEOUT_MS: Final = 1_000
"""An unreachable peer delays the response about an unknown topic by at most this time."""

Asked = str | UUID
"""A topic as a client asks about it: by its name, or by its id."""

KnownTopics = Mapping[Asked, TopicImage]
"""Topics that peers have, as the client asked about them."""

NOTHING_KNOWN: Final[KnownTopics] = {}


def unknown_topics(image: ClusterImage, wanted: Iterable[Asked]) -> dict[str, list[Asked]]:
    """The unknown topics, by the site that may know them."""
    asked: dict[str, list[Asked]] = {}
    for topic in wanted:
        for site in _sites_to_ask(image, topic):
            asked.setdefault(site, []).append(topic)
    return asked


def _sites_to_ask(image: ClusterImage, topic: Asked) -> list[str]:
    if isinstance(topic, UUID):
        return [] if image.routed_topic_with_id(topic.bytes) is not None else image.routed_sites()
    if is_internal_topic(topic) or not is_valid_topic_name(topic) or image.routed_topic(topic) is not None:
        return []
    return image.sites_that_may_have(topic)


async def ask_peers(
    active_site: ActiveSite,
    image: ClusterImage,
    asked: Mapping[str, Sequence[Asked]],
    *,
    may_create: Callable[[str], bool],
) -> KnownTopics:
    """The topics that the peers know; nothing about topics without an answer in time.

    A client whose request may create topics may also create them at the active site of a link,
    which does not know the client's rights: `may_create` is True for the names that the client may
    create. A name that no link carries is created at the site that receives the request, and only
    if no peer has the topic.
    """
    creatable = {
        topic
        for topics in asked.values()
        for topic in topics
        if isinstance(topic, str) and passive_link_for_new_topic(image, topic) is not None and may_create(topic)
    }
    parts = [
        (site, part, is_creatable)
        for site, topics in asked.items()
        for is_creatable in (False, True)
        if (part := [topic for topic in topics if (topic in creatable) is is_creatable])
    ]
    answers = await asyncio.gather(
        *(
            active_site.topics_of(image, site, part, may_create=is_creatable, timeout_ms=ASK_TIMEOUT_MS)
            for site, part, is_creatable in parts
        )
    )
    reported: dict[Asked, TopicImage] = {}
    for (site, part, _), found in zip(parts, answers, strict=True):
        for topic in found:
            if topic.error_code is not ErrorCode.none:
                continue
            if topic.name in part:
                reported[topic.name] = _topic_image(topic)
            elif topic.topic_id in part and site in image.sites_that_may_have(topic.name):
                # For a topic that only this site may have, a peer only knows its last view.
                reported[topic.topic_id] = _topic_image(topic)
    return reported


def _topic_image(topic: TopicMetadata) -> TopicImage:
    return TopicImage(
        name=topic.name,
        topic_id=topic_id_bytes(topic.topic_id),
        configs={},
        partitions={
            index: PartitionImage(
                index=index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=-1,
                replicas=partition.replicas,
                isr=partition.isr,
            )
            for index, partition in sorted(topic.partitions.items())
        },
    )
