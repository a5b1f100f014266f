"""IncrementalAlterConfigs: sets and removes single configs of topics and brokers, and extends and
shortens lists.

Behaviour: those of topics are forwarded to the active controller; topics that a link mirrors here
are changed at the active site (`broker/site/active_site.py`), or refused (POLICY_VIOLATION) when
that is impossible. A broker alters its own configs, those of all brokers (empty name), and the
levels of its loggers (KIP-412). Configs of groups are checked here, and stored and published by the
controller. The controller also appends to lists and subtracts from them, because two brokers may
receive such changes at the same time. A resource or a config that appears twice is an
INVALID_REQUEST (`alteration_checks.py`). Versions: 0 and 1. Not done: client metrics.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.configs.alteration_checks import checked
from broker.handlers.configs.config_requests import BROKER_RESOURCE, DONE, BrokerConfigChanges
from broker.handlers.configs.group_config_requests import GROUP_RESOURCE, GroupConfigRequests
from broker.handlers.configs.logger_levels import LOGGER_RESOURCE, alter_loggers, refusal_of
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
from broker.settings.core.broker_configs import Operation, PropertyChange
from broker.settings.core.topic_configs import resolve
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import ActiveSite, answered_elsewhere
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient
from wire.rules.topic_config_kinds import ConfigKind, list_items
from wire.rules.topic_configs import TOPIC_CONFIGS

API_KEY = 44
MIN_VERSION = 0
MAX_VERSION = 1

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OWN_RESOURCES: Final = (BROKER_RESOURCE, LOGGER_RESOURCE, GROUP_RESOURCE)


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    broker_configs: BrokerConfigChanges
    cluster: Cluster
    configs: DynamicConfigs
    controller: ControllerClient
    group_configs: GroupConfigRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an IncrementalAlterConfigs request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    names = topics_of(request)
    answer = await answered_elsewhere(
        request, context, doors, handle, entries="resources", results="responses", names=names
    )
    if answer is not None:
        return answer
    answer = await doors.group_configs.answer_of_their_site(context, request)
    if answer is not None:
        return answer
    found = checked(request.resources, needs_value=lambda config: config.config_operation != _DELETE)
    results = [result_part(build, resource, (ErrorCode.invalid_request, why)) for resource, why in found.refused]
    changes: list[tuple[Any, pb.TopicConfigChange | RefusedChange]] = []
    for resource in found.accepted:
        if resource.resource_type in _OWN_RESOURCES:
            results.append(result_part(build, resource, await _alter_own(doors, request, resource)))
            continue
        try:
            check_resource(image, resource)
            changes.append((resource, _change(doors, resource)))
        except RefusedChange as refused:
            changes.append((resource, refused))
    forwarded = await forward(doors.controller, build, changes, is_validate_only=request.validate_only)
    return build.response(responses=(*results, *forwarded))


async def _alter_own(doors: Doors, request: Any, resource: Any) -> tuple[ErrorCode, str | None]:
    try:
        changes = [
            PropertyChange(config.name, Operation(config.config_operation), config.value) for config in resource.configs
        ]
    except ValueError as error:
        return ErrorCode.invalid_request, str(error)
    if resource.resource_type == LOGGER_RESOURCE:
        refusal = refusal_of(resource.resource_name, node_id=doors.configs.current.node_id)
        return alter_loggers(changes, is_validate_only=request.validate_only) if refusal is DONE else refusal
    if resource.resource_type == GROUP_RESOURCE:
        return await doors.group_configs.alter_group(
            resource.resource_name, changes, is_validate_only=request.validate_only
        )
    return await doors.broker_configs.alter_broker(
        resource.resource_name, changes, is_validate_only=request.validate_only
    )


def _change(doors: Doors, resource: Any) -> pb.TopicConfigChange:
    change = pb.TopicConfigChange(name=resource.resource_name)
    for config in resource.configs:
        if config.config_operation == _DELETE:
            change.remove.append(config.name)
        elif config.config_operation == _SET:
            change.set[config.name] = config.value
        else:
            change.lists.append(_list_change(doors, config))
    return change


def _list_change(doors: Doors, config: Any) -> pb.ListChange:
    """The change of a list: the controller makes it, because it alone knows the list as it is."""
    definition = TOPIC_CONFIGS.get(config.name)
    if (
        definition is None
        or definition.kind is not ConfigKind.LIST
        or config.config_operation not in (_APPEND, _SUBTRACT)
    ):
        raise RefusedChange(ErrorCode.invalid_config, f"{config.name} is not a list: append and subtract do not apply")
    return pb.ListChange(
        name=config.name,
        items=list_items(config.value),
        is_removal=config.config_operation == _SUBTRACT,
        inherited=resolve(definition, doors.configs.layers, {}).text,
    )
