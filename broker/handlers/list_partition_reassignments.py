"""ListPartitionReassignments: reassignments that are under way, from the active controller (KIP-455).

Behaviour: no topics means all; partitions without one are left out. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.entities import builder
from broker.handlers.reassignments import by_topic
from broker.services import BrokerServices, RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerUnavailable

API_KEY = 46
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a ListPartitionReassignments request."""
    build = builder(API_KEY, context.api_version)
    asked = pb.ListReassignmentsRequest(
        is_all=request.topics is None,
        partitions=[
            pb.PartitionName(topic=topic.name, partition=index)
            for topic in request.topics or ()
            for index in topic.partition_indexes
        ],
    )
    try:
        reply = await services.controller.list_reassignments(asked)
    except ControllerUnavailable as error:
        return build.response(error_code=ErrorCode.not_controller, error_message=str(error), topics=())
    topics = tuple(
        build.part(
            "OngoingTopicReassignment",
            name=topic,
            partitions=tuple(
                build.part(
                    "OngoingPartitionReassignment",
                    partition_index=ongoing.partition,
                    replicas=tuple(ongoing.replicas),
                    adding_replicas=tuple(ongoing.adding_replicas),
                    removing_replicas=tuple(ongoing.removing_replicas),
                )
                for ongoing in partitions
            ),
        )
        for topic, partitions in by_topic(reply.partitions).items()
    )
    return build.response(error_code=ErrorCode.none, error_message=None, topics=topics)
