"""A partition's current leader in Produce and Fetch responses (KIP-951), so that a client need not
refresh its metadata.

Both messages carry the same structures in tagged fields; their codecs share these.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from wire.protocol.byte_reader import ByteReader
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes

_LEADER: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_ENDPOINT_SIZE_MIN: Final = 11


class LeaderHint(NamedTuple):
    """Node id and leader epoch; -1, -1 when there is no hint."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """The listener of a hinted leader."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


NO_HINT: Final = LeaderHint()


def leader_hint_bytes(hint: LeaderHint) -> bytes:
    """The hint as a tagged field's value."""
    return _LEADER.pack(hint.leader_id, hint.leader_epoch) + NO_TAGS


def read_leader_hint(reader: ByteReader) -> LeaderHint:
    """The hint at the reader's position."""
    hint = LeaderHint(reader.int32(), reader.int32())
    reader.skip_tags()
    return hint


def node_endpoints_bytes(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The endpoints as a tagged field's value."""
    parts = [count_bytes(len(endpoints), flexible=True)]
    for endpoint in endpoints:
        parts += (
            _INT32.pack(endpoint.node_id),
            string_bytes(endpoint.host, flexible=True),
            _INT32.pack(endpoint.port),
            string_bytes(endpoint.rack, flexible=True),
            NO_TAGS,
        )
    return b"".join(parts)


def read_node_endpoints(reader: ByteReader) -> list[NodeEndpoint]:
    """The endpoints at the reader's position."""
    endpoints = []
    for _ in range(reader.count(flexible=True, element_size_min=_ENDPOINT_SIZE_MIN)):
        node_id, host, port = reader.int32(), reader.string(flexible=True), reader.int32()
        endpoints.append(NodeEndpoint(node_id, host, port, reader.nullable_string(flexible=True)))
        reader.skip_tags()
    return endpoints
