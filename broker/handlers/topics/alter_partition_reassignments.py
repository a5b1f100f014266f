"""AlterPartitionReassignments: assigns other replicas to partitions, or cancels a reassignment
(KIP-455); forwarded to the controller.

Behaviour: null replicas cancel, an empty list is refused; each partition has a separate result.
Topics that another site leads are reassigned there (`broker/site/active_site.py`). While that site
does not answer, and always for Antipode's own programs, the copies here are reassigned. Versions: 0
to
1. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.topics.reassignments import by_topic
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import allowed_ms, builder
from broker.site.active_site import ActiveSite, answered_elsewhere
from broker.site.topic_change_reports import TopicChangeReports
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

API_KEY = 45
MIN_VERSION = 0
MAX_VERSION = 1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient
    topic_change_reports: TopicChangeReports


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AlterPartitionReassignments request."""
    build = builder(API_KEY, context.api_version)
    if not context.is_own_tool:
        names = [topic.name for topic in request.topics]
        answer = await answered_elsewhere(
            request, context, doors, handle, entries="topics", results="responses", names=names
        )
        if answer is not None:
            return answer
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    wanted = pb.AlterReassignmentsRequest(
        must_keep_replication_factor=not may_change_factor,
        timeout_ms=allowed_ms(request.timeout),
        partitions=[
            pb.Reassignment(
                topic=topic.name,
                partition=partition.partition_index,
                replicas=partition.replicas or (),
                is_cancelled=partition.replicas is None,
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
    )
    common = {"allow_replication_factor_change": may_change_factor, "error_message": None}
    try:
        reply = await doors.controller.alter_reassignments(wanted)
    except ControllerUnavailable as error:
        failed = {**common, "error_code": error.code, "error_message": str(error)}
        return build.response(**failed, responses=())
    accepted = {result.topic for result in reply.results if not result.error_code}
    await doors.topic_change_reports.report(lambda: doors.cluster.image, accepted)
    responses = tuple(
        build.part(
            "ReassignableTopicResponse",
            name=topic,
            partitions=tuple(
                build.part(
                    "ReassignablePartitionResponse",
                    partition_index=result.partition,
                    error_code=ErrorCode(result.error_code),
                    error_message=result.error_message or None,
                )
                for result in partitions
            ),
        )
        for topic, partitions in by_topic(reply.results).items()
    )
    return build.response(**common, error_code=ErrorCode.none, responses=responses)
