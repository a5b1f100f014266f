"""API v2 of consumers: instances, subscriptions, assignments, records, offsets and positions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

from confluent_kafka import Message, TopicPartition
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.consumer_instance import ConsumerInstance, ReadLimits
from bridge.consumers import InstanceKey
from bridge.core.documents import DocumentT, UnusableDocument, embedded_json, read_texts, write
from bridge.core.instance_settings import InstanceRequest, instance_settings
from bridge.core.media_types import EmbeddedFormat, negotiate_records
from bridge.core.refusals import kafka_failed, unprocessable
from bridge.core.v2_documents import (
    BinaryRecordRead,
    InstanceMade,
    JsonRecordRead,
    Place,
    PlaceOffset,
    PlaceOffsets,
    Places,
    Subscription,
)
from bridge.gate import caller_of
from bridge.parts import Parts, answer_v2, check_v2, number_in_query

_INSTANCE = "/consumers/{group}/instances/{instance}"


class V2Consumers:
    """The handlers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes of these handlers."""
        return [
            Route("/consumers/{group}", self.create, methods=["POST"]),
            Route(_INSTANCE, self.delete, methods=["DELETE"]),
            Route(f"{_INSTANCE}/subscription", self.subscribe, methods=["POST"]),
            Route(f"{_INSTANCE}/subscription", self.subscription),
            Route(f"{_INSTANCE}/subscription", self.unsubscribe, methods=["DELETE"]),
            Route(f"{_INSTANCE}/assignments", self.assign, methods=["POST"]),
            Route(f"{_INSTANCE}/assignments", self.assignments),
            Route(f"{_INSTANCE}/records", self.records),
            Route(f"{_INSTANCE}/offsets", self.commit, methods=["POST"]),
            Route(f"{_INSTANCE}/offsets", self.committed),
            Route(f"{_INSTANCE}/positions", self.seek, methods=["POST"]),
            Route(f"{_INSTANCE}/positions/beginning", self.seek_to_beginning, methods=["POST"]),
            Route(f"{_INSTANCE}/positions/end", self.seek_to_end, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """A new instance in the group."""
        check_v2(request)
        wanted = instance_settings(await self._optional(request, InstanceRequest) or InstanceRequest())
        group = request.path_params["group"]
        caller = caller_of(request)
        properties = caller.user.consumer_properties
        instance = self._parts.consumers.create(caller.principal.name, group, wanted, properties)
        place = f"/consumers/{quote(group, safe='')}/instances/{quote(instance.name, safe='')}"
        return answer_v2(request, InstanceMade(instance.name, self._parts.address(request) + place))

    async def delete(self, request: Request) -> Response:
        """Remove the instance from its group and delete it; a waiting read ends."""
        check_v2(request)
        await self._parts.consumers.delete(_key(request), caller_of(request).user.consumer_properties)
        return Response(status_code=204)

    async def subscribe(self, request: Request) -> Response:
        """Subscribe to topics by names or by a pattern."""
        instance = self._instance(request)
        wanted = await self._document(request, Subscription)
        if (wanted.topics is None) == (wanted.topic_pattern is None):
            raise unprocessable("one of topics and topic_pattern is needed")
        async with instance.used():
            await instance.subscribe(topics=wanted.topics, pattern=wanted.topic_pattern)
        return Response(status_code=204)

    async def subscription(self, request: Request) -> Response:
        """Topics that the instance is subscribed to."""
        instance = self._instance(request)
        async with instance.used():
            return answer_v2(request, {"topics": await instance.subscription()})

    async def unsubscribe(self, request: Request) -> Response:
        """Remove all topics and partitions."""
        instance = self._instance(request)
        async with instance.used():
            await instance.unsubscribe()
        return Response(status_code=204)

    async def assign(self, request: Request) -> Response:
        """Assign partitions that the client chose."""
        instance = self._instance(request)
        partitions = _places(await self._document(request, Places))
        async with instance.used():
            await instance.assign(partitions)
        return Response(status_code=204)

    async def assignments(self, request: Request) -> Response:
        """The partitions that the instance has now."""
        instance = self._instance(request)
        async with instance.used():
            held = await instance.assignment()
        return answer_v2(request, Places([Place(*place) for place in held]))

    async def records(self, request: Request) -> Response:
        """Return records, as many as arrive within the time and fit the size."""
        parts, instance = self._parts, self._instance(request, has_records=True)
        media_type = negotiate_records(request.headers.get("accept"), instance.embedded)
        async with parts.bodies.whole(request):  # clients send empty ones
            pass
        async with instance.used():
            # a stop before this line is noticed here; a later one interrupts the read
            limits = self._limits(request, instance)
            leaving = asyncio.ensure_future(_until_gone(request, instance))
            messages: list[Message] = []
            try:
                messages = await instance.read(limits)
                is_gone = leaving.done()
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
            if is_gone:
                instance.keep(messages)
                return Response(status_code=204)
            try:
                body, count = _rendered(messages, instance.embedded)
            except BaseException:
                instance.keep(messages)
                raise
            instance.keep(messages[count:])
            handed_out = messages[:count]
            instance.hand_out(handed_out)
        size_bytes = sum(len(message.key() or b"") + len(message.value() or b"") for message in handed_out)
        parts.metrics.record_consumed(records=len(handed_out), size_bytes=size_bytes)
        return Response(body, media_type=media_type)

    async def commit(self, request: Request) -> Response:
        """Commit the offsets of the body plus one, as the REST proxy does; without a body, the
        positions after all sent records.
        """
        instance = self._instance(request)
        wanted = await self._optional(request, PlaceOffsets)
        offsets = None
        if wanted is not None:
            offsets = [
                TopicPartition(item.topic, item.partition, item.offset + 1, item.metadata or "")
                for item in _checked(wanted)
            ]
        is_waiting = request.query_params.get("async", "false").lower() != "true"
        async with instance.used():
            await instance.commit(offsets, is_waiting=is_waiting)
        return answer_v2(request, [])

    async def committed(self, request: Request) -> Response:
        """The group's committed offsets."""
        instance = self._instance(request)
        partitions = _places(await self._document(request, Places))
        async with instance.used():
            found = await instance.committed(partitions)
        offsets = [PlaceOffset(item.topic, item.partition, item.offset, item.metadata or "") for item in found]
        return answer_v2(request, PlaceOffsets(offsets))

    async def seek(self, request: Request) -> Response:
        """Go on at these offsets."""
        instance = self._instance(request)
        wanted = _checked(await self._document(request, PlaceOffsets))
        async with instance.used():
            await instance.seek([((item.topic, item.partition), item.offset) for item in wanted])
        return Response(status_code=204)

    async def seek_to_beginning(self, request: Request) -> Response:
        """Continue with the first record of the partition."""
        return await self._seek_to_edge(request, is_end=False)

    async def seek_to_end(self, request: Request) -> Response:
        """Continue with the next record that arrives."""
        return await self._seek_to_edge(request, is_end=True)

    async def _seek_to_edge(self, request: Request, *, is_end: bool) -> Response:
        instance = self._instance(request)
        partitions = _places(await self._document(request, Places))
        async with instance.used():
            await instance.seek_to_edge(partitions, is_end=is_end)
        return Response(status_code=204)

    def _instance(self, request: Request, *, has_records: bool = False) -> ConsumerInstance:
        if not has_records:
            check_v2(request)
        return self._parts.consumers.find(_key(request), caller_of(request).user.consumer_properties)

    async def _document(self, request: Request, kind: type[DocumentT]) -> DocumentT:
        """The body."""
        async with self._parts.bodies.whole(request) as body:
            return read_texts(body, kind)

    async def _optional(self, request: Request, kind: type[DocumentT]) -> DocumentT | None:
        """The body; None if it is empty."""
        async with self._parts.bodies.whole(request) as body:
            return read_texts(body, kind) if body.strip() else None

    def _limits(self, request: Request, instance: ConsumerInstance) -> ReadLimits:
        timeout_ms = number_in_query(request, "timeout")
        bytes_max = number_in_query(request, "max_bytes")
        longest_ms, most_bytes = instance.read_timeout_ms, self._parts.settings.read_bytes_max
        if timeout_ms is not None and timeout_ms >= 0:
            longest_ms = min(timeout_ms, longest_ms)
        if bytes_max is not None and bytes_max > 0:
            most_bytes = min(bytes_max, most_bytes)
        if self._parts.stopping.is_set():
            longest_ms = 0
        return ReadLimits(timeout_ms=longest_ms, bytes_max=most_bytes, bytes_min=instance.fetch_min_bytes)


