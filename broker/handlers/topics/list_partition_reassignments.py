"""ListPartitionReassignments: current reassignments, from the active controller (KIP-455).

Behaviour: no topics means all; partitions without one are left out. For topics that another site
leads, its reassignments are listed (`broker/site/active_site.py`). While that site does not answer,
and always for Antipode's own programs, those of the copies here are listed. Versions: 0. Not done:
nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.topics.reassignments import by_topic
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import READ_TIMEOUT_MS, ActiveSite, answered_elsewhere, leading_site
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

API_KEY = 46
MIN_VERSION = 0
MAX_VERSION = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ListPartitionReassignments request."""
    if context.is_own_tool:
        return await _of_this_site(doors, context, request)
    if request.topics is None:
        return await _of_all_sites(doors, context, request)
    names = [topic.name for topic in request.topics]
    answer = await answered_elsewhere(
        request,
        context,
        doors,
        handle,
        entries="topics",
        results="topics",
        names=names,
        timeout_ms=READ_TIMEOUT_MS,
    )
    return answer or await _of_this_site(doors, context, request)


async def _of_all_sites(doors: Doors, context: RequestContext, request: Any) -> Any:
    """The response with each topic as its leading site reports it; as this site knows it if that
    site does not answer.
    """
    own = await _of_this_site(doors, context, request)
    image = doors.cluster.image
    sites = image.routed_sites()
    asked = (doors.active_site.ask_site(image, site, context, request, timeout_ms=READ_TIMEOUT_MS) for site in sites)
    answers = {
        site: answer.topics
        for site, answer in zip(sites, await asyncio.gather(*asked), strict=True)
        if answer is not None and answer.error_code is ErrorCode.none
    }
    here = [topic for topic in own.topics if leading_site(image, [topic.name]) not in answers]
    there = [topic for site in answers for topic in answers[site] if leading_site(image, [topic.name]) == site]
    return replace(own, topics=(*here, *there))


async def _of_this_site(doors: Doors, context: RequestContext, request: Any) -> Any:
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
        reply = await doors.controller.list_reassignments(asked)
    except ControllerUnavailable as error:
        return build.response(error_code=error.code, error_message=str(error), topics=())
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
