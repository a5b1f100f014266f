"""ScramUsers (private): the mirror of an exact link reads the SCRAM users of the active site and
writes them at the standby.

Behaviour: only with an authorizer, and for a principal with ClusterAction: the response contains
the stored credentials. Written with Alter on the cluster; the controller makes the changes only at
the link's epoch and only while the site is the link's standby. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.handlers.access.mirror_claims import unnamed_link_refusal
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.messages.scram_user_messages import SCRAM_USERS, ScramUsersResponse, ScramUserStored
from wire.rules.acls import Operation

API_KEY = SCRAM_USERS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[SCRAM_USERS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    cluster: Cluster
    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ScramUsers request."""
    if not doors.authorizer.is_enabled:
        return _answer(ErrorCode.security_disabled, "SCRAM users are shown only where there is an authorizer")
    if request.users:
        return await _write(doors, context, request)
    stored = tuple(
        ScramUserStored(name=name, mechanism=mechanism, credential=credential)
        for name, credentials in sorted(doors.cluster.image.scram_users.items())
        for mechanism, credential in sorted(credentials.items())
    )
    return _answer(users=stored)


async def _write(doors: Doors, context: RequestContext, request: Any) -> ScramUsersResponse:
    if (unnamed := unnamed_link_refusal(request)) is not None:
        return _answer(*unnamed)
    if not doors.authorizer.may_cluster(context, Operation.ALTER):
        return _answer(ErrorCode.cluster_authorization_failed, f"{context.principal} has no Alter on the cluster")
    changes: dict[str, pb.ScramUserChange] = {}
    for user in request.users:
        change = changes.setdefault(user.name, pb.ScramUserChange(name=user.name))
        if user.credential is None:
            change.remove.append(user.mechanism)
        else:
            change.set[user.mechanism] = user.credential
    try:
        reply = await doors.controller.alter_scram_users(
            pb.AlterScramUsersRequest(changes=changes.values(), link=request.link, link_epoch=request.link_epoch)
        )
    except ControllerUnavailable as error:
        return _answer(error.code, str(error))
    for change, result in zip(changes.values(), reply.results, strict=True):
        # a credential that does not exist need not be removed
        if result.error_code and not (change.remove and result.error_code == ErrorCode.resource_not_found):
            return _answer(ErrorCode(result.error_code), f"user {change.name}: {result.error_message}")
    return _answer()


def _answer(
    error: ErrorCode = ErrorCode.none, message: str | None = None, users: tuple[ScramUserStored, ...] = ()
) -> ScramUsersResponse:
    return ScramUsersResponse(error_code=error, error_message=message, users=users)
