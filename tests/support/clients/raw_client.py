"""A blocking Kafka client of single frames, for tests that look at frames, order and closed
connections.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Self

from wire.client.requests.fetch_requests import FetchRequest, encode_fetch_request
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.fetch_codec import FetchResponse, parse_fetch_response
from wire.protocol.messages.mirror_append_codec import MirrorAppend, mirror_append_parts
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.produce_codec import (
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    TopicRecords,
    parse_produce_response,
    produce_request_parts,
)
from wire.protocol.schemas import request_type
from wire.protocol.streams.frames import decode_response, encode_request, request_prefix, response_body_position

TIMEOUT_S = 60
"""More than any answer here takes that comes at all."""
PRODUCE, FETCH, METADATA = 0, 1, 3


class RawClient:
    """One connection. To pipeline requests, a caller may send several before it reads the
    responses.
    """

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, client_id: str = "raw", timeout_s: float = TIMEOUT_S
    ) -> None:
        self._client_id = client_id
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """The next response without its size; empty when the broker closed the connection."""
        size = self._read(4)
        return self._read(struct.unpack(">i", size)[0]) if size else b""

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return b""
            if not piece:
                return b""
            data += piece
        return bytes(data)

    def call(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        """Any API by its entity's fields."""
        self.send_call(api_key, version, values)
        return decode_response(self.read_frame(), api_key, version)

    def answer(self, api_key: int, version: int) -> Any:
        """The next answer as an entity. ConnectionError when the broker closes the connection
        instead.
        """
        frame = self.read_frame()
        if not frame:
            raise ConnectionError("the broker closed the connection")
        return decode_response(frame, api_key, version)

    def send_call(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        """Send a request of any API. The caller reads the response by another call."""
        entity = build_entity(request_type(api_key, version), values)
        self.send_bytes(encode_request(api_key, version, self._next(), self._client_id, entity))

    def send_produce(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        timeout_ms: int = 5000,
        transactional_id: str | None = None,
    ) -> int:
        """Send a Produce request for one partition. Returns its correlation id."""
        topics = [TopicRecords(topic, None, [PartitionRecords(partition, records)])]
        return self._send_produce(ProduceRequest(transactional_id, acks, timeout_ms, topics), version)

    def _send_produce(self, request: ProduceRequest, version: int) -> int:
        parts, size = produce_request_parts(request, version)
        correlation = self._next()
        self.send_bytes(
            request_prefix(PRODUCE, version, correlation, self._client_id, body_size=size) + b"".join(parts)
        )
        return correlation

    def produce(self, topic: str, records: bytes, **fields: Any) -> Any:
        """Produce to one partition. Returns its result."""
        version = fields.get("version", 9)
        self.send_produce(topic, records, **fields)
        return self.produced(version).topics[0].partitions[0]

    def produce_all(self, topics: Sequence[TopicRecords], *, version: int = 9) -> ProduceResponse:
        """Produce to any partitions with acks=all."""
        self._send_produce(ProduceRequest(None, -1, 5000, topics), version)
        return self.produced(version)

    def produced(self, version: int = 9) -> ProduceResponse:
        """The answer to the oldest Produce request that was sent and has not been read yet."""
        frame = self.read_frame()
        return parse_produce_response(frame, response_body_position(frame, PRODUCE, version), version)

    def send_fetch(self, request: FetchRequest, *, version: int = 12) -> int:
        """Send a Fetch request; its correlation id."""
        body = encode_fetch_request(request, version)
        correlation = self._next()
        self.send_bytes(request_prefix(FETCH, version, correlation, self._client_id, body_size=len(body)) + body)
        return correlation

    def fetch(self, request: FetchRequest, *, version: int = 12) -> FetchResponse:
        """Fetch."""
        self.send_fetch(request, version=version)
        frame = self.read_frame()
        return parse_fetch_response(frame, response_body_position(frame, FETCH, version), version)

    def metadata(self, *topics: str, api_key: int = METADATA, may_create: bool = False) -> Any:
        """The response entity of Metadata (or SiteMetadata) for these topics."""
        values = {
            "topics": [{"name": topic} for topic in topics],
            "allow_auto_topic_creation": may_create,
            "include_topic_authorized_operations": False,
        }
        return self.call(api_key, 12, values)

    def mirror_append(self, request: MirrorAppend) -> Any:
        """The response entity of MirrorAppend."""
        parts, size = mirror_append_parts(request)
        prefix = request_prefix(MIRROR_APPEND, 0, self._next(), self._client_id, body_size=size)
        self.send_bytes(prefix + b"".join(parts))
        return decode_response(self.read_frame(), MIRROR_APPEND, 0)
