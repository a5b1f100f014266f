"""SaslAuthenticate: refused, because no listener here asks for a login.

Behaviour: ILLEGAL_SASL_STATE, as a plaintext listener of Kafka answers. Versions: 0 to 2.
Not done: SASL.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from broker.metadata.request_context import RequestContext
from broker.network.entities import NO_THROTTLE, builder
from broker.services import BrokerServices

API_KEY = 36
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(_services: BrokerServices, context: RequestContext, _request: Any) -> Any:
    """Answer a SaslAuthenticate request."""
    return builder(API_KEY, context.api_version).response(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="this listener has no authentication: connect with security.protocol=PLAINTEXT",
        auth_bytes=b"",
        session_lifetime=i64Timedelta.parse(NO_THROTTLE),
    )
