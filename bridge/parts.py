"""The shared parts of one bridge for its request handlers, and the steps that every handler
takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from bridge.access.kafka_users import KafkaUsers
from bridge.bodies import Bodies
from bridge.config import BridgeSettings
from bridge.consumers import Consumers
from bridge.core.documents import write
from bridge.core.media_types import GENERAL, JSON, V2, check_v2_content, negotiate
from bridge.core.rates import Rate
from bridge.core.refusals import ErrorBody, Refused, bad_request
from bridge.metrics import BridgeMetrics
from bridge.producing import OutgoingRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts."""

    settings: BridgeSettings
    metrics: BridgeMetrics
    users: KafkaUsers
    consumers: Consumers
    bodies: Bodies
    records_rate: Rate
    bytes_rate: Rate
    stopping: asyncio.Event

    async def throttle(self, records: Iterable[OutgoingRecord]) -> None:
        """Wait until this amount may be produced; all producers wait, as with a quota of Kafka."""
        if not (self.records_rate.per_second or self.bytes_rate.per_second):
            return
        while (wait_ms := self._wait_ms()) > 0:  # noqa: ASYNC110 (the loop waits for a time, not for an event)
            await asyncio.sleep(wait_ms / 1000)
        sizes = [record.size_bytes for record in records]
        self.records_rate.take(len(sizes))
        self.bytes_rate.take(sum(sizes))

    def _wait_ms(self) -> float:
        now_ms = time.monotonic() * 1000
        return max(self.records_rate.wait_ms(now_ms), self.bytes_rate.wait_ms(now_ms))

    def address(self, request: Request) -> str:
        """The start of links in a response."""
        return self.settings.advertised or f"{request.url.scheme}://{request.url.netloc}"


def refused_response(request: Request, refused: Refused) -> Response:
    """The error document in the version of the path."""
    media_type = JSON if request.url.path.startswith(("/v3", "/health")) else V2
    headers = {"retry-after": "1"} if refused.status == 429 else None
    return Response(write(ErrorBody(refused.error_code, refused.message)), refused.status, headers, media_type)


def answer_v2(request: Request, document: object, *, status: int = 200) -> Response:
    """Answer with a document without records, in the media type that the client wants."""
    return Response(write(document), status, media_type=negotiate(request.headers.get("accept"), GENERAL))


def check_v2(request: Request) -> None:
    """Raises Refused, before any change, if the media type of the response or of the body is not
    supported.
    """
    negotiate(request.headers.get("accept"), GENERAL)
    check_v2_content(request.headers.get("content-type"))


def number_in_path(request: Request, name: str) -> int:
    """A number of the path. Raises Refused if it is not a number, or has more than 32 bits."""
    text = request.path_params[name]
    # the length first: Python refuses to read a number of thousands of digits
    if not text.isascii() or not text.isdecimal() or len(text.lstrip("0")) > 10 or int(text) >= 2**31:
        raise bad_request(f"{name} {text!r} is not a number")
    return int(text)


def number_in_query(request: Request, name: str) -> int | None:
    """A number of the query, None if it is absent. Refused when it is none."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f"{name}={text!r} is not a number") from error
