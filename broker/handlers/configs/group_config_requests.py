"""Reads and changes configs of single groups for a client: at the site that coordinates the group,
checked here, stored and published by the controller.

A request that names only groups that another site coordinates is forwarded to that site. Each site
keeps its own configs of groups; the mirror of an exact link copies the configs of the link's groups
(`mirror/groups/group_config_sync.py`). Shared by DescribeConfigs, IncrementalAlterConfigs and
AlterConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.groups.coordinator import GroupCoordinator
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.request_context import RequestContext
from broker.settings.core.broker_configs import Operation, PropertyChange
from broker.settings.core.group_configs import RefusedGroupConfig, changed
from broker.site.active_site import ActiveSite
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.links import other_site

Outcome = tuple[ErrorCode, str | None]

GROUP_RESOURCE: Final = 32
KNOWN_WITHIN_MS: Final = 5_000


class GroupConfigRequests:
    """Reads and changes configs of groups for clients."""

    def __init__(
        self, cluster: Cluster, groups: GroupCoordinator, controller: ControllerClient, active_site: ActiveSite
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._controller = controller
        self._active_site = active_site

    async def answer_of_their_site(self, context: RequestContext, request: Any) -> Any | None:
        """The answer of the site that coordinates all groups of the request; None if this site
        coordinates them, or if that site does not answer.
        """
        if context.is_own_tool or any(resource.resource_type != GROUP_RESOURCE for resource in request.resources):
            return None
        image = self._cluster.image
        sites = {_other_site(image, resource.resource_name) for resource in request.resources}
        site = sites.pop() if len(sites) == 1 else None
        return None if site is None else await self._active_site.ask_site(image, site, context, request)

    async def alter_group(
        self,
        group: str,
        changes: Sequence[PropertyChange],
        *,
        is_validate_only: bool = False,
        link: str = "",
        link_epoch: int = 0,
    ) -> Outcome:
        """Make these changes to the configs of a group; in the name of a link's mirror only while
        this site is the link's standby at the epoch.
        """
        known = self._cluster.image.group_configs.get(group, {})
        wanted = pb.GroupConfigChange(
            group=group,
            set={name: value for name, operation, value in changes if operation is Operation.SET and value is not None},
            remove=[name for name, operation, _ in changes if operation is Operation.DELETE],
        )
        request = pb.AlterGroupConfigsRequest(changes=[wanted], link=link, link_epoch=link_epoch)
        return await self._alter(request, known, changes, is_validate_only)

    async def replace_group(self, group: str, wanted_values: Mapping[str, str], *, is_validate_only: bool) -> Outcome:
        """Make these the only configs of a group."""
        changes = [PropertyChange(name, Operation.SET, value) for name, value in wanted_values.items()]
        wanted = pb.GroupConfigChange(group=group, set=dict(wanted_values), replaces_all=True)
        return await self._alter(pb.AlterGroupConfigsRequest(changes=[wanted]), {}, changes, is_validate_only)

    async def _alter(
        self,
        request: pb.AlterGroupConfigsRequest,
        kept: Mapping[str, str],
        changes: Sequence[PropertyChange],
        is_validate_only: bool,
    ) -> Outcome:
        (wanted,) = request.changes
        group = wanted.group
        if not group:
            return ErrorCode.invalid_request, "Default group resources are not allowed."
        try:
            configs = changed(kept, changes, self._groups.group_bounds)
        except RefusedGroupConfig as refused:
            return refused.error, str(refused)
        if is_validate_only or configs == self._cluster.image.group_configs.get(group, {}):
            return ErrorCode.none, None
        try:
            reply = await self._controller.alter_group_configs(request)
        except ControllerUnavailable as error:
            return error.code, str(error)
        for result in reply.results:
            if result.error_code:
                return ErrorCode(result.error_code), result.error_message
        # another broker may change another config of the group at the same time: this waits only
        # for the requested change
        await self._cluster.wait_for(lambda image: _is_made(image, wanted), timeout_ms=KNOWN_WITHIN_MS)
        return ErrorCode.none, None


def _other_site(image: ClusterImage, group: str) -> str | None:
    link = image.link_of_group(group)
    if link is None or not link.is_routed or image.role_in(link) is not LinkRole.PASSIVE:
        return None
    return other_site(link, image.site)


def _is_made(image: ClusterImage, wanted: pb.GroupConfigChange) -> bool:
    found = image.group_configs.get(wanted.group, {})
    return all(found.get(name) == value for name, value in wanted.set.items()) and not any(
        name in found for name in wanted.remove
    )
