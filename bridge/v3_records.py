"""Produce in API v3: one request has many records, and each gets its own response line when Kafka
acknowledges it.

Reading, producing and answering run concurrently, in the order of the records. The number of
waiting records is bounded: the bridge stops reading a stream that is ahead of Kafka. A request with
exactly one record is answered with that record's status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bridge.core.document_stream import DocumentStream
from bridge.core.documents import write
from bridge.core.media_types import JSON, check_v3_content, negotiate
from bridge.core.refusals import (
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorBody,
    Refused,
    kafka_failed,
    resource_not_found,
)
from bridge.core.v3_records import (
    RecordRequest,
    RecordTaken,
    data_bytes,
    read_record,
    taken,
    timestamp_ms,
    timestamp_text,
)
from bridge.gate import caller_of
from bridge.kafka_errors import refused as kafka_refused
from bridge.parts import Parts
from bridge.producing import PARTITION_ANY, Outcome, OutgoingRecord, Undelivered
from bridge.v3_cluster import CLUSTER

LINE_END = b"\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A record that was passed to Kafka."""

    record: RecordRequest
    outgoing: OutgoingRecord
    outcome: asyncio.Future[Outcome]


_Item = _Waiting | Refused


class V3Records:
    """The handler."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The route of this handler."""
        return [Route(f"{CLUSTER}/topics/{{topic}}/records", self.produce, methods=["POST"])]

    async def produce(self, request: Request) -> Response:
        """Records into a topic."""
        negotiate(request.headers.get("accept"), (JSON,))
        check_v3_content(request.headers.get("content-type"))
        cluster, topic = request.path_params["cluster"], request.path_params["topic"]
        if cluster != await caller_of(request).user.admin.cluster_id(wanted=cluster):
            raise resource_not_found(f"Cluster {cluster}")
        if not await caller_of(request).user.admin.partitions_of(topic):
            raise Refused(404, UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return _RecordStream(self._parts, request, cluster=cluster, topic=topic)


class _RecordStream(Response):
    """The answer to a stream of records, written while the request is still being read."""

    def __init__(self, parts: Parts, request: Request, *, cluster: str, topic: str) -> None:
        super().__init__(media_type=JSON)
        self._parts = parts
        self._request = request
        self._user = caller_of(request).user
        self._cluster = cluster
        self._topic = topic
        self._is_whole = "content-length" in request.headers
        self._items: asyncio.Queue[_Item | None] = asyncio.Queue(parts.settings.stream_records_max)

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Answer the stream; `self` already has the request. If reading or writing fails, the other
        one ends too.
        """
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._read())
                await self._write(send)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _read(self) -> None:
        """Take records until the body ends, is not a stream of records, or the bridge stops."""
        room = self._parts.bodies.room
        stream = DocumentStream(self._parts.settings.record_bytes_max)
        held_bytes = 0
        try:
            async for piece in self._parts.bodies.pieces(self._request, until=self._parts.stopping):
                room.take(len(piece))
                held_bytes += len(piece)
                await self._take(stream.feed(piece))
                room.give_back(held_bytes - stream.waiting_bytes)
                held_bytes = stream.waiting_bytes
            if not self._parts.stopping.is_set():
                stream.finish()
        except Refused as refused:
            await self._items.put(refused)
        finally:
            room.give_back(held_bytes)
        await self._items.put(None)

    async def _take(self, documents: Iterator[bytes]) -> None:
        """Produce the records of a piece; an unreadable record gets an error in the response."""
        read: list[tuple[RecordRequest, OutgoingRecord] | Refused] = []
        broken: Refused | None = None
        while True:
            try:
                document = next(documents, None)
            except Refused as refused:
                broken = refused
                break
            if document is None:
                break
            read.append(await self._read_record(document))
        good = [item for item in read if not isinstance(item, Refused)]
        outgoing = [record for _, record in good]
        await self._parts.throttle(outgoing)
        outcomes = iter(await self._user.producer.submit(self._topic, outgoing) if outgoing else ())
        for item in read:
            if isinstance(item, Refused):
                await self._items.put(item)
            else:
                await self._items.put(_Waiting(record=item[0], outgoing=item[1], outcome=next(outcomes)))
        if broken is not None:
            raise broken

    async def _read_record(self, document: bytes) -> tuple[RecordRequest, OutgoingRecord] | Refused:
        try:
            record = read_record(document)
            outgoing = OutgoingRecord(
                key=data_bytes(record.key, what="key"),
                value=data_bytes(record.value, what="value"),
                partition=PARTITION_ANY if record.partition_id is None else record.partition_id,
                timestamp_ms=timestamp_ms(record.timestamp),
                headers=[(header.name, header.value) for header in record.headers],
            )
        except Refused as refused:
            return refused
        wanted = () if record.partition_id is None else (record.partition_id,)
        if not (await self._user.admin.partitions_of(self._topic, wanted=wanted)).issuperset(wanted):
            return resource_not_found(f"Partition {self._topic}-{record.partition_id}")
        return record, outgoing

    async def _write(self, send: Send) -> None:
        first = await self._items.get()
        second = await self._items.get() if self._is_whole and first is not None else None
        if self._is_whole and second is None:
            status, line = (200, b"") if first is None else await self._line(first)
            await Response(line, status, media_type=JSON)(self._request.scope, self._request.receive, send)
            return
        headers = [(b"content-type", JSON.encode())]
        if not self._is_whole:
            headers.append((b"connection", b"close"))  # the rest of a broken stream is not read
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        lines = bytearray()
        item = first
        while item is not None:
            if lines and isinstance(item, _Waiting) and not item.outcome.done():
                await _send_lines(send, lines)
            lines += (await self._line(item))[1] + LINE_END
            if second is None and self._items.empty():
                await _send_lines(send, lines)
            item, second = (second, None) if second is not None else (await self._items.get(), None)
        await send({"type": "http.response.body", "body": bytes(lines), "more_body": False})

    async def _line(self, item: _Item) -> tuple[int, bytes]:
        """Status and document of one record, once Kafka has answered."""
        if isinstance(item, Refused):
            return item.status, write(ErrorBody(item.error_code, item.message))
        outcome = await item.outcome
        if isinstance(outcome, Undelivered):
            refused = undelivered_v3(outcome)
            return refused.status, write(ErrorBody(refused.error_code, refused.message))
        document = RecordTaken(
            error_code=200,
            cluster_id=self._cluster,
            topic_name=self._topic,
            partition_id=outcome.partition,
            offset=outcome.offset,
            timestamp=timestamp_text(outcome.timestamp_ms),
            key=taken(item.record.key, item.outgoing.key),
            value=taken(item.record.value, item.outgoing.value),
        )
        return 200, write(document)


async def _send_lines(send: Send, lines: bytearray) -> None:
    await send({"type": "http.response.body", "body": bytes(lines), "more_body": True})
    lines.clear()


def undelivered_v3(outcome: Undelivered) -> Refused:
    """The error for a record that was not written."""
    refused = kafka_refused(outcome.error)
    if outcome.is_retriable and refused.status == 500:
        return kafka_failed(outcome.error.str(), is_retriable=True)
    return refused