def _key(request: Request) -> InstanceKey:
    return InstanceKey(caller_of(request).principal.name, request.path_params["group"], request.path_params["instance"])


async def _until_gone(request: Request, instance: ConsumerInstance) -> None:
    """Return when the client has closed the connection, so that its read can end."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    instance.interrupt_read()


def _places(wanted: Places) -> list[tuple[str, int]]:
    if any(not 0 <= item.partition < 2**31 for item in wanted.partitions):
        raise unprocessable("partition must be 0 or more")
    return [(item.topic, item.partition) for item in wanted.partitions]


def _checked(wanted: PlaceOffsets) -> Sequence[PlaceOffset]:
    if any(not 0 <= item.partition < 2**31 or not 0 <= item.offset < 2**63 - 1 for item in wanted.offsets):
        raise unprocessable("partition and offset must be 0 or more")
    return wanted.offsets


def _rendered(messages: Sequence[Message], embedded: EmbeddedFormat) -> tuple[bytes, int]:
    """The response's body and the number of messages in it. A record that is not JSON ends the
    response; as the first record it is an error.
    """
    if embedded is EmbeddedFormat.BINARY:
        return write([_binary_record(message) for message in messages]), len(messages)
    readable: list[JsonRecordRead] = []
    for message in messages:
        try:
            readable.append(_json_record(message))
        except UnusableDocument as error:
            if readable:
                break
            place = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
            what = f"the record in {place} is no JSON ({error}); read it as binary, or go on behind it with positions"
            raise kafka_failed(what, is_retriable=False) from error
    return write(readable), len(readable)


def _binary_record(message: Message) -> BinaryRecordRead:
    return BinaryRecordRead(
        topic=message.topic() or "",
        key=message.key(),
        value=message.value(),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


def _json_record(message: Message) -> JsonRecordRead:
    return JsonRecordRead(
        topic=message.topic() or "",
        key=embedded_json(message.key()),
        value=embedded_json(message.value()),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )
