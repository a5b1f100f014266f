"""TopicsChanged (private): a broker of a peer reports topics that its site has just made, changed
or deleted.

Behaviour: after the answer, Metadata and all other answers from the peer's view show the report's
content. INVALID_REQUEST when no routed link joins the two sites. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import topic_id_bytes
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.messages.topics_changed_messages import TOPICS_CHANGED, TopicsChangedResponse

API_KEY = TOPICS_CHANGED
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[TOPICS_CHANGED]

ApplyPeerReports = Callable[[str, Sequence[tuple[TopicImage, bool]]], Awaitable[None]]
"""Applies the topics that a broker of a peer site reports, each with a flag for deletion."""


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    apply_peer_reports: ApplyPeerReports
    cluster: Cluster


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a TopicsChanged request."""
    if request.site not in doors.cluster.image.routed_sites():
        return TopicsChangedResponse(error_code=ErrorCode.invalid_request)
    await doors.apply_peer_reports(request.site, list(_reports(request.topics)))
    return TopicsChangedResponse(error_code=ErrorCode.none)


def _reports(topics: Any) -> Iterator[tuple[TopicImage, bool]]:
    for topic in topics:
        partitions = {
            partition.index: PartitionImage(
                index=partition.index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
            )
            for partition in sorted(topic.partitions, key=lambda partition: int(partition.index))
        }
        image = TopicImage(name=topic.name, topic_id=topic_id_bytes(topic.topic_id), configs={}, partitions=partitions)
        yield image, topic.is_deleted
