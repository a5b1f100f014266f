"""CreateAcls: there are no access lists here.

Behaviour: as an Apache Kafka without an authorizer, SECURITY_DISABLED for each. Versions: 1 to 3.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.handlers.security.describe_acls import NO_AUTHORIZER
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 30
MIN_VERSION = 1
MAX_VERSION = 3


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Answer a CreateAcls request."""
    build = builder(API_KEY, context.api_version)
    refused = build.part("AclCreationResult", error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER)
    return build.response(results=(refused,) * len(request.creations))
