"""CreateTopics: forwarded to the active controller.

Behaviour: names that a link will mirror from the active site are created there
(`broker/site/active_site.py`); if that site does not answer, they are refused (POLICY_VIOLATION).
The answer waits a moment for the brokers of this site and of its peers to know the new topics, so
that a client finds them immediately afterwards (`broker/site/topic_change_reports.py`). New
partitions are charged to the client's mutation quota at the broker that receives the request
(clients ask the active controller's broker). Versions: 2 to 7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.topics.mutation_quota import is_led_elsewhere, known_topic, within_quota
from broker.handlers.topics.topic_changes import PROPAGATION_TIMEOUT_MS, policy_refusal
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import allowed_ms, builder, throttle_time, topic_uuid
from broker.quotas.client_throttling import QUOTA_EXCEEDED_MESSAGE, Quotas
from broker.settings.core.topic_configs import resolve
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import ActiveSite, answered_elsewhere
from broker.site.topic_change_reports import TopicChangeReports
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.topic_configs import TOPIC_CONFIGS

API_KEY = 19
MIN_VERSION = 2
MAX_VERSION = 7


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    configs: DynamicConfigs
    controller: ControllerClient
    quotas: Quotas
    topic_change_reports: TopicChangeReports


def _new_topic(topic: Any) -> pb.NewTopic:
    return pb.NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs={config.name: config.value for config in topic.configs},
        assignments=[
            pb.ReplicaAssignment(partition=assignment.partition_index, replicas=assignment.broker_ids)
            for assignment in topic.assignments
        ],
    )


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a CreateTopics request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    names = [topic.name for topic in request.topics]
    permits = doors.quotas.mutation_permits(context, is_free=getattr(request, "validate_only", False))

    def ask() -> Awaitable[Any | None]:
        return answered_elsewhere(request, context, doors, handle, entries="topics", results="topics", names=names)

    if is_led_elsewhere(image, context, names):
        new = (topic for topic in request.topics if known_topic(image, topic.name) is None)
        count = sum(_partition_count(doors, topic) for topic in new)
        answer = await within_quota(context, request, permits, count, ask)
    else:
        answer = await ask()
    if answer is not None:
        return answer
    results: dict[str, Any] = {}
    wanted: list[pb.NewTopic] = []
    for topic in request.topics:
        refusal = policy_refusal(image, topic.name)
        if names.count(topic.name) > 1:
            results[topic.name] = _failure(
                build, topic.name, ErrorCode.invalid_request, "the request names the topic twice"
            )
        elif refusal is not None:
            results[topic.name] = _failure(build, topic.name, ErrorCode.policy_violation, refusal)
        elif missing := ",".join(config.name for config in topic.configs if config.value is None):
            message = f"topic configs without a value: {missing}; accepted: a value for each"
            results[topic.name] = _failure(build, topic.name, ErrorCode.invalid_config, message)
        elif topic.name not in image.topics and not permits.take(_partition_count(doors, topic)):
            results[topic.name] = _failure(
                build, topic.name, ErrorCode.throttling_quota_exceeded, QUOTA_EXCEEDED_MESSAGE
            )
        else:
            wanted.append(_new_topic(topic))
    if wanted:
        results.update(await _create(doors, build, wanted, request))
    topics = tuple(results[name] for name in dict.fromkeys(names))
    return build.response(topics=topics, throttle_time=throttle_time(permits.throttle_time_ms))


def _partition_count(doors: Doors, topic: Any) -> int:
    asked: int = len(topic.assignments) or topic.num_partitions
    return asked if asked > 0 else doors.configs.current.default_partition_count


async def _create(doors: Doors, build: Any, wanted: list[pb.NewTopic], request: Any) -> dict[str, Any]:
    timeout_ms = allowed_ms(request.timeout)
    forwarded = pb.CreateTopicsRequest(
        topics=wanted, is_validate_only=getattr(request, "validate_only", False), timeout_ms=timeout_ms
    )
    try:
        reply = await doors.controller.create_topics(forwarded)
    except ControllerUnavailable as error:
        return {topic.name: _failure(build, topic.name, error.code, str(error)) for topic in wanted}
    created = [result.name for result in reply.results if not result.error_code]
    if created and not forwarded.is_validate_only:
        await doors.cluster.wait_for(
            lambda image: all(name in image.topics for name in created),
            timeout_ms=min(timeout_ms, PROPAGATION_TIMEOUT_MS),
        )
        await doors.topic_change_reports.report(lambda: doors.cluster.image, created)
    return {result.name: _result(doors, build, result) for result in reply.results}


def _failure(build: Any, name: str, error: ErrorCode, message: str) -> Any:
    return build.part(
        "CreatableTopicResult", name=name, topic_id=None, error_code=error, error_message=message, configs=()
    )


def _result(doors: Doors, build: Any, result: pb.TopicResult) -> Any:
    if result.error_code:
        return _failure(build, result.name, ErrorCode(result.error_code), result.error_message)
    return build.part(
        "CreatableTopicResult",
        name=result.name,
        topic_id=topic_uuid(result.topic_id),
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=result.partition_count,
        replication_factor=result.replication_factor,
        configs=tuple(_configs(doors, build, result.configs)) if build.has("CreatableTopicConfigs") else (),
    )


def _configs(doors: Doors, build: Any, overrides: Any) -> Iterable[Any]:
    for name, definition in TOPIC_CONFIGS.items():
        resolved = resolve(definition, doors.configs.layers, overrides)
        yield build.part(
            "CreatableTopicConfigs",
            name=name,
            value=resolved.text,
            read_only=False,
            config_source=resolved.source,
            is_sensitive=False,
        )
