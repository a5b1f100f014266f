"""StandbyRules (private): the mirror of an exact link writes ACLs, client quotas and configs of
groups at the standby.

Behaviour: for a principal with ClusterAction, and with the rights that Kafka's own requests need:
Alter on the cluster for ACLs, AlterConfigs on the cluster for quotas, AlterConfigs on the group for
its configs. The controller makes the changes only while the site is the link's standby at the
link's epoch. The first refusal is the answer. Versions: 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer, Check
from broker.handlers.access.mirror_claims import unnamed_link_refusal
from broker.handlers.configs.group_config_requests import GroupConfigRequests
from broker.metadata.request_context import RequestContext
from broker.settings.core.broker_configs import Operation as ConfigOperation
from broker.settings.core.broker_configs import PropertyChange
from wire.client.requests.acl_requests import exactly
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.messages.access_change_messages import STANDBY_RULES, StandbyRulesResponse
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.rules.acls import (
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from wire.rules.client_quotas import QuotaEntity, entity_message, quota_entity
from wire.znodes.acl_znodes import acls_message, filter_message

API_KEY = STANDBY_RULES
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[STANDBY_RULES]

Outcome = tuple[ErrorCode, str | None]
_DONE: Outcome = (ErrorCode.none, None)


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    controller: ControllerClient
    group_configs: GroupConfigRequests


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a StandbyRules request."""
    if (unnamed := unnamed_link_refusal(request)) is not None:
        return StandbyRulesResponse(error_code=unnamed[0], error_message=unnamed[1])
    for write in (_write_acls, _write_quotas, _write_group_configs):
        try:
            error, message = await write(doors, context, request)
        except ControllerUnavailable as unavailable:
            error, message = unavailable.code, str(unavailable)
        if error is not ErrorCode.none:
            return StandbyRulesResponse(error_code=error, error_message=message)
    return StandbyRulesResponse(error_code=ErrorCode.none, error_message=None)


async def _write_acls(doors: Doors, context: RequestContext, request: Any) -> Outcome:
    if not request.acls:
        return _DONE
    if not doors.authorizer.is_enabled:
        return ErrorCode.security_disabled, "ACLs are written only where there is an authorizer"
    if not doors.authorizer.may_cluster(context, Operation.ALTER):
        return ErrorCode.cluster_authorization_failed, f"{context.principal} has no Alter on the cluster"
    wanted = pb.AlterAclsRequest(link=request.link, link_epoch=request.link_epoch)
    for one in request.acls:
        try:
            acl = _acl(one)
        except ValueError as error:
            return ErrorCode.invalid_request, str(error)
        if one.is_removal:
            wanted.removals.append(filter_message(exactly(acl)))
        else:
            wanted.creations.append(acls_message(acl.pattern, (acl.entry,)))
    return _first_refusal("an ACL", (await doors.controller.alter_acls(wanted)).results)


def _acl(one: Any) -> Acl:
    resource_type, pattern_type = ResourceType(one.resource_type), PatternType(one.resource_pattern_type)
    return Acl(
        ResourcePattern(resource_type, one.resource_name, pattern_type),
        AccessEntry(one.principal, one.host, Operation(one.operation), Permission(one.permission_type)),
    )


async def _write_quotas(doors: Doors, context: RequestContext, request: Any) -> Outcome:
    if not request.quotas:
        return _DONE
    if not doors.authorizer.may_cluster(context, Operation.ALTER_CONFIGS):
        return ErrorCode.cluster_authorization_failed, f"{context.principal} has no AlterConfigs on the cluster"
    changes: dict[QuotaEntity, pb.QuotaChange] = {}
    for one in request.quotas:
        entity = quota_entity((part.entity_type, part.entity_name) for part in one.entity)
        change = changes.setdefault(entity, pb.QuotaChange(entity=entity_message(entity)))
        if one.is_removal:
            change.remove.append(one.key)
        else:
            change.set[one.key] = one.value
    wanted = pb.AlterClientQuotasRequest(changes=changes.values(), link=request.link, link_epoch=request.link_epoch)
    return _first_refusal("a quota", (await doors.controller.alter_client_quotas(wanted)).results)


async def _write_group_configs(doors: Doors, context: RequestContext, request: Any) -> Outcome:
    changes: dict[str, list[PropertyChange]] = {}
    for one in request.group_configs:
        operation = ConfigOperation.DELETE if one.value is None else ConfigOperation.SET
        changes.setdefault(one.group, []).append(PropertyChange(one.name, operation, one.value))
    for group, of_group in changes.items():
        if not doors.authorizer.may(context, Check(Operation.ALTER_CONFIGS, ResourceType.GROUP, group)):
            return ErrorCode.group_authorization_failed, f"{context.principal} has no AlterConfigs on group {group}"
        error, message = await doors.group_configs.alter_group(
            group, of_group, link=request.link, link_epoch=request.link_epoch
        )
        if error is not ErrorCode.none:
            return error, f"group {group}: {message}"
    return _DONE


def _first_refusal(what: str, results: Iterable[pb.AclResult | pb.QuotaResult]) -> Outcome:
    for result in results:
        if result.error_code:
            return ErrorCode(result.error_code), f"{what} is refused: {result.error_message}"
    return _DONE
