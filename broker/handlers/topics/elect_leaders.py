"""ElectLeaders: preferred or unclean elections, forwarded to the active controller (KIP-460).

Behaviour: no topics means every partition of this site; those that need no election are then left
out of the answer. Topics that another site leads are elected there (`broker/site/active_site.py`).
While that site does not answer, and always for Antipode's own programs, the elections concern the
copies here. The answer waits a moment for the brokers of peers to know the leaders
(`broker/site/topic_change_reports.py`). Versions: 0 to 2. Not done: nothing.
"""

from __future__ import annotations

from typing import Any, Final

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

API_KEY = 43
MIN_VERSION = 0
MAX_VERSION = 2

PREFERRED: Final = 0
UNCLEAN: Final = 1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient
    topic_change_reports: TopicChangeReports


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an ElectLeaders request."""
    build = builder(API_KEY, context.api_version)
    kind = getattr(request, "election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        return build.response(error_code=ErrorCode.invalid_request, replica_election_results=())
    if request.topic_partitions is not None and not context.is_own_tool:
        names = [topic.topic for topic in request.topic_partitions]
        answer = await answered_elsewhere(
            request, context, doors, handle, entries="topic_partitions", results="replica_election_results", names=names
        )
        if answer is not None:
            return answer
    asked = pb.ElectLeadersRequest(
        is_unclean=kind == UNCLEAN,
        is_all=request.topic_partitions is None,
        timeout_ms=allowed_ms(request.timeout),
        partitions=[
            pb.PartitionName(topic=topic.topic, partition=index)
            for topic in request.topic_partitions or ()
            for index in topic.partitions
        ],
    )
    try:
        reply = await doors.controller.elect_leaders(asked)
    except ControllerUnavailable as error:
        return build.response(error_code=error.code, replica_election_results=())
    elected = {result.topic for result in reply.results if not result.error_code}
    await doors.topic_change_reports.report(lambda: doors.cluster.image, elected)
    results = tuple(
        build.part(
            "ReplicaElectionResult",
            topic=topic,
            partition_result=tuple(
                build.part(
                    "PartitionResult",
                    partition_id=result.partition,
                    error_code=ErrorCode(result.error_code),
                    error_message=result.error_message or None,
                )
                for result in partitions
            ),
        )
        for topic, partitions in by_topic(reply.results).items()
    )
    return build.response(error_code=ErrorCode.none, replica_election_results=results)
