"""AlterConfigs: all overrides of a topic or broker replaced at once (the older way; clients prefer
IncrementalAlterConfigs).

Behaviour: as IncrementalAlterConfigs; whatever is not named goes back to its default. Versions: 0
to 2. Not done: what IncrementalAlterConfigs does not do.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.configs.config_requests import BROKER_RESOURCE, replace_broker
from broker.handlers.configs.describe_configs import topics_of
from broker.handlers.configs.group_config_requests import GROUP_RESOURCE, answer_of_their_site, replace_group
from broker.handlers.configs.incremental_alter_configs import (
    RefusedChange,
    check_resource,
    forward,
    result_part,
)
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices
from broker.site.active_site import in_parts
from wire.control import controller_pb2 as pb

API_KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2

_REPLACED_HERE = {BROKER_RESOURCE: replace_broker, GROUP_RESOURCE: replace_group}


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer an AlterConfigs request."""
    build = builder(API_KEY, context.api_version)
    names = topics_of(request)
    answer = await in_parts(handle, services, context, request, entries="resources", results="responses", names=names)
    answer = answer or await services.active_site.answer(services.image, context, request, names)
    if answer is not None:
        return answer
    answer = await answer_of_their_site(services, context, request)
    if answer is not None:
        return answer
    changes: dict[str, pb.TopicConfigChange | RefusedChange] = {}
    own = [resource for resource in request.resources if resource.resource_type in _REPLACED_HERE]
    others = [resource for resource in request.resources if resource.resource_type not in _REPLACED_HERE]
    for resource in others:
        try:
            check_resource(services.image, resource)
        except RefusedChange as refused:
            changes[resource.resource_name] = refused
            continue
        values = _values(resource)
        changes[resource.resource_name] = pb.TopicConfigChange(
            name=resource.resource_name, set=values, replaces_all=True
        )
    results = []
    for resource in own:
        outcome = await _REPLACED_HERE[resource.resource_type](
            services, resource.resource_name, _values(resource), is_validate_only=request.validate_only
        )
        results.append(result_part(build, resource, outcome))
    forwarded = await forward(services, build, others, changes, is_validate_only=request.validate_only)
    return build.response(responses=(*results, *forwarded))


def _values(resource: Any) -> dict[str, str]:
    return {config.name: config.value for config in resource.configs if config.value is not None}
