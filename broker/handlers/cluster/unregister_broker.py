"""UnregisterBroker: forwarded to the active controller, which removes a broker that will not return
(KIP-631).

Behaviour: refused with INVALID_REQUEST while the broker is registered, and with
BROKER_ID_NOT_REGISTERED for a node id that no partition refers to; for a broker that was removed
before, the request succeeds. Apache Kafka also removes a running broker. Concerns this site's own
brokers. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

API_KEY = 64
MIN_VERSION = 0
MAX_VERSION = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an UnregisterBroker request."""
    build = builder(API_KEY, context.api_version)
    try:
        reply = await doors.controller.unregister_broker(pb.UnregisterBrokerRequest(node_id=request.broker_id))
    except ControllerUnavailable as error:
        return build.response(error_code=error.code, error_message=str(error))
    return build.response(error_code=ErrorCode(reply.error_code), error_message=reply.error_message or None)
