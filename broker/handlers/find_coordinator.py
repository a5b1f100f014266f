"""FindCoordinator: which broker coordinates a group.

Behaviour: the leader of the group's partition of `__consumer_offsets`, which the first question of all creates (COORDINATOR_NOT_AVAILABLE
meanwhile). For a group that another site coordinates, that site's coordinator as its view names it; programs of our own (software name
`antipode`) are told this site's. Versions: 0 to 6; from 4 on several groups at once.
Not done: coordinators of transactions and share groups (COORDINATOR_NOT_AVAILABLE, with a sentence).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from broker.core.cluster_image import NO_NODE, OFFSETS_TOPIC, ClusterImage, group_partition
from broker.entities import builder
from broker.services import BrokerServices, RequestContext

API_KEY = 10
MIN_VERSION = 0
MAX_VERSION = 6

GROUP_KEY_TYPE = 0
_SEVERAL_KEYS_FROM = 4


class Found(NamedTuple):
    """A coordinator, or why there is none."""

    node_id: int = NO_NODE
    host: str = ""
    port: int = -1
    error: ErrorCode = ErrorCode.none
    message: str | None = None


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a FindCoordinator request."""
    build = builder(API_KEY, context.api_version)
    key_type = getattr(request, "key_type", GROUP_KEY_TYPE)
    if context.api_version < _SEVERAL_KEYS_FROM:
        return build.response(**_fields(find(services, context, request.key, key_type)))
    return build.response(
        coordinators=tuple(
            build.part("Coordinator", key=key, **_fields(find(services, context, key, key_type)))
            for key in request.coordinator_keys
        )
    )


def _fields(found: Found) -> dict[str, Any]:
    return {
        "error_code": found.error,
        "error_message": found.message,
        "node_id": found.node_id,
        "host": found.host,
        "port": found.port,
    }


def find(services: BrokerServices, context: RequestContext, key: str, key_type: int) -> Found:
    """The coordinator of one key."""
    if key_type != GROUP_KEY_TYPE:
        return _unavailable("transactions and share groups are not there yet; groups are")
    image = services.image
    if OFFSETS_TOPIC not in image.topics:
        services.topic_creator.request([OFFSETS_TOPIC], image)
    node_id = _coordinator(services, image, key, is_local=context.is_own_tool)
    brokers = image.brokers if context.is_own_tool else image.routed_brokers()
    broker = brokers.get(node_id)
    if broker is None:
        return _unavailable(f"nobody coordinates group {key} now")
    for endpoint in broker.endpoints:
        if endpoint.listener == context.listener:
            return Found(node_id, endpoint.host, endpoint.port)
    return _unavailable(f"broker {node_id} has no listener {context.listener}")


def _coordinator(services: BrokerServices, image: ClusterImage, group: str, *, is_local: bool) -> int:
    if not is_local:
        return image.coordinator_of(group, partition_count=services.config.offsets_partition_count)
    topic = image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return NO_NODE
    return topic.partitions[group_partition(group, len(topic.partitions))].leader


def _unavailable(message: str) -> Found:
    return Found(error=ErrorCode.coordinator_not_available, message=message)
