"""DeleteTopics: forwarded to the active controller.

Behaviour: by name or (from version 6) by id; topics that a link brings from the active site are deleted there
(`active_site.py`), or refused (POLICY_VIOLATION) when that cannot be. Mirrors delete nothing, so a copy stays here: those that the
active site says it does not have are deleted here, by the second request at the latest.
The answer waits a moment for this broker to forget them. Partitions that go count against the client's quota of mutations.
Versions: 1 to 6.
Not done: delete.topic.enable (always on).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from broker.core.access import passive_link_for_new_topic
from broker.entities import builder, throttle_time, topic_id_bytes, topic_uuid
from broker.handlers.create_topics import PROPAGATION_TIMEOUT_MS, policy_refusal
from broker.quotas import QUOTA_EXCEEDED_MESSAGE
from broker.services import BrokerServices, RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerUnavailable
from wire.control.cluster_pb2 import LinkRecord

API_KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6

NOT_THERE = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a DeleteTopics request."""
    build, image = builder(API_KEY, context.api_version), services.image
    if hasattr(request, "topics"):
        states = [(state.name, topic_id_bytes(state.topic_id)) for state in request.topics]
    else:
        states = [(name, bytes(16)) for name in request.topic_names]
    named = [name or image.topic_names.get(topic_id, "") for name, topic_id in states]
    answer = await services.active_site.answer(image, context, request, named)
    if answer is not None:
        return build.response(responses=tuple(await _with_orphans(services, build, answer.responses)))
    results: list[Any] = []
    wanted: dict[str, bytes] = {}
    permits = services.quotas.mutation_permits(context)
    for given_name, topic_id in states:
        name = given_name if given_name is not None else image.topic_names.get(topic_id)
        topic = image.topics.get(name) if name is not None else None
        if name is None or topic is None:
            error = ErrorCode.unknown_topic_id if given_name is None else ErrorCode.unknown_topic_or_partition
            results.append(_result(build, given_name, topic_id, error, None))
        elif (refusal := policy_refusal(image, name, named)) is not None:
            results.append(_result(build, name, topic.topic_id, ErrorCode.policy_violation, refusal))
        elif not permits.take(len(topic.partitions)):
            error = ErrorCode.throttling_quota_exceeded
            results.append(_result(build, given_name, topic.topic_id, error, QUOTA_EXCEEDED_MESSAGE))
        else:
            wanted[name] = topic.topic_id
    if wanted:
        results.extend(await _delete(services, build, wanted))
    return build.response(responses=tuple(results), throttle_time=throttle_time(permits.rest_ms))


async def _with_orphans(services: BrokerServices, build: Any, answered: Sequence[Any]) -> list[Any]:
    """The active site's results, with copies that it has no topic for deleted here."""
    image = services.image
    results: list[Any] = []
    orphans: dict[str, dict[str, bytes]] = {}
    for result in answered:
        name = result.name if result.name is not None else image.topic_names.get(topic_id_bytes(result.topic_id))
        # Its view must say so too: a broker that has just started may not know its topics yet.
        is_orphan = result.error_code in NOT_THERE and not any(name in topics for topics in image.peer_topics.values())
        link = passive_link_for_new_topic(image, name) if is_orphan and name is not None else None
        if link is not None and name is not None and name in image.topics:
            orphans.setdefault(link.name, {})[name] = image.topics[name].topic_id
        else:
            results.append(result)
    for link_name, topics in orphans.items():
        results.extend(await _delete(services, build, topics, image.links[link_name]))
    return results


async def _delete(
    services: BrokerServices, build: Any, wanted: dict[str, bytes], link: LinkRecord | None = None
) -> list[Any]:
    request = pb.DeleteTopicsRequest(names=list(wanted))
    if link is not None:
        request.link, request.link_epoch = link.name, link.epoch
    try:
        reply = await services.controller.delete_topics(request)
    except ControllerUnavailable as error:
        return [
            _result(build, name, topic_id, ErrorCode.not_controller, str(error)) for name, topic_id in wanted.items()
        ]
    deleted = {result.name for result in reply.results if not result.error_code}
    await services.cluster.wait_for(
        lambda image: not any(name in image.topics and image.topics[name].topic_id == wanted[name] for name in deleted),
        timeout_ms=PROPAGATION_TIMEOUT_MS,
    )
    return [
        _result(
            build, result.name, wanted.get(result.name, bytes(16)), ErrorCode(result.error_code), result.error_message
        )
        for result in reply.results
    ]


def _result(build: Any, name: str | None, topic_id: bytes, error: ErrorCode, message: str | None) -> Any:
    return build.part(
        "DeletableTopicResult",
        name=name,
        topic_id=topic_uuid(topic_id),
        error_code=error,
        error_message=message or None,
    )
