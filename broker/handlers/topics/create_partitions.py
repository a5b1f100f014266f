"""CreatePartitions: forwarded to the active controller.

Behaviour: topics that a link mirrors here get partitions at the active site
(`broker/site/active_site.py`), or are refused (POLICY_VIOLATION) if that is impossible. The answer
waits a moment for the brokers of this site and of its peers to know the new partitions
(`broker/site/topic_change_reports.py`), which are charged to the client's mutation quota. A topic
that is named twice is answered once. Versions: 0 to 3.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.topics.mutation_quota import is_led_elsewhere, known_topic, within_quota
from broker.handlers.topics.topic_changes import PROPAGATION_TIMEOUT_MS, policy_refusal
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import allowed_ms, builder, throttle_time
from broker.quotas.client_throttling import QUOTA_EXCEEDED_MESSAGE, Quotas
from broker.site.active_site import ActiveSite, answered_elsewhere
from broker.site.topic_change_reports import TopicChangeReports
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

API_KEY = 37
MIN_VERSION = 0
MAX_VERSION = 3

NO_ASSIGNMENTS: Final = "The new partitions have an empty list of assignments; accepted: one for each, or no list."


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient
    quotas: Quotas
    topic_change_reports: TopicChangeReports


def _new_partitions(image: ClusterImage, topic: Any) -> pb.NewPartitions:
    known = image.topics.get(topic.name)
    first = 0 if known is None else len(known.partitions)
    return pb.NewPartitions(
        name=topic.name,
        total_count=topic.count,
        assignments=[
            pb.ReplicaAssignment(partition=first + position, replicas=assignment.broker_ids)
            for position, assignment in enumerate(topic.assignments or ())
        ],
    )


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a CreatePartitions request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    names = [topic.name for topic in request.topics]
    permits = doors.quotas.mutation_permits(context, is_free=request.validate_only)

    def ask() -> Awaitable[Any | None]:
        return answered_elsewhere(request, context, doors, handle, entries="topics", results="results", names=names)

    if is_led_elsewhere(image, context, names):
        count = sum(_added_count(known_topic(image, topic.name), topic) for topic in request.topics)
        answer = await within_quota(context, request, permits, count, ask)
    else:
        answer = await ask()
    if answer is not None:
        return answer
    results: dict[str, Any] = {}
    wanted: list[pb.NewPartitions] = []
    for topic in request.topics:
        refusal = policy_refusal(image, topic.name)
        if refusal is not None:
            results[topic.name] = _result(build, topic.name, ErrorCode.policy_violation, refusal)
        elif _lacks_assignments(image, topic):
            results[topic.name] = _result(build, topic.name, ErrorCode.invalid_replica_assignment, NO_ASSIGNMENTS)
        elif not permits.take(_added_count(image.topics.get(topic.name), topic)):
            results[topic.name] = _result(
                build, topic.name, ErrorCode.throttling_quota_exceeded, QUOTA_EXCEEDED_MESSAGE
            )
        else:
            wanted.append(_new_partitions(image, topic))
    if wanted:
        results.update(await _create(doors, build, wanted, request))
    answered = tuple(results[name] for name in dict.fromkeys(names) if name in results)
    return build.response(results=answered, throttle_time=throttle_time(permits.throttle_time_ms))


def _lacks_assignments(image: ClusterImage, topic: Any) -> bool:
    """True for new partitions with an empty list of assignments; without a list (null) the
    controller places them.
    """
    return topic.assignments == () and _added_count(image.topics.get(topic.name), topic) > 0


def _added_count(known: TopicImage | None, topic: Any) -> int:
    return 0 if known is None else max(topic.count - len(known.partitions), 0)


async def _create(doors: Doors, build: Any, wanted: list[pb.NewPartitions], request: Any) -> dict[str, Any]:
    forwarded = pb.CreatePartitionsRequest(
        topics=wanted, is_validate_only=request.validate_only, timeout_ms=allowed_ms(request.timeout)
    )
    try:
        reply = await doors.controller.create_partitions(forwarded)
    except ControllerUnavailable as error:
        return {topic.name: _result(build, topic.name, error.code, str(error)) for topic in wanted}
    counts = {topic.name: topic.total_count for topic in wanted}
    grown = [result.name for result in reply.results if not result.error_code]
    if grown and not forwarded.is_validate_only:
        await doors.cluster.wait_for(
            lambda image: all(
                name in image.topics and len(image.topics[name].partitions) >= counts[name] for name in grown
            ),
            timeout_ms=min(forwarded.timeout_ms, PROPAGATION_TIMEOUT_MS),
        )
        await doors.topic_change_reports.report(lambda: doors.cluster.image, grown)
    return {
        result.name: _result(build, result.name, ErrorCode(result.error_code), result.error_message)
        for result in reply.results
    }


def _result(build: Any, name: str, error: ErrorCode, message: str | None) -> Any:
    return build.part("CreatePartitionsTopicResult", name=name, error_code=error, error_message=message or None)
