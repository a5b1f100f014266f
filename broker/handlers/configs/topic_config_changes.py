"""Changes of topic configs that clients ask for: checked here, made by the controller.

Shared by IncrementalAlterConfigs and AlterConfigs; all handlers of configs find the topics of a
request by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.handlers.topics.topic_changes import policy_refusal
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_names import is_valid_topic_name
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

TOPIC_RESOURCE: Final = 2


def topics_of(request: Any) -> list[str]:
    """The topics that a request about configs names. A resource of another type has an empty name,
    so that it is never forwarded.
    """
    return [
        resource.resource_name if resource.resource_type == TOPIC_RESOURCE else "" for resource in request.resources
    ]


class RefusedChange(Exception):
    """A change cannot be forwarded; carries the Kafka error."""

    def __init__(self, error: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def check_resource(image: ClusterImage, resource: Any) -> None:
    """Raise RefusedChange unless the resource is a topic that may be changed here."""
    if resource.resource_type != TOPIC_RESOURCE:
        raise RefusedChange(
            ErrorCode.invalid_request, "only configs of topics, groups and brokers can be altered while a broker runs"
        )
    topic = resource.resource_name
    if not topic:
        raise RefusedChange(ErrorCode.invalid_request, "the topic has no name; accepted: the name of a topic")
    if not is_valid_topic_name(topic):
        raise RefusedChange(ErrorCode.invalid_topic_exception, f"{topic!r} is not a topic name")
    refusal = policy_refusal(image, topic)
    if refusal is not None:
        raise RefusedChange(ErrorCode.policy_violation, refusal)
    if topic not in image.topics:
        raise RefusedChange(ErrorCode.unknown_topic_or_partition, f"topic {topic!r} does not exist")


async def forward(
    controller: ControllerClient,
    build: Any,
    changes: Sequence[tuple[Any, pb.TopicConfigChange | RefusedChange]],
    *,
    is_validate_only: bool,
) -> tuple[Any, ...]:
    """Send the accepted changes to the controller; return one result for each resource, in
    order.
    """
    outcomes: dict[str, tuple[ErrorCode, str | None]] = {}
    wanted = [change for _, change in changes if isinstance(change, pb.TopicConfigChange)]
    if wanted:
        request = pb.AlterTopicConfigsRequest(changes=wanted, is_validate_only=is_validate_only)
        try:
            reply = await controller.alter_topic_configs(request)
            outcomes = {result.name: (ErrorCode(result.error_code), result.error_message) for result in reply.results}
        except ControllerUnavailable as error:
            outcomes = {change.name: (error.code, str(error)) for change in wanted}
    results = []
    for resource, change in changes:
        if isinstance(change, RefusedChange):
            outcome = change.error, change.message
        else:
            outcome = outcomes.get(resource.resource_name, (ErrorCode.unknown_server_error, None))
        results.append(result_part(build, resource, outcome))
    return tuple(results)


def result_part(build: Any, resource: Any, outcome: tuple[ErrorCode, str | None]) -> Any:
    """The answer for one resource."""
    return build.part(
        "AlterConfigsResourceResponse",
        error_code=outcome[0],
        error_message=outcome[1] or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
