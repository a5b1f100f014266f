"""LinkProgress (private): a link's mirror reports to the source which records its standby has.

Behaviour: applied at the link's epoch while this site is active. Retention then stops keeping these
records for the standby, and on a sync link the acknowledgements and reads that waited for the
standby continue. Reports on partitions that this broker does not lead are ignored: the mirror
reports to the new leader. An offset beyond that of this site's in-sync replicas cannot be true and
is refused with INVALID_REQUEST. OFFSET_NOT_AVAILABLE: the reports were applied, and this broker
leads other partitions of a sync link that wait for a report, so the mirror reports all of them.
Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.replication.replicas import Replicas
from wire.protocol.messages.link_messages import LINK_PROGRESS, LinkProgressResponse
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = LINK_PROGRESS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[LINK_PROGRESS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a LinkProgress request."""
    image = doors.cluster.image
    link = image.links.get(request.link)
    # the mirror knows a newer record than this broker: it retries
    if link is None or request.link_epoch > link.epoch:
        return LinkProgressResponse(error_code=ErrorCode.unknown_leader_epoch)
    if request.link_epoch < link.epoch:
        return LinkProgressResponse(error_code=ErrorCode.fenced_leader_epoch)
    error = ErrorCode.none
    for topic in request.topics:
        reports = ((partition.index, partition.acknowledged_offset) for partition in topic.partitions)
        outcome = doors.replicas.standbys.record(image, topic.name, reports, link=link.name)
        error = error if outcome is ErrorCode.none else outcome
    if error is ErrorCode.none and doors.replicas.standbys.wants_reports(image, link.name):
        error = ErrorCode.offset_not_available
    return LinkProgressResponse(error_code=error)
