"""FindCoordinator: which broker coordinates a group or a transactional id.

Behaviour: answers with the leader of the group's partition of `__consumer_offsets`; the first such
request creates the topic. For a group that another site coordinates, it answers with the
coordinator in that site's view, or, if the view has none, with that site's own answer. Antipode's
own programs (software name `antipode`) get this site's. The same applies to transactional ids and
`__transaction_state`; a passive site always asks the active site, and returns its answer with the
addresses of the client's listener. While there is no coordinator, or too few brokers are registered
to create the internal topic, the answer waits a little, and is then COORDINATOR_NOT_AVAILABLE:
librdkafka's transactional producers never ask again after the third such answer. Versions: 0 to 6;
from 4 on several keys at once. Not done: coordinators of share groups; their key type, and unknown
ones, get INVALID_REQUEST, which no client repeats.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage, LinkRole, group_partition
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import ActiveSite
from broker.site.topic_creation import TopicCreator
from broker.transactions.transaction_routing import TransactionRouting
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.protocol.ids import NO_NODE
from wire.rules.links import other_site

API_KEY = 10
MIN_VERSION = 0
MAX_VERSION = 6

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
_TOPICS: Final = {GROUP_KEY_TYPE: OFFSETS_TOPIC, TRANSACTION_KEY_TYPE: TRANSACTIONS_TOPIC}
_SEVERAL_KEYS_FROM = 4
WAIT_MS: Final = 500
"""Time (ms) that a response may wait for a coordinator; later requests of the connection wait
too.
"""


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    configs: DynamicConfigs
    topic_creator: TopicCreator
    transaction_routing: TransactionRouting


class Found(NamedTuple):
    """A coordinator, or the reason why there is none."""

    node_id: int = NO_NODE
    host: str = ""
    port: int = -1
    error: ErrorCode = ErrorCode.none
    message: str | None = None


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a FindCoordinator request."""
    build = builder(API_KEY, context.api_version)
    key_type = getattr(request, "key_type", GROUP_KEY_TYPE)
    has_several = context.api_version >= _SEVERAL_KEYS_FROM
    keys = request.coordinator_keys if has_several else (request.key,)
    by_site: dict[str | None, list[str]] = {}
    for key in keys:
        by_site.setdefault(_site_to_ask(doors, context, key, key_type), []).append(key)
    found: dict[str, Found] = {}
    for site, named in by_site.items():
        if site is None:
            found.update(await _find_here(doors, context, named, key_type))
        else:
            asked = replace(request, coordinator_keys=tuple(named)) if has_several else request
            found.update(await _ask_site(doors, context, site, asked, named))
    if not has_several:
        return build.response(**_fields(found[request.key]))
    return build.response(coordinators=tuple(build.part("Coordinator", key=key, **_fields(found[key])) for key in keys))


def _site_to_ask(doors: Doors, context: RequestContext, key: str, key_type: int) -> str | None:
    """The site that knows the coordinator of the key better than this broker; None if there is no
    such broker.
    """
    if context.is_own_tool:
        return None
    image = doors.cluster.image
    if key_type == TRANSACTION_KEY_TYPE:
        link = doors.transaction_routing.active_elsewhere()
        return None if link is None else other_site(link, image.site)
    link = image.link_of_group(key) if key_type == GROUP_KEY_TYPE else None
    if link is None or not link.is_routed or image.role_in(link) is not LinkRole.PASSIVE:
        return None
    # views are slightly old: the internal topic may just have been created there, or must be
    # created
    is_found = find(doors, context, key, key_type).error is ErrorCode.none
    return None if is_found else other_site(link, image.site)


async def _find_here(doors: Doors, context: RequestContext, keys: Collection[str], key_type: int) -> dict[str, Found]:
    """The coordinators that this broker knows, or receives within the wait."""

    def found() -> dict[str, Found]:
        return {key: find(doors, context, key, key_type) for key in keys}

    def is_known(_: ClusterImage) -> bool:
        return all(each.error is ErrorCode.none for each in found().values())

    topic = _TOPICS.get(key_type)
    if topic is not None:
        doors.topic_creator.request_missing(topic, doors.cluster.image)
        await doors.cluster.wait_for(is_known, timeout_ms=WAIT_MS)
    return found()


def _fields(found: Found) -> dict[str, Any]:
    return {
        "error_code": found.error,
        "error_message": found.message,
        "node_id": found.node_id,
        "host": found.host,
        "port": found.port,
    }


def find(doors: Doors, context: RequestContext, key: str, key_type: int) -> Found:
    """The coordinator of one key according to the newest image."""
    image = doors.cluster.image
    if key_type == GROUP_KEY_TYPE:
        return _located(image, context, _coordinator(doors, image, key, is_local=context.is_own_tool))
    if key_type == TRANSACTION_KEY_TYPE:
        return _located(image, context, doors.transaction_routing.coordinator(key))
    return Found(
        error=ErrorCode.invalid_request,
        message=f"key type {key_type} is not supported; accepted: {GROUP_KEY_TYPE} (group), "
        f"{TRANSACTION_KEY_TYPE} (transaction)",
    )


def _located(image: ClusterImage, context: RequestContext, node_id: int) -> Found:
    brokers = image.brokers if context.is_own_tool else image.routed_brokers()
    broker = brokers.get(node_id)
    if broker is None:
        return _unavailable("no coordinator is available")
    for endpoint in broker.endpoints:
        if endpoint.listener == context.listener:
            return Found(node_id, endpoint.host, endpoint.port)
    return _unavailable(f"broker {node_id} has no listener {context.listener}")


async def _ask_site(
    doors: Doors, context: RequestContext, site: str, request: Any, keys: Collection[str]
) -> Mapping[str, Found]:
    """The site's answer, with the addresses at which this client reaches its brokers."""
    answer = await doors.active_site.ask_site(doors.cluster.image, site, context, request)
    image = doors.cluster.image
    if context.api_version < _SEVERAL_KEYS_FROM:
        return dict.fromkeys(keys, _relocated(image, context, answer))
    answered = {} if answer is None else {coordinator.key: coordinator for coordinator in answer.coordinators}
    return {key: _relocated(image, context, answered.get(key)) for key in keys}


def _relocated(image: ClusterImage, context: RequestContext, answered: Any) -> Found:
    if answered is None:
        return _unavailable("the coordinator's site does not answer")
    if answered.error_code is not ErrorCode.none:
        return Found(error=answered.error_code, message=answered.error_message)
    return _located(image, context, answered.node_id)


def _coordinator(doors: Doors, image: ClusterImage, group: str, *, is_local: bool) -> int:
    if not is_local:
        return image.coordinator_of(group, partition_count=doors.configs.current.offsets_partition_count)
    topic = image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return NO_NODE
    return topic.partitions[group_partition(group, len(topic.partitions))].leader


def _unavailable(message: str) -> Found:
    return Found(error=ErrorCode.coordinator_not_available, message=message)
