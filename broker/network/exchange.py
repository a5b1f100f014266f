"""One request in flight: its header, its origin, its times, and the way to answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from kio.static.primitive import i32Timedelta

from broker.authentication.sasl_session import SaslSession
from broker.latencies import ApiMetrics
from broker.metadata.request_context import RequestContext
from broker.network.answered_errors import errors_in
from broker.network.busy_time import BusyTime, TimedSteps
from broker.network.channels import Part
from broker.network.entities import NO_THROTTLE
from broker.network.response_slots import Place, Sent
from broker.quotas.client_throttling import QuotaClient
from runtime.clock import Clock
from wire.protocol.streams.frames import RequestHeader, encode_response, response_prefix
from wire.rules.principals import Principal

MILLISECOND: Final = timedelta(milliseconds=1)


THROTTLE_TIME_MS_MAX: Final = (1 << 31) - 1  # the field has 32 bits
JOINED_BYTES_MAX: Final = 4096
"""The largest body that is copied behind its header."""


class RequestQuotas(Protocol):
    """The broker's client quotas, as an exchange uses them."""

    def used_time(self, client: QuotaClient, used_ns: int) -> float:
        """Charge the time; the throttle time in ms."""
        ...


class ExchangeOwner(Protocol):
    """The dispatcher, as an exchange sees it."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        ...

    @property
    def quotas(self) -> RequestQuotas:
        """Client quotas."""
        ...

    @property
    def metrics(self) -> Mapping[int, ApiMetrics]:
        """Metrics by API key."""
        ...

    def is_exempt(self, exchange: Exchange) -> bool:
        """True when no quota concerns the request."""
        ...

    def start(self, exchange: Exchange, answering: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine that ends with an answer."""
        ...

    def finish(self, exchange: Exchange, answering: Callable[[], None]) -> None:
        """Call the function that answers."""
        ...


class RequestOrigin(Protocol):
    """The connection of a request, as its exchange and its handler use it (`connections.py`, and
    the simulation's).
    """

    address: str
    listener: str
    client_software: str
    principal: Principal
    sasl: SaslSession | None
    is_closed: bool
    opened_at_ms: float
    on_close: Callable[[], None] | None
    on_end: Callable[[], None] | None

    def answer(
        self, parts: Sequence[Part] | None, *, throttle_time_ms: float = 0.0, on_sent: Sent | None = None
    ) -> None:
        """End the request in flight."""
        ...

    def reserve_slot(self, api_key: int, frame_bytes: int, on_close: Callable[[], None] | None = None) -> Place:
        """Reserve the position of its response."""
        ...

    def compress(self, level: int) -> None:
        """Send and receive compressed chunks from here on."""
        ...

    def close(self, reason: str, *, is_fault: bool = False) -> None:
        """Close the connection."""
        ...


