"""CreateAcls: forwarded to the active controller, which stores ACLs and sends them to every broker.

Behaviour: each ACL has a separate result; an existing ACL is not an error. The answer is sent when
the live brokers have received the change. Without an authorizer SECURITY_DISABLED for each. A
standby hands the request on to the active site (`broker/site/followed_site.py`), and answers
POLICY_VIOLATION for each if that site does not answer.
Versions: 1 to 3.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.handlers.security.acl_filters import NO_AUTHORIZER
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ActiveSite
from broker.site.followed_site import Rules, ask_followed_site
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.acls import (
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    refusal_of_acl,
)
from wire.znodes.acl_znodes import acls_message

API_KEY = 30
MIN_VERSION = 1
MAX_VERSION = 3

Outcome = tuple[ErrorCode, str | None]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    authorizer: Authorizer
    cluster: Cluster
    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a CreateAcls request."""
    build = builder(API_KEY, context.api_version)
    outcomes: list[Outcome] = [(ErrorCode.security_disabled, NO_AUTHORIZER)] * len(request.creations)
    if doors.authorizer.is_enabled:
        followed = await ask_followed_site(doors.active_site, doors.cluster.image, context, request, Rules.ACLS)
        if followed.answer is not None:
            return followed.answer
        if followed.refusal:
            outcomes = [(ErrorCode.policy_violation, followed.refusal)] * len(request.creations)
        else:
            outcomes = await _create(doors, request.creations)
    results = [build.part("AclCreationResult", error_code=code, error_message=message) for code, message in outcomes]
    return build.response(results=tuple(results))


async def _create(doors: Doors, creations: Any) -> list[Outcome]:
    acls = [_acl(creation) for creation in creations]
    wanted = [acl for acl in acls if isinstance(acl, Acl)]
    created: list[Outcome] = []
    if wanted:
        forwarded = pb.AlterAclsRequest(creations=[acls_message(acl.pattern, (acl.entry,)) for acl in wanted])
        try:
            reply = await doors.controller.alter_acls(forwarded)
            created = [(ErrorCode(result.error_code), result.error_message or None) for result in reply.results]
        except ControllerUnavailable as error:
            created = [(error.code, str(error))] * len(wanted)
    answers = iter(created)
    return [next(answers) if isinstance(acl, Acl) else (ErrorCode.invalid_request, acl) for acl in acls]


def _acl(creation: Any) -> Acl | str:
    """The ACL of a request, or the reason why it is invalid."""
    try:
        pattern = ResourcePattern(
            ResourceType(creation.resource_type), creation.resource_name, PatternType(creation.resource_pattern_type)
        )
        operation, permission = Operation(creation.operation), Permission(creation.permission_type)
    except ValueError as error:
        return str(error)
    acl = Acl(pattern, AccessEntry(creation.principal, creation.host, operation, permission))
    return refusal_of_acl(acl) or acl
