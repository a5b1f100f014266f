"""TopicsChanged (private): a broker of a peer reports topics that its site has just made, changed
or deleted.

Behaviour: from the answer on Metadata, and whatever else is answered by the peer's view, says what
the report says. INVALID_REQUEST when no routed link joins the two sites. Versions: 0. Not done:
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import PartitionImage, TopicImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import topic_id_bytes
from broker.services import BrokerServices
from wire.protocol.private import PRIVATE_VERSIONS, TOPICS_CHANGED, TopicsChangedResponse

API_KEY = TOPICS_CHANGED
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[TOPICS_CHANGED]


async def handle(services: BrokerServices, _context: RequestContext, request: Any) -> Any:
    """Answer a TopicsChanged request."""
    if request.site not in services.image.routed_sites():
        return TopicsChangedResponse(error_code=ErrorCode.invalid_request)
    await services.apply_peer_reports(request.site, list(_reports(request.topics)))
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
