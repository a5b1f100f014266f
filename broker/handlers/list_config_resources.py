"""ListConfigResources: the names of everything that has configs of its own: topics and brokers here.

Behaviour: as Kafka; without types all known ones. Versions: 0 and 1. Client metrics and groups have no configs here, so none are listed;
version 0 asks for nothing but the former.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.config_requests import BROKER_RESOURCE
from broker.entities import builder
from broker.handlers.describe_configs import TOPIC_RESOURCE
from broker.logger_levels import LOGGER_RESOURCE
from broker.services import BrokerServices, RequestContext

API_KEY = 74
MIN_VERSION = 0
MAX_VERSION = 1

CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 16, 32
_KNOWN = {TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a ListConfigResources request."""
    build, image = builder(API_KEY, context.api_version), services.image
    if context.api_version == 0:
        return build.response(error_code=ErrorCode.none, config_resources=())
    wanted = set(request.resource_types) or _KNOWN
    if not wanted <= _KNOWN:
        return build.response(error_code=ErrorCode.unsupported_version, config_resources=())
    names = {
        TOPIC_RESOURCE: sorted(image.topics),
        BROKER_RESOURCE: [str(node) for node in sorted(image.brokers)],
        LOGGER_RESOURCE: [str(node) for node in sorted(image.brokers)],
    }
    return build.response(
        error_code=ErrorCode.none,
        config_resources=tuple(
            build.part("ConfigResource", resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in names.get(kind, ())
        ),
    )
