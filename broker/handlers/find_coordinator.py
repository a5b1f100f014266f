"""FindCoordinator: which broker coordinates a group or a transactional id.

Behaviour: the leader of the group's partition of `__consumer_offsets`, which the first question of all creates (COORDINATOR_NOT_AVAILABLE
meanwhile, and until as many brokers are registered as it is to have replicas). For a group that another site coordinates, that site's
coordinator as its view names it; programs of our own (software name `antipode`) are told this site's. Likewise for transactional ids
and `__transaction_state`; a passive site asks the active one, whose answer it gives with the addresses of the client's listener.
Versions: 0 to 6; from 4 on several keys at once.
Not done: coordinators of share groups (COORDINATOR_NOT_AVAILABLE, with a sentence).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from broker.core.cluster_image import NO_NODE, OFFSETS_TOPIC, ClusterImage, group_partition
from broker.entities import builder
from broker.services import BrokerServices, RequestContext
from wire.control.cluster_pb2 import LinkRecord
from wire.links import other_site
from wire.transaction_records import TRANSACTIONS_TOPIC

API_KEY = 10
MIN_VERSION = 0
MAX_VERSION = 6

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
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
    if key_type == TRANSACTION_KEY_TYPE and not context.is_own_tool:
        link = services.transaction_routing.active_elsewhere()
        if link is not None:
            return await _ask_active_site(services, context, request, link)
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
    image = services.image
    if key_type == GROUP_KEY_TYPE:
        services.topic_creator.request_missing(OFFSETS_TOPIC, image)
        return _located(image, context, _coordinator(services, image, key, is_local=context.is_own_tool))
    if key_type == TRANSACTION_KEY_TYPE:
        services.topic_creator.request_missing(TRANSACTIONS_TOPIC, image)
        return _located(image, context, services.transaction_routing.coordinator(key))
    return _unavailable("share groups are not there; groups and transactions are")


def _located(image: ClusterImage, context: RequestContext, node_id: int) -> Found:
    brokers = image.brokers if context.is_own_tool else image.routed_brokers()
    broker = brokers.get(node_id)
    if broker is None:
        return _unavailable("there is no coordinator now")
    for endpoint in broker.endpoints:
        if endpoint.listener == context.listener:
            return Found(node_id, endpoint.host, endpoint.port)
    return _unavailable(f"broker {node_id} has no listener {context.listener}")


async def _ask_active_site(services: BrokerServices, context: RequestContext, request: Any, link: LinkRecord) -> Any:
    """The active site's answer, with the addresses under which this client reaches its brokers."""
    image = services.image
    answer = await services.active_site.ask_site(image, other_site(link, image.site), context, request)
    build = builder(API_KEY, context.api_version)
    if context.api_version < _SEVERAL_KEYS_FROM:
        return build.response(**_fields(_relocated(image, context, answer)))
    found = {} if answer is None else {coordinator.key: coordinator for coordinator in answer.coordinators}
    return build.response(
        coordinators=tuple(
            build.part("Coordinator", key=key, **_fields(_relocated(image, context, found.get(key))))
            for key in request.coordinator_keys
        )
    )


def _relocated(image: ClusterImage, context: RequestContext, answered: Any) -> Found:
    if answered is None:
        return _unavailable("the site that coordinates transactions does not answer")
    if answered.error_code is not ErrorCode.none:
        return Found(error=answered.error_code, message=answered.error_message)
    return _located(image, context, answered.node_id)


def _coordinator(services: BrokerServices, image: ClusterImage, group: str, *, is_local: bool) -> int:
    if not is_local:
        return image.coordinator_of(group, partition_count=services.config.offsets_partition_count)
    topic = image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return NO_NODE
    return topic.partitions[group_partition(group, len(topic.partitions))].leader


def _unavailable(message: str) -> Found:
    return Found(error=ErrorCode.coordinator_not_available, message=message)
