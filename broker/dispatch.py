"""Dispatches a frame to its handler, and the handler's response to the connection.

The handlers and their two shapes: `broker/handlers/registry.py`.

The broker closes the connection of a client whose request cannot be decoded, or has a version that
was never advertised, as in Kafka; ApiVersions of an unknown version is answered in version 0
(KIP-511). A request for a Kafka API that this broker does not have is answered with
UNSUPPORTED_VERSION if the API's response has an error field.

An exception in a handler is a bug of ours: it is logged with its stack and answered with
UNKNOWN_SERVER_ERROR (`broker/network/error_responses.py`), and the connection stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.authorization.authorizer import CLUSTER_ACTION, Authorizer
from broker.handlers.access.mirror_claims import claimed_link
from broker.handlers.access.rules import answer_allowed
from broker.handlers.access.table import RULES
from broker.handlers.cluster.api_versions import unsupported_version_response
from broker.handlers.registry import EntityHandler, Handler, advertised_versions, request_label
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.metrics import BrokerMetrics
from broker.network.admin_audit import audit_refusal, audit_request
from broker.network.busy_time import BusyTime
from broker.network.connection_owner import Frame
from broker.network.connections import Connection
from broker.network.error_responses import error_response
from broker.network.exchange import Exchange
from broker.quotas.client_throttling import Quotas
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.supervision import was_asked_to_end
from wire.protocol.byte_reader import Malformed
from wire.protocol.messages.private import PRIVATE_NAMES, SITE_METADATA
from wire.protocol.schemas import API_VERSIONS_KEY, api_name, has_schema
from wire.protocol.streams.frames import (
    MalformedRequest,
    RequestHeader,
    UnsupportedVersion,
    VersionRange,
    check_supported,
    decode_request_body,
    encode_response,
    parse_request_header,
)

log = get_logger(__name__)
_ALL_TOPICS: Final = b"\0"
"""The first field of SiteMetadata, a compact array, as null."""


class Dispatcher:
    """Finds handlers and runs them; the `FrameHandler` of a broker's connections."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        authorizer: Authorizer,
        quotas: Quotas,
        metrics: BrokerMetrics,
        clock: Clock,
    ) -> None:
        self._handlers = handlers
        self._authorizer = authorizer
        self.quotas = quotas
        self.clock = clock
        self.supported: dict[int, VersionRange] = {key: handler.versions for key, handler in handlers.items()}
        self.metrics = {key: metrics.api(request_label(key)) for key in handlers}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle one request of the connection."""
        header = parse_request_header(frame)
        # before the metrics and the exchange: a version that was not advertised has no schema here
        try:
            check_supported(header, self.supported)
        except UnsupportedVersion as error:
            self._refuse(connection, header, frame, error)
            return
        exchange = Exchange(self, connection, header, self.metrics[header.api_key], len(frame))
        if self.quotas.counts_time:
            exchange.busy = BusyTime()
        handler = self._handlers[header.api_key]
        if self._authorizer.is_enabled and header.api_key in PRIVATE_NAMES:
            reason = self._private_refusal(exchange, frame)
            if reason:
                self._refuse_private(exchange, frame, reason)
                return
        if isinstance(handler, EntityHandler):
            request = decode_request_body(frame, header)
            if header.api_key == API_VERSIONS_KEY:
                # KIP-511: the software name decides what other handlers may answer on this
                # connection
                connection.client_software = getattr(request, "client_software_name", "")
            exchange.request = request
            self.start(exchange, self._run(exchange, handler, request))
            if exchange.busy is not None:
                exchange.busy.end()
            return
        try:
            handler.handle_frame(frame, exchange, handler.doors)
            exchange.note_handled()
            if exchange.busy is not None:
                exchange.busy.end()
        except MalformedRequest:
            # the frame itself is wrong: only this connection ends
            raise
        except Malformed as error:
            raise MalformedRequest(str(error), header) from error
        except Exception:
            # the frame is still complete here; later it is not, and a lost answer then closes the
            # connection
            exchange.request = decode_request_body(frame, header)
            self._fail(exchange)

    def is_exempt(self, exchange: Exchange) -> bool:
        """True when no quota concerns the request."""
        connection = exchange.connection
        if self.quotas.is_exempt(connection.client_software, connection.principal):
            return True
        # the broker that forwards a request has charged its client: once, as if it led the topic
        return exchange.header.client_id == FORWARDED_CLIENT_ID and self._authorizer.trusts(exchange.context)

    def start(self, exchange: Exchange, answering: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine, which sends the answer; it is cancelled when the client
        disconnects.
        """
        task = self._loop.create_task(self._guarded(exchange, answering))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # cancelled before its first step, an interpreted coroutine would warn that it never began;
        # a compiled one does not warn, and cannot be closed once it has ended
        if isinstance(answering, CoroutineType):
            task.add_done_callback(lambda _: answering.close())
        exchange.on_cancelled(lambda: _cancel(task))

    async def _guarded(self, exchange: Exchange, answering: Coroutine[Any, Any, None]) -> None:
        try:
            await answering
        except asyncio.CancelledError:
            if was_asked_to_end():
                raise
            self._fail(exchange)
        except Exception:
            self._fail(exchange)

    def finish(self, exchange: Exchange, answering: Callable[[], None]) -> None:
        """Call the function, which sends the answer after its wait."""
        if exchange.busy is not None:
            exchange.busy.begin()
        try:
            answering()
        except (Exception, asyncio.CancelledError):
            self._fail(exchange)

    async def _run(self, exchange: Exchange, handler: EntityHandler, request: Any) -> None:
        context = exchange.context

        def handled(allowed: Any) -> Coroutine[Any, Any, Any]:
            return handler.handle(allowed, context, handler.doors)

        rules = RULES.get(exchange.header.api_key) if self._authorizer.is_enabled else None
        handling = (
            handled(request) if rules is None else answer_allowed(self._authorizer, context, request, handled, rules)
        )
        response = await exchange.handled_by(handling)
        audit_request(context, request, response)
        if handler.may_be_sent is not None:
            exchange.check_before_send(partial(handler.may_be_sent, response, handler.doors))
        exchange.reply(response)

    def _fail(self, exchange: Exchange) -> None:
        header = exchange.header
        log.exception(  # noqa: LOG004  called while the exception is handled
            "request failed", api=api_name(header.api_key), version=header.api_version, client=header.client_id
        )
        entity = None
        if exchange.request is not None and not exchange.connection.is_closed:
            entity = error_response(header.api_key, header.api_version, exchange.request)
        if entity is None:
            exchange.count_errors([ErrorCode.unknown_server_error])
            exchange.fail("the request failed inside the broker")
        else:
            exchange.reply(entity)

    def _private_refusal(self, exchange: Exchange, frame: Frame) -> str:
        """Why a private request is refused; empty if it is not. Private APIs are for brokers and
        mirrors: they need ClusterAction, and a mirror may be limited to its links.
        """
        context = exchange.context
        if _names_its_topics(exchange.header, frame):
            return ""
        if not self._authorizer.may(context, CLUSTER_ACTION):
            return f"{context.principal} has no ClusterAction on the cluster, which a private API needs"
        scope = self._authorizer.mirror_scope(context)
        link = None if scope is None else claimed_link(frame, exchange.header)
        return "" if scope is None or link is None else scope.claim_refusal(link)

    def _refuse_private(self, exchange: Exchange, frame: Frame, reason: str) -> None:
        header, error = exchange.header, ErrorCode.cluster_authorization_failed
        request = decode_request_body(frame, header)
        entity = error_response(header.api_key, header.api_version, request, error=error, message=reason)
        audit_refusal(exchange.context, request, reason)
        if entity is None:
            exchange.count_errors([error])
            exchange.fail(reason)
        else:
            exchange.reply(entity)

    def _refuse(self, connection: Connection, header: RequestHeader, frame: Frame, error: UnsupportedVersion) -> None:
        version = header.api_version
        if error.is_api_versions:
            entity = unsupported_version_response(advertised_versions(has_private=False))
            version = 0
        else:
            entity = self._unsupported_api_response(header, frame)
        if entity is None:
            raise MalformedRequest(str(error), header) from error
        connection.answer([encode_response(header.api_key, version, header.correlation_id, entity)])

    def _unsupported_api_response(self, header: RequestHeader, frame: Frame) -> Any | None:
        """The answer to a Kafka API that this broker does not have; None if the API is unknown, or
        if only the version is.
        """
        if header.api_key in self.supported or not has_schema(header.api_key, header.api_version):
            return None
        request = decode_request_body(frame, header)
        return error_response(header.api_key, header.api_version, request, error=ErrorCode.unsupported_version)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _names_its_topics(header: RequestHeader, frame: Frame) -> bool:
    """True for SiteMetadata of named topics or of brokers alone: it shows a client no more than
    Metadata does. A list of all topics needs ClusterAction, which shows them all: comparisons and
    archives would take a list without some of them for the whole site.
    """
    begin = header.body_position
    return header.api_key == SITE_METADATA and bytes(frame[begin : begin + 1]) != _ALL_TOPICS
