"""DescribeTopicPartitions: topics in pages, so that a tool never has to take all partitions of a
site at once (KIP-966).

Behaviour: topics in the order of their names, as clients must see them (a link's topics with the
active site's leaders); the page has at most the requested number of partitions, and at most 2000,
and a cursor for the next page. Without names: all topics that the client may describe. A cursor
below partition 0 or at a topic that is not among the named ones is an INVALID_REQUEST. Named topics
that this site does not know are looked up at its peers (`broker/site/unknown_topics.py`). Eligible
leader replicas outside the in-sync ones are not tracked: their list is empty (Java tools fail on
null). The authorized operations contain all operations
(`broker/metadata/core/authorized_operations.py`); the request has no field for them. Versions: 0.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.handlers.access.client_view import ClientView
from broker.metadata.cluster import Cluster
from broker.metadata.core.authorized_operations import ALL_OF_A_TOPIC
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metadata.core.topic_names import is_valid_topic_name
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder, topic_uuid
from broker.network.error_responses import error_response
from broker.site.active_site import ActiveSite
from broker.site.unknown_topics import ask_peers, unknown_topics
from wire.rules.topic_names import is_internal_topic

API_KEY = 75
MIN_VERSION = 0
MAX_VERSION = 0

PARTITIONS_MAX: Final = 2000


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    authorizer: Authorizer
    cluster: Cluster


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeTopicPartitions request."""
    build = builder(API_KEY, context.api_version)
    named = [topic.name for topic in request.topics]
    cursor, first = request.cursor, 0
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        return error_response(API_KEY, context.api_version, request, error=ErrorCode.invalid_request, must_say=False)
    unheard = {} if context.is_forwarded else unknown_topics(doors.cluster.image, named)
    reported = await ask_peers(doors.active_site, doors.cluster.image, unheard, may_create=lambda _: False)
    image = doors.cluster.image
    # the table of rights has checked named topics; filtered before the pages, whose cursors name
    # topics too
    names = sorted({*named} or ClientView(doors.authorizer, context).described(image.routed_topic_names()))
    if cursor is not None:
        names, first = [name for name in names if name >= cursor.topic_name], cursor.partition_index
        if not names or names[0] != cursor.topic_name:
            first = 0
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    topics: list[Any] = []
    for name in names:
        if not left:
            return build.response(topics=tuple(topics), next_cursor=_cursor(build, name, 0))
        routed = image.routed_topic(name)
        topic = reported.get(name) if routed is None else routed.topic
        if topic is None:
            topics.append(_unknown(build, name))
            first = 0
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        topics.append(_topic(build, image, topic, indexes[:left]))
        if len(indexes) > left:
            return build.response(topics=tuple(topics), next_cursor=_cursor(build, name, indexes[left]))
        left, first = left - len(indexes), 0
    return build.response(topics=tuple(topics), next_cursor=None)


def _cursor(build: Any, name: str, index: int) -> Any:
    return build.part("Cursor", topic_name=name, partition_index=index)


def _unknown(build: Any, name: str) -> Any:
    is_name = is_valid_topic_name(name)
    return build.part(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.unknown_topic_or_partition if is_name else ErrorCode.invalid_topic_exception,
        name=name,
        topic_id=None,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=ALL_OF_A_TOPIC,
    )


def _topic(build: Any, image: ClusterImage, topic: TopicImage, indexes: list[int]) -> Any:
    living = image.routed_brokers()
    return build.part(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic_uuid(topic.topic_id),
        is_internal=is_internal_topic(topic.name),
        partitions=tuple(_partition(build, topic.partitions[index], living) for index in indexes),
        topic_authorized_operations=ALL_OF_A_TOPIC,
    )


def _partition(build: Any, partition: PartitionImage, living: Any) -> Any:
    has_leader = partition.leader in living
    return build.part(
        "DescribeTopicPartitionsResponsePartition",
        error_code=ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        partition_index=partition.index,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=tuple(node for node in partition.replicas if node not in living),
    )
