"""AlterConfigs: all overrides of a topic or broker replaced at once (the older way; clients prefer IncrementalAlterConfigs).

Behaviour: as IncrementalAlterConfigs; whatever is not named goes back to its default. Versions: 0 to 2.
Not done: what IncrementalAlterConfigs does not do.
"""

from __future__ import annotations

from typing import Any

from broker.config_requests import BROKER_RESOURCE, replace_broker
from broker.entities import builder
from broker.handlers.describe_configs import topics_of
from broker.handlers.incremental_alter_configs import (
    RefusedChange,
    check_resource,
    forward,
    result_part,
)
from broker.services import BrokerServices, RequestContext
from wire.control import controller_pb2 as pb

API_KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer an AlterConfigs request."""
    build = builder(API_KEY, context.api_version)
    names = topics_of(request)
    answer = await services.active_site.answer(services.image, context, request, names)
    if answer is not None:
        return answer
    changes: dict[str, pb.TopicConfigChange | RefusedChange] = {}
    brokers = [resource for resource in request.resources if resource.resource_type == BROKER_RESOURCE]
    others = [resource for resource in request.resources if resource.resource_type != BROKER_RESOURCE]
    for resource in others:
        try:
            check_resource(services.image, resource, names)
        except RefusedChange as refused:
            changes[resource.resource_name] = refused
            continue
        values = _values(resource)
        changes[resource.resource_name] = pb.TopicConfigChange(
            name=resource.resource_name, set=values, replaces_all=True
        )
    results = []
    for resource in brokers:
        outcome = await replace_broker(
            services, resource.resource_name, _values(resource), is_validate_only=request.validate_only
        )
        results.append(result_part(build, resource, outcome))
    forwarded = await forward(services, build, others, changes, is_validate_only=request.validate_only)
    return build.response(responses=(*results, *forwarded))


def _values(resource: Any) -> dict[str, str]:
    return {config.name: config.value for config in resource.configs if config.value is not None}
