"""Configs of single groups on a client's behalf: at the site that coordinates the group, checked,
stored and published by the controller.

A request that names groups only, all of which another site coordinates, is handed on to that site.
Each site keeps its own configs of groups; the mirror of an exact link carries those of its groups
(`mirror/groups/group_config_sync.py`). Shared by DescribeConfigs, IncrementalAlterConfigs and
AlterConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.request_context import RequestContext
from broker.services import BrokerServices
from broker.settings.core.broker_configs import Operation, PropertyChange
from broker.settings.core.group_configs import RefusedGroupConfig, changed
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerUnavailable
from wire.rules.links import other_site

Outcome = tuple[ErrorCode, str | None]

GROUP_RESOURCE: Final = 32
KNOWN_WITHIN_MS: Final = 5_000


async def answer_of_their_site(services: BrokerServices, context: RequestContext, request: Any) -> Any | None:
    """The answer of the site that coordinates all groups of the request; None when they are this
    site's business, or it does not answer.
    """
    if context.is_own_tool or any(resource.resource_type != GROUP_RESOURCE for resource in request.resources):
        return None
    image = services.image
    sites = {_other_site(image, resource.resource_name) for resource in request.resources}
    site = sites.pop() if len(sites) == 1 else None
    return None if site is None else await services.active_site.ask_site(image, site, context, request)


def _other_site(image: ClusterImage, group: str) -> str | None:
    link = image.link_of_group(group)
    if link is None or not link.is_routed or image.role_in(link) is not LinkRole.PASSIVE:
        return None
    return other_site(link, image.site)


async def alter_group(
    services: BrokerServices, group: str, changes: Sequence[PropertyChange], *, is_validate_only: bool
) -> Outcome:
    """Make these changes to the configs of a group."""
    known = services.image.group_configs.get(group, {})
    wanted = pb.GroupConfigChange(
        group=group,
        set={name: value for name, operation, value in changes if operation is Operation.SET and value is not None},
        remove=[name for name, operation, _ in changes if operation is Operation.DELETE],
    )
    return await _alter(services, wanted, known, changes, is_validate_only)


async def replace_group(
    services: BrokerServices, group: str, wanted_values: Mapping[str, str], *, is_validate_only: bool
) -> Outcome:
    """Make these the only configs of a group."""
    changes = [PropertyChange(name, Operation.SET, value) for name, value in wanted_values.items()]
    wanted = pb.GroupConfigChange(group=group, set=dict(wanted_values), replaces_all=True)
    return await _alter(services, wanted, {}, changes, is_validate_only)


async def _alter(
    services: BrokerServices,
    wanted: pb.GroupConfigChange,
    kept: Mapping[str, str],
    changes: Sequence[PropertyChange],
    is_validate_only: bool,
) -> Outcome:
    group = wanted.group
    if not group:
        return ErrorCode.invalid_request, "Default group resources are not allowed."
    try:
        configs = changed(kept, changes, services.groups.group_bounds)
    except RefusedGroupConfig as refused:
        return refused.error, str(refused)
    if is_validate_only or configs == services.image.group_configs.get(group, {}):
        return ErrorCode.none, None
    try:
        await services.controller.alter_group_configs(pb.AlterGroupConfigsRequest(changes=[wanted]))
    except ControllerUnavailable as error:
        return ErrorCode.not_controller, str(error)
    # another broker may change another config of the group at the same time: only what was asked
    # for is waited for
    await services.cluster.wait_for(lambda image: _is_made(image, wanted), timeout_ms=KNOWN_WITHIN_MS)
    return ErrorCode.none, None


def _is_made(image: ClusterImage, wanted: pb.GroupConfigChange) -> bool:
    found = image.group_configs.get(wanted.group, {})
    return all(found.get(name) == value for name, value in wanted.set.items()) and not any(
        name in found for name in wanted.remove
    )
