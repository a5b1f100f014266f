"""DescribeUserScramCredentials: the mechanisms for which users have credentials, and their
iterations.

Behaviour: all users with credentials, or the named ones: RESOURCE_NOT_FOUND for a user without
credentials, DUPLICATE_RESOURCE for a user that is named twice. Salts and keys are never returned.
Kafka's config tool asks this whenever it shows a user's quotas. A standby shows the active site's
users, and its own if that site does not answer (`broker/site/followed_site.py`). Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ActiveSite
from broker.site.followed_site import Rules, ask_followed_site
from wire.rules.scram import MECHANISM_NUMBERS, decode_credential

API_KEY = 50
MIN_VERSION = 0
MAX_VERSION = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeUserScramCredentials request."""
    build, image = builder(API_KEY, context.api_version), doors.cluster.image
    followed = await ask_followed_site(doors.active_site, image, context, request, Rules.USERS)
    if followed.answer is not None:
        return followed.answer
    stored = image.scram_users
    named = [user.name for user in request.users or ()] or sorted(stored)
    results = []
    for name in dict.fromkeys(named):
        error, message = ErrorCode.none, None
        if named.count(name) > 1:
            error = ErrorCode.duplicate_resource
            message = f"the request names user {name} more than once; accepted is once"
        elif name not in stored:
            error = ErrorCode.resource_not_found
            message = f"user {name} has no SCRAM credential"
        infos = () if error is not ErrorCode.none else _infos(build, stored[name])
        results.append(
            build.part(
                "DescribeUserScramCredentialsResult",
                user=name,
                error_code=error,
                error_message=message,
                credential_infos=infos,
            )
        )
    return build.response(error_code=ErrorCode.none, error_message=None, results=tuple(results))


def _infos(build: Any, credentials: Any) -> tuple[Any, ...]:
    return tuple(
        build.part("CredentialInfo", mechanism=number, iterations=_iterations(credentials[mechanism]))
        for mechanism, number in MECHANISM_NUMBERS.items()
        if mechanism in credentials
    )


def _iterations(text: str) -> int:
    try:
        return decode_credential(text).iterations
    except ValueError:  # another program wrote it
        return 0
