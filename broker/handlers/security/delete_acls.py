"""DeleteAcls: there are no access lists here.

Behaviour: as an Apache Kafka without an authorizer, SECURITY_DISABLED for each filter. Versions: 1
to 3.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.handlers.security.describe_acls import NO_AUTHORIZER
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Answer a DeleteAcls request."""
    build = builder(API_KEY, context.api_version)
    refused = build.part(
        "DeleteAclsFilterResult", error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, matching_acls=()
    )
    return build.response(filter_results=(refused,) * len(request.filters))
