"""DeleteAcls: forwarded to the active controller, which removes the ACLs that match the filters.

Behaviour: each filter is answered with the ACLs that it removed, when the live brokers have
received the change. Without an authorizer SECURITY_DISABLED for each. At a standby as CreateAcls.
Versions: 1 to 3.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.handlers.security.acl_filters import NO_AUTHORIZER, filter_of
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ActiveSite
from broker.site.followed_site import Rules, ask_followed_site
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.acls import AclFilter
from wire.znodes.acl_znodes import acls_from_message, filter_message

API_KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    authorizer: Authorizer
    cluster: Cluster
    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DeleteAcls request."""
    build = builder(API_KEY, context.api_version)
    if not doors.authorizer.is_enabled:
        refused = _result(build, ErrorCode.security_disabled, NO_AUTHORIZER)
        return build.response(filter_results=(refused,) * len(request.filters))
    followed = await ask_followed_site(doors.active_site, doors.cluster.image, context, request, Rules.ACLS)
    if followed.answer is not None:
        return followed.answer
    if followed.refusal:
        refused = _result(build, ErrorCode.policy_violation, followed.refusal)
        return build.response(filter_results=(refused,) * len(request.filters))
    filters = [_filter(entity) for entity in request.filters]
    wanted = [one for one in filters if isinstance(one, AclFilter)]
    removed: list[Any] = []
    if wanted:
        forwarded = pb.AlterAclsRequest(removals=[filter_message(one) for one in wanted])
        try:
            reply = await doors.controller.alter_acls(forwarded)
            removed = [_removed(build, result) for result in reply.results]
        except ControllerUnavailable as error:
            removed = [_result(build, error.code, str(error))] * len(wanted)
    answers = iter(removed)
    results = [
        next(answers) if isinstance(one, AclFilter) else _result(build, ErrorCode.invalid_request, one)
        for one in filters
    ]
    return build.response(filter_results=tuple(results))


def _filter(entity: Any) -> AclFilter | str:
    """The filter of a request, or the reason why it is invalid."""
    try:
        return filter_of(entity)
    except ValueError as error:
        return str(error)


def _removed(build: Any, result: pb.AclResult) -> Any:
    matching = tuple(
        build.part(
            "DeleteAclsMatchingAcl",
            error_code=ErrorCode.none,
            error_message=None,
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entries in map(acls_from_message, result.removed)
        for entry in sorted(entries)
    )
    return _result(build, ErrorCode(result.error_code), result.error_message or None, matching)


def _result(build: Any, error: ErrorCode, message: str | None, matching: tuple[Any, ...] = ()) -> Any:
    return build.part("DeleteAclsFilterResult", error_code=error, error_message=message, matching_acls=matching)
