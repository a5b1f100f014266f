"""DescribeAcls: there are no access lists here.

Behaviour: as an Apache Kafka without an authorizer, SECURITY_DISABLED. Versions: 1 to 3.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 29
MIN_VERSION = 1
MAX_VERSION = 3

NO_AUTHORIZER = "No Authorizer is configured."


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Answer a DescribeAcls request."""
    build = builder(API_KEY, context.api_version)
    return build.response(error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, resources=())
