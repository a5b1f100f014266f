"""DeleteTopics: forwarded to the active controller.

Behaviour: by name or (from version 6) by id; a topic with both, with neither or given twice is
INVALID_REQUEST. Topics that a link mirrors from the active site are deleted there
(`broker/site/active_site.py`), or refused (POLICY_VIOLATION) if that is impossible. A topic that
has a copy here is forwarded by the copy's id, so that a topic created again under the same name is
never deleted instead. Mirrors delete nothing, so a copy stays here: if the active site does not
have its topic, the copy is deleted here, by the second request at the latest. If another topic has
the name at that time, only a request with the copy's id deletes the copy, and a request by name is
refused. The answer waits a moment for the brokers of this site and of its peers to drop them
(`broker/site/topic_change_reports.py`). Deleted partitions are charged to the client's mutation
quota. If delete.topic.enable is false, the controller refuses. Versions: 1 to 6.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct
from msgspec.structs import replace

from broker.handlers.topics.mutation_quota import is_led_elsewhere, known_topic, within_quota
from broker.handlers.topics.topic_changes import PROPAGATION_TIMEOUT_MS, policy_refusal
from broker.metadata.cluster import Cluster
from broker.metadata.core.access import passive_link_for_new_topic
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import allowed_ms, builder, throttle_time, topic_id_bytes, topic_uuid
from broker.quotas.client_throttling import QUOTA_EXCEEDED_MESSAGE, Quotas
from broker.site.active_site import ActiveSite, in_parts
from broker.site.topic_change_reports import TopicChangeReports
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.rules.links import other_site

API_KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6

NO_TOPIC_ID: Final = bytes(16)
TopicState = tuple[str | None, bytes]
"""A topic to delete as the request names it: its name, and its id (zeros: none)."""

NOT_THERE = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient
    quotas: Quotas
    topic_change_reports: TopicChangeReports


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DeleteTopics request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    if hasattr(request, "topics"):
        given = [(state.name, topic_id_bytes(state.topic_id)) for state in request.topics]
    else:
        given = [(name, NO_TOPIC_ID) for name in request.topic_names]
    entries = "topics" if hasattr(request, "topics") else "topic_names"
    all_named = [name or _name_of(image, topic_id) for name, topic_id in given]
    answer = await in_parts(
        image,
        context,
        request,
        lambda part: handle(part, context, doors),
        entries=entries,
        results="responses",
        names=all_named,
    )
    if answer is not None:
        return answer
    unclear = _unclear(image, given)
    refused = [_result(build, *state, ErrorCode.invalid_request, reason) for state, reason in unclear.items()]
    states = [state for state in given if not _is_among(state, unclear)]
    if not states:
        return build.response(responses=tuple(refused))
    named = [name or _name_of(image, topic_id) for name, topic_id in states]
    meant = [_meant(image, *state) for state in states]
    values = {"topics": meant, "timeout": request.timeout}
    handed_on = build_entity(schemas.request_type(API_KEY, MAX_VERSION), values)
    permits, newest = doors.quotas.mutation_permits(context), replace(context, api_version=MAX_VERSION)

    def ask() -> Awaitable[Any | None]:
        return doors.active_site.answer(image, newest, handed_on, named)

    if is_led_elsewhere(image, context, named):
        known = (known_topic(image, name) for name in named)
        count = sum(len(topic.partitions) for topic in known if topic is not None)
        answer = await within_quota(newest, handed_on, permits, count, ask)
    else:
        answer = await ask()
    if answer is not None:
        names = {part["topic_id"]: name for part, (name, _) in zip(meant, states, strict=True) if part["topic_id"]}
        copies = await _with_copies(doors, build, names, answer.responses, allowed_ms(request.timeout))
        return build.response(responses=(*refused, *copies), throttle_time=answer.throttle_time)
    results: list[Any] = refused
    wanted: dict[str, bytes] = {}
    for given_name, topic_id in states:
        name = given_name if given_name is not None else image.topic_names.get(topic_id)
        topic = image.topics.get(name) if name is not None else None
        if name is None or topic is None:
            error = ErrorCode.unknown_topic_id if given_name is None else ErrorCode.unknown_topic_or_partition
            results.append(_result(build, given_name, topic_id, error, None))
        elif (refusal := policy_refusal(image, name)) is not None:
            results.append(_result(build, name, topic.topic_id, ErrorCode.policy_violation, refusal))
        elif not permits.take(len(topic.partitions)):
            error = ErrorCode.throttling_quota_exceeded
            results.append(_result(build, given_name, topic.topic_id, error, QUOTA_EXCEEDED_MESSAGE))
        else:
            wanted[name] = topic.topic_id
    if wanted:
        results.extend(await _delete(doors, build, wanted, allowed_ms(request.timeout)))
    return build.response(responses=tuple(results), throttle_time=throttle_time(permits.throttle_time_ms))


def _unclear(image: ClusterImage, given: Sequence[TopicState]) -> dict[TopicState, str]:
    """The ambiguous topics of the request, which Kafka refuses, each once with the reason; none of
    them is deleted.
    """
    counts = Counter(given)
    ids = {topic_id for name, topic_id in counts if name is None}
    reasons: dict[TopicState, str] = {}
    for state, count in counts.items():
        name, topic_id = state
        topic = None if name is None else image.topics.get(name)
        if name is None and topic_id == NO_TOPIC_ID:
            reasons[state] = "a topic to delete has neither a name nor an id: give one of them"
        elif name is not None and topic_id != NO_TOPIC_ID:
            reasons[state] = (
                f"topic {name!r} is given with id {uuid.UUID(bytes=topic_id)}: give either the name or the id"
            )
        elif count > 1:
            shown = uuid.UUID(bytes=topic_id) if name is None else repr(name)
            reasons[state] = f"topic {shown} is given {count} times: give it once"
        elif topic is not None and topic.topic_id in ids:
            reason = f"topic {name!r} and id {uuid.UUID(bytes=topic.topic_id)} are the same topic: give one of them"
            reasons[(name, topic.topic_id)] = reason
    return reasons


def _is_among(state: TopicState, unclear: Collection[TopicState]) -> bool:
    """True if the topic is refused, as given or together with its other form (name or id)."""
    name, topic_id = state
    twice = [one for one in unclear if one[0] is not None and one[1] != NO_TOPIC_ID]
    if name is None:
        return state in unclear or any(topic_id == refused_id for _, refused_id in twice)
    return state in unclear or (topic_id == NO_TOPIC_ID and any(name == refused_name for refused_name, _ in twice))


def _name_of(image: ClusterImage, topic_id: bytes) -> str:
    """The name of the topic at this site, or of a topic that only a peer has; empty if neither has
    it.
    """
    own = image.topic_names.get(topic_id)
    routed = image.routed_topic_with_id(topic_id) if own is None else None
    return own or ("" if routed is None else routed.topic.name)


def _meant(image: ClusterImage, name: str | None, topic_id: bytes) -> dict[str, Any]:
    """The topic for the request to the active site: by the id of the copy here, if there is one."""
    copy = image.topics.get(name) if name is not None else None
    if name is not None and copy is None:
        return {"name": name, "topic_id": None}
    return {"name": None, "topic_id": topic_uuid(topic_id if copy is None else copy.topic_id)}


async def _with_copies(
    doors: Doors,
    build: Any,
    names: Mapping[uuid.UUID, str | None],
    answered: Sequence[Any],
    timeout_ms: int,
) -> list[Any]:
    """The active site's results in the client's form; copies for which it has no topic are deleted
    here.

    `names` maps the forwarded ids to the names that the client gave.
    """
    image = doors.cluster.image
    results: list[Any] = []
    orphans: dict[str, dict[str, bytes]] = {}
    for result in answered:
        given_name = names.get(result.topic_id) if result.topic_id is not None else None
        error, message = result.error_code, result.error_message
        copy = _copy_without_topic(image, result)
        if copy is not None:
            link = passive_link_for_new_topic(image, copy.name)
            # The active site's view must confirm this: a broker that has just started may not know
            # its topics yet.
            present = None if link is None else image.topics_of_peer(other_site(link, image.site)).get(copy.name)
            is_replaced = present is not None and present.topic_id != copy.topic_id
            if link is not None and (present is None or (is_replaced and given_name is None)):
                orphans.setdefault(link.name, {})[copy.name] = copy.topic_id
                continue
            if link is not None and present is not None and is_replaced:
                error, message = ErrorCode.policy_violation, _ambiguity(link, copy, present)
        if given_name is not None and error is ErrorCode.unknown_topic_id:
            error, message = ErrorCode.unknown_topic_or_partition, None
        results.append(_result(build, given_name or result.name, topic_id_bytes(result.topic_id), error, message))
    for link_name, topics in orphans.items():
        results.extend(await _delete(doors, build, topics, timeout_ms, image.links[link_name]))
    return results


def _copy_without_topic(image: ClusterImage, result: Any) -> TopicImage | None:
    """The copy here of a topic that the active site does not have."""
    name = image.topic_names.get(topic_id_bytes(result.topic_id)) if result.error_code in NOT_THERE else None
    return None if name is None else image.topics.get(name)


def _ambiguity(link: LinkRecord, copy: TopicImage, present: TopicImage) -> str:
    return (
        f"topic {copy.name} was deleted and made again at site {link.active_site} (id {uuid.UUID(bytes=present.topic_id)}); the "
        f"copy here is of the old one (id {uuid.UUID(bytes=copy.topic_id)}). The name does not show which is meant, and neither was "
        f"deleted. The old copy is put away by: antipode links reset {link.name} --topic {copy.name}; the new topic is deleted "
        f"through a broker of site {link.active_site}"
    )


async def _delete(
    doors: Doors, build: Any, wanted: dict[str, bytes], timeout_ms: int, link: LinkRecord | None = None
) -> list[Any]:
    request = pb.DeleteTopicsRequest(topic_ids=list(wanted.values()), timeout_ms=timeout_ms)
    if link is not None:
        request.link, request.link_epoch = link.name, link.epoch
    try:
        reply = await doors.controller.delete_topics(request)
    except ControllerUnavailable as error:
        return [_result(build, name, topic_id, error.code, str(error)) for name, topic_id in wanted.items()]
    outcomes = {result.name: result for result in reply.results if result.name}
    deleted = {name for name, result in outcomes.items() if not result.error_code}
    await doors.cluster.wait_for(
        lambda image: not any(name in image.topics and image.topics[name].topic_id == wanted[name] for name in deleted),
        timeout_ms=min(timeout_ms, PROPAGATION_TIMEOUT_MS),
    )
    await doors.topic_change_reports.report(lambda: doors.cluster.image, (), {name: wanted[name] for name in deleted})
    results: list[Any] = []
    for name, topic_id in wanted.items():
        outcome = outcomes.get(name)
        if outcome is None:  # another topic has the name by now, or none
            results.append(_result(build, name, topic_id, ErrorCode.unknown_topic_or_partition, None))
        else:
            results.append(_result(build, name, topic_id, ErrorCode(outcome.error_code), outcome.error_message))
    return results


def _result(build: Any, name: str | None, topic_id: bytes, error: ErrorCode, message: str | None) -> Any:
    return build.part(
        "DeletableTopicResult",
        name=name,
        topic_id=topic_uuid(topic_id),
        error_code=error,
        error_message=message or None,
    )
