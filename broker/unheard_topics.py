"""Topics that a client asks about, that this site has not heard of, and that a peer may have.

A peer's view is up to a second old, and clients ask any broker of both sites: one that has just made a topic at one site would be told
by the other that there is none, and librdkafka gives records back as soon as it hears that of a topic it has seen. So the peer is
asked. What it says is for one answer and is not kept; the view brings it soon enough. Used by the Metadata handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.active_site import ActiveSite
from broker.core.access import passive_link_for_new_topic
from broker.core.cluster_image import ClusterImage, PartitionImage, TopicImage
from broker.core.topic_names import is_valid_topic_name
from broker.entities import topic_id_bytes
from wire.cluster_metadata import TopicMetadata
from wire.links import is_internal_topic

ASK_TIMEOUT_MS: Final = 1_000
"""A peer that is cut off delays the answer about an unknown topic by no more than this."""

Told = Mapping[str, TopicImage | ErrorCode]
"""What peers said of topics by name: the topic, or why it cannot be had yet."""

NOTHING_TOLD: Final[Told] = {}
_TO_COME: Final = ErrorCode.leader_not_available


def unheard_topics(image: ClusterImage, wanted: Iterable[Any] | None) -> dict[str, list[str]]:
    """Site to the names that it may know: of a request's topics (None: all) those that no view has."""
    asked: dict[str, list[str]] = {}
    for entry in wanted or ():
        name = entry.name
        if name is None or is_internal_topic(name) or not is_valid_topic_name(name) or image.routed_topic(name):
            continue
        for site in image.sites_that_may_have(name):
            asked.setdefault(site, []).append(name)
    return asked


async def ask_peers(
    active_site: ActiveSite, image: ClusterImage, asked: Mapping[str, Sequence[str]], *, may_create: bool
) -> Told:
    """What the peers know of the topics; nothing of those that nobody answers about in time.

    A client that may have topics made may so at the active site of a link too; names that no link carries are made where they are asked
    for, and only when no peer has them.
    """
    told: dict[str, TopicImage | ErrorCode] = {}
    for found in await asyncio.gather(
        *(
            active_site.topics_of(image, site, part, may_create=may_create and is_carried, timeout_ms=ASK_TIMEOUT_MS)
            for site, names in asked.items()
            for is_carried in (False, True)
            if (part := [name for name in names if _is_carried(image, name) is is_carried])
        )
    ):
        for topic in found:
            if topic.error_code is ErrorCode.none:
                told[topic.name] = _topic_image(topic)
            elif topic.error_code is _TO_COME:
                told.setdefault(topic.name, _TO_COME)
    return told


def _is_carried(image: ClusterImage, topic: str) -> bool:
    return passive_link_for_new_topic(image, topic) is not None


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
