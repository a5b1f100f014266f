"""LinkProgress (private): a link's mirror reports to the source which records its standby has.

Behaviour: applied at the link's epoch while this site is active; retention no longer keeps these
records for the standby, and on a sync link acknowledgements and reads that waited for it continue.
Reports on partitions that this broker does not lead are ignored: the mirror reports to the new
leader. An offset beyond that of this site's in-sync replicas cannot be true and is refused with
INVALID_REQUEST. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.request_context import RequestContext
from broker.services import BrokerServices
from wire.protocol.private import LINK_PROGRESS, PRIVATE_VERSIONS, LinkProgressResponse

API_KEY = LINK_PROGRESS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[LINK_PROGRESS]


async def handle(services: BrokerServices, _context: RequestContext, request: Any) -> Any:
    """Answer a LinkProgress request."""
    image = services.image
    link = image.links.get(request.link)
    if link is None or request.link_epoch > link.epoch:
        return LinkProgressResponse(error_code=ErrorCode.unknown_leader_epoch)
    if request.link_epoch < link.epoch:
        return LinkProgressResponse(error_code=ErrorCode.fenced_leader_epoch)
    error = ErrorCode.none
    for topic in request.topics:
        for partition in topic.partitions:
            outcome = services.replicas.standbys.record(
                image, (topic.name, partition.index), partition.acknowledged_offset, link=link.name
            )
            if outcome not in (ErrorCode.none, ErrorCode.not_leader_or_follower):
                error = outcome
    return LinkProgressResponse(error_code=error)
