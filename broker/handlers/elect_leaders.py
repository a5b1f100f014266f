"""ElectLeaders: preferred or unclean elections, forwarded to the active controller (KIP-460).

Behaviour: no topics means every partition; those that need no election are then left out of the answer. Elections concern this site's own
partitions, whichever site a link makes active. Versions: 0 to 2. Not done: nothing.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.entities import builder
from broker.handlers.reassignments import by_topic
from broker.services import BrokerServices, RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerUnavailable

API_KEY = 43
MIN_VERSION = 0
MAX_VERSION = 2

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer an ElectLeaders request."""
    build = builder(API_KEY, context.api_version)
    kind = getattr(request, "election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        return build.response(error_code=ErrorCode.invalid_request, replica_election_results=())
    asked = pb.ElectLeadersRequest(
        is_unclean=kind == UNCLEAN,
        is_all=request.topic_partitions is None,
        partitions=[
            pb.PartitionName(topic=topic.topic, partition=index)
            for topic in request.topic_partitions or ()
            for index in topic.partitions
        ],
    )
    try:
        reply = await services.controller.elect_leaders(asked)
    except ControllerUnavailable:
        return build.response(error_code=ErrorCode.not_controller, replica_election_results=())
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
