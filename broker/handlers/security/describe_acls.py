"""DescribeAcls: the ACLs that match a filter.

Behaviour: from this broker's image, so a change is visible as soon as the controller has sent it to
this broker. Without an authorizer SECURITY_DISABLED. A standby shows the active site's, and its own
if that site does not answer (`broker/site/followed_site.py`). Versions: 1 to 3.
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
from wire.rules.acls import AccessEntry, ResourcePattern

API_KEY = 29
MIN_VERSION = 1
MAX_VERSION = 3


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    authorizer: Authorizer
    cluster: Cluster


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeAcls request."""
    build = builder(API_KEY, context.api_version)
    if not doors.authorizer.is_enabled:
        return build.response(error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, resources=())
    followed = await ask_followed_site(doors.active_site, doors.cluster.image, context, request, Rules.ACLS)
    if followed.answer is not None:
        return followed.answer
    try:
        wanted = filter_of(request)
    except ValueError as error:
        return build.response(error_code=ErrorCode.invalid_request, error_message=str(error), resources=())
    found = (
        (pattern, [entry for entry in sorted(entries) if wanted.matches_entry(entry)])
        for pattern, entries in sorted(doors.cluster.image.acls.items())
        if wanted.matches_pattern(pattern)
    )
    resources = tuple(_resource(build, pattern, entries) for pattern, entries in found if entries)
    return build.response(error_code=ErrorCode.none, error_message=None, resources=resources)


def _resource(build: Any, pattern: ResourcePattern, entries: list[AccessEntry]) -> Any:
    return build.part(
        "DescribeAclsResource",
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=tuple(
            build.part(
                "AclDescription",
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in entries
        ),
    )
