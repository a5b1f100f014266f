"""ListConfigResources: the names of all resources with their own configs: topics, brokers, and
groups with a config.

Behaviour: as Kafka; without types, all known types. Versions: 0 and 1. Client metrics have no
configs here, so none are listed; version 0 asks for client metrics only. The listed topics and
brokers are those that clients of a routed link see. All other resources are those of this site and
of the peers that answer in time, so a tool finds at any broker a config that it has set at another.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.configs.config_requests import BROKER_RESOURCE
from broker.handlers.configs.group_config_requests import GROUP_RESOURCE
from broker.handlers.configs.logger_levels import LOGGER_RESOURCE
from broker.handlers.configs.topic_config_changes import TOPIC_RESOURCE
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import READ_TIMEOUT_MS, ActiveSite

API_KEY = 74
MIN_VERSION = 0
MAX_VERSION = 1

CLIENT_METRICS_RESOURCE = 16
_KNOWN = {TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}

OF_EACH_SITE = (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
"""Types of resources that each site stores separately; its peers do not know them."""


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ListConfigResources request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    if context.api_version == 0:
        return build.response(error_code=ErrorCode.none, config_resources=())
    wanted = set(request.resource_types) or _KNOWN
    if not wanted <= _KNOWN:
        return build.response(error_code=ErrorCode.unsupported_version, config_resources=())
    brokers = [str(node) for node in sorted(image.brokers if context.is_own_tool else image.routed_brokers())]
    names = {
        TOPIC_RESOURCE: sorted(image.topics if context.is_own_tool else image.routed_topic_names()),
        BROKER_RESOURCE: brokers,
        LOGGER_RESOURCE: brokers,
        GROUP_RESOURCE: sorted(image.group_configs),
    }
    for kind, name in await _named_by_peers(doors, context, request):
        if kind in OF_EACH_SITE and name not in names.setdefault(kind, []):
            names[kind].append(name)
    return build.response(
        error_code=ErrorCode.none,
        config_resources=tuple(
            build.part("ConfigResource", resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in names.get(kind, ())
        ),
    )


async def _named_by_peers(doors: Doors, context: RequestContext, request: Any) -> list[tuple[int, str]]:
    """Type and name of all resources that the brokers of peers list."""
    if context.is_own_tool:
        return []
    asked = (
        doors.active_site.ask_site(doors.cluster.image, site, context, request, timeout_ms=READ_TIMEOUT_MS)
        for site in doors.cluster.image.routed_sites()
    )
    answers = [answer for answer in await asyncio.gather(*asked) if answer is not None]
    return [(found.resource_type, found.resource_name) for answer in answers for found in answer.config_resources]
