"""DescribeUserScramCredentials: there are none, because there is no SASL.

Behaviour: as an Apache Kafka without credentials: all users are none, each user that is named has
RESOURCE_NOT_FOUND, and one that is named twice DUPLICATE_RESOURCE. Kafka's config tool asks this
whenever it shows a user's quotas. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 50
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Answer a DescribeUserScramCredentials request."""
    build = builder(API_KEY, context.api_version)
    names = [user.name for user in request.users or ()]
    results = tuple(_result(build, name, is_repeated=names.count(name) > 1) for name in dict.fromkeys(names))
    return build.response(error_code=ErrorCode.none, error_message=None, results=results)


def _result(build: Any, name: str, *, is_repeated: bool) -> Any:
    error = ErrorCode.resource_not_found
    message = f"Attempt to describe a user credential that does not exist: {name}"
    if is_repeated:
        error = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return build.part(
        "DescribeUserScramCredentialsResult", user=name, error_code=error, error_message=message, credential_infos=()
    )