class Exchange:
    """One request in flight: its header, its origin, and the way to answer it."""

    __slots__ = (
        "_answered_ms",
        "_dispatcher",
        "_is_answered",
        "_local_ms",
        "_may_be_sent",
        "_metrics",
        "_place",
        "_queued_ms",
        "_started_ms",
        "_throttle_time_ms",
        "_waited_ms",
        "busy",
        "connection",
        "frame_bytes",
        "header",
        "request",
    )

    def __init__(
        self,
        dispatcher: ExchangeOwner,
        connection: RequestOrigin,
        header: RequestHeader,
        metrics: ApiMetrics,
        frame_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._started_ms = dispatcher.clock.monotonic_ms()
        self._is_answered = False
        self._answered_ms = 0.0
        self._queued_ms = self._waited_ms = 0.0
        self._local_ms: float | None = None
        self._throttle_time_ms = -1
        self._place: Place | None = None
        self._may_be_sent: Callable[[], bool] | None = None
        self.busy: BusyTime | None = None
        self.frame_bytes = frame_bytes
        self.connection = connection
        self.header = header
        self.request: Any = None

    @property
    def context(self) -> RequestContext:
        """The header and the connection as handlers with entities see them."""
        header, connection = self.header, self.connection
        return RequestContext(
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            listener=connection.listener,
            client_address=connection.address,
            client_software=connection.client_software,
            principal=connection.principal,
            is_by_token=connection.sasl is not None and connection.sasl.is_by_token,
        )

    @property
    def is_exempt(self) -> bool:
        """True when no quota concerns the request."""
        return self._dispatcher.is_exempt(self)

    @property
    def quota_client(self) -> QuotaClient:
        """The client whose quotas the request uses."""
        return QuotaClient(self.connection.principal.name, self.header.client_id or "")

    def throttle_time_ms(self, bandwidth_ms: float = 0.0) -> int:
        """The throttle time for the response, in ms: that of the request's bandwidth quota, or that
        of the request quota if it is longer. Computed once, when the response is made.
        """
        if self._throttle_time_ms < 0:
            quotas = self._dispatcher.quotas
            time_ms = 0.0
            if self.busy is not None and not self.is_exempt:
                time_ms = quotas.used_time(self.quota_client, self.busy.so_far_ns())
            # rounded once and kept: a second call must not charge the client's quota again
            self._throttle_time_ms = min(round(max(bandwidth_ms, time_ms)), THROTTLE_TIME_MS_MAX)
        return self._throttle_time_ms

    def reply(self, response: Any) -> None:
        """Send a kio entity of the request's version, whose own throttle time is kept, or its
        bytes, which begin with the throttle time.
        """
        if isinstance(response, bytes):
            self._reply_encoded(response)
        else:
            self._reply_entity(response)

    def _reply_entity(self, entity: Any) -> None:
        header = self.header
        self.count_errors(errors_in(entity))
        stated = getattr(entity, "throttle_time", NO_THROTTLE)
        stated_ms = round(stated / MILLISECOND)
        # handlers that know a longer time keep it; the request quota only lengthens it
        if self.throttle_time_ms(stated_ms) > stated_ms and hasattr(entity, "throttle_time"):
            entity = replace(entity, throttle_time=i32Timedelta.parse(self._throttle_time_ms * MILLISECOND))
        self._finish([encode_response(header.api_key, header.api_version, header.correlation_id, entity)])

    def reply_body(self, parts: Sequence[Part], *, body_size: int) -> None:
        """Send an encoded body of `body_size` bytes."""
        header = self.header
        prefix = response_prefix(header.api_key, header.api_version, header.correlation_id, body_size=body_size)
        first = parts[0] if len(parts) == 1 else None
        # to send two buffers takes longer than to join them, if they are small
        if isinstance(first, bytes) and body_size <= JOINED_BYTES_MAX:
            self._finish([prefix + first])
        else:
            self._finish([prefix, *parts])

    def _reply_encoded(self, body: bytes) -> None:
        throttle_time_ms = self.throttle_time_ms()
        if throttle_time_ms:
            # the body begins with the throttle time in every version that is sent as bytes
            body = throttle_time_ms.to_bytes(4, "big") + body[4:]
        self.reply_body([body], body_size=len(body))

    def reply_nothing(self) -> None:
        """The client does not expect a response (acks=0)."""
        self._finish(None)

    def fail(self, reason: str) -> None:
        """Close the connection instead of a reply."""
        self._metrics.count_unanswered()
        self.connection.close(reason)

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count these error codes of a response that the handler encoded itself; 0 is not counted.

        They are counted for the whole API, as in Kafka, even if the request is counted with its own
        kind.
        """
        self._dispatcher.metrics[self.header.api_key].count_errors(codes)

    def defer(self, answering: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with a reply. A failure in it counts as one of the handler.
        The coroutine is cancelled when the connection closes.
        """
        self._dispatcher.start(self, answering)

    async def handled_by(self, handling: Coroutine[Any, Any, Any]) -> Any:
        """The handler's response. Measure the time of the handler's steps separately from the time
        that it waits.
        """
        clock, busy = self._dispatcher.clock, self.busy or BusyTime()
        before_ns, began_ms = busy.so_far_ns(), clock.monotonic_ms()
        self._queued_ms = began_ms - self._started_ms
        self._metrics.request_queue.record(self._queued_ms)
        answer = await TimedSteps(handling, busy)
        # the difference of two clocks may be slightly negative
        self._waited_ms = max(clock.monotonic_ms() - began_ms - (busy.so_far_ns() - before_ns) / 1e6, 0.0)
        return answer

    def defer_until(self, waited: asyncio.Future[Any], answering: Callable[[asyncio.Future[Any]], None]) -> None:
        """Reply when the future is done, without a task for it. A failure in `answering` counts as
        one of the handler.

        Nothing of the frame may be needed then: later requests of the same API on the connection
        are handled in the meantime.
        """
        self._place = self.connection.reserve_slot(self.header.api_key, self.frame_bytes)
        waited.add_done_callback(lambda done: self.resume(partial(answering, done)))

    def resume(self, answering: Callable[[], None]) -> None:
        """Reply by the function, after a wait. A failure in it counts as one of the handler."""
        self._dispatcher.finish(self, answering)

    def on_cancelled(self, callback: Callable[[], None]) -> None:
        """Call the function if the connection closes before the reply."""
        self.connection.on_close = callback

    def reserve_slot(self, on_close: Callable[[], None]) -> None:
        """Reserve the response's position: the request is done, and its response waits. Later
        requests of the same API on the connection are handled meanwhile.

        Nothing of the frame may be needed then. `on_close` is called when the connection closes
        before the answer.
        """
        self._place = self.connection.reserve_slot(self.header.api_key, 0, on_close)

    def count_as(self, metrics: ApiMetrics) -> None:
        """Count the request with its own kind and not with all requests of its API."""
        # a fetch of a follower would hide consumers' latency in one histogram
        self._metrics = metrics

    def note_handled(self) -> None:
        """The handler has answered, or the request waits from now on."""
        if not self._is_answered:
            self._local_ms = self._dispatcher.clock.monotonic_ms() - self._started_ms

    def _finish(self, parts: Sequence[Part] | None) -> None:
        metrics, throttle_time_ms = self._metrics, max(self._throttle_time_ms, 0)
        self._is_answered = True
        self._answered_ms = self._dispatcher.clock.monotonic_ms()
        at_work_ms = self._answered_ms - self._started_ms - self._queued_ms
        waited_ms = self._waited_ms if self._local_ms is None else at_work_ms - self._local_ms
        metrics.local.record(at_work_ms - waited_ms)
        if waited_ms > 0:
            metrics.remote.record(waited_ms)
        if throttle_time_ms:
            metrics.throttle.record(throttle_time_ms)
        # large requests must not live until their answer is sent
        self.request = None
        if parts is None:
            metrics.record(self._answered_ms - self._started_ms)
        # the reserved position, if any, keeps the response behind those of earlier requests
        (self._place or self.connection).answer(parts, throttle_time_ms=throttle_time_ms, on_sent=self)

    def check_before_send(self, may_be_sent: Callable[[], bool]) -> None:
        """Ask the function each time before bytes of the response are sent. The response may wait
        behind those of earlier requests, or for a client that does not read.
        """
        self._may_be_sent = may_be_sent

    def may_be_sent(self) -> bool:
        """False if the response must not leave any more."""
        return self._may_be_sent is None or self._may_be_sent()

    def sent(self, began_ms: float, ended_ms: float) -> None:
        """The response was sent between these times, or was given up."""
        metrics, answered_ms = self._metrics, self._answered_ms
        if began_ms > answered_ms:
            metrics.response_queue.record(began_ms - answered_ms)
            answered_ms = began_ms
        metrics.response_send.record(ended_ms - answered_ms)
        metrics.record(ended_ms - self._started_ms)
