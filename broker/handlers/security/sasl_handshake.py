"""SaslHandshake: refused, because no listener here asks for a login.

Behaviour: ILLEGAL_SASL_STATE without any mechanism, as a plaintext listener of Kafka answers; a
client that is set up for SASL then says what is wrong. Versions: 0 and 1. Not done: SASL.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 17
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(_services: BrokerServices, context: RequestContext, _request: Any) -> Any:
    """Answer a SaslHandshake request."""
    return builder(API_KEY, context.api_version).response(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
