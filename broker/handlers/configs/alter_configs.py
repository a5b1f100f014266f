"""AlterConfigs: all overrides of a topic or broker replaced at once (the older way; clients prefer
IncrementalAlterConfigs).

Behaviour: as IncrementalAlterConfigs; configs that the request does not name return to their
defaults. Versions: 0 to 2. Not done: the same as in IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.configs.alteration_checks import checked
from broker.handlers.configs.config_requests import BROKER_RESOURCE, BrokerConfigChanges
from broker.handlers.configs.group_config_requests import GROUP_RESOURCE, GroupConfigRequests
from broker.handlers.configs.topic_config_changes import (
    RefusedChange,
    check_resource,
    forward,
    result_part,
    topics_of,
)
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ActiveSite, answered_elsewhere
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient

API_KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2

_REPLACED_HERE = (BROKER_RESOURCE, GROUP_RESOURCE)


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    broker_configs: BrokerConfigChanges
    cluster: Cluster
    controller: ControllerClient
    group_configs: GroupConfigRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AlterConfigs request."""
    build = builder(API_KEY, context.api_version)
    names = topics_of(request)
    answer = await answered_elsewhere(
        request, context, doors, handle, entries="resources", results="responses", names=names
    )
    if answer is not None:
        return answer
    answer = await doors.group_configs.answer_of_their_site(context, request)
    if answer is not None:
        return answer
    found = checked(request.resources, needs_value=lambda _: True)
    results = [result_part(build, resource, (ErrorCode.invalid_request, why)) for resource, why in found.refused]
    changes: list[tuple[Any, pb.TopicConfigChange | RefusedChange]] = []
    for resource in found.accepted:
        values = {config.name: config.value for config in resource.configs}
        if resource.resource_type in _REPLACED_HERE:
            is_broker = resource.resource_type == BROKER_RESOURCE
            replace = doors.broker_configs.replace_broker if is_broker else doors.group_configs.replace_group
            outcome = await replace(resource.resource_name, values, is_validate_only=request.validate_only)
            results.append(result_part(build, resource, outcome))
            continue
        try:
            check_resource(doors.cluster.image, resource)
            change = pb.TopicConfigChange(name=resource.resource_name, set=values, replaces_all=True)
            changes.append((resource, change))
        except RefusedChange as refused:
            changes.append((resource, refused))
    forwarded = await forward(doors.controller, build, changes, is_validate_only=request.validate_only)
    return build.response(responses=(*results, *forwarded))
