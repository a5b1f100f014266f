"""RangeDigests requests: what logs hold in ranges of offsets, as digests or as batch headers, asked
of the broker that leads them. The message is in wire/protocol/messages/range_digest_messages.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.client_errors import error_code
from wire.client.connection import Connection
from wire.protocol.messages.range_digest_messages import HEADER_OFFSETS_MAX, HEADER_RANGES_MAX, HEADERS, RANGE_DIGESTS

RANGES_MAX: Final = 100
"""Ranges that one request asks about: a broker reads and answers so many without delaying others by
more than a few milliseconds.
"""


class RangeQuery(NamedTuple):
    """A range of one partition's offsets, and how finely it is wanted; an empty range asks only
    where the log starts and ends.
    """

    topic: str
    partition: int
    first_offset: int = 0
    end_offset: int = 0
    span: int = 0


class RangeContent(NamedTuple):
    """A leader's answer about one range. With `pending_leaves` above 0 the leader is still reading
    the log, and `content` is empty.
    """

    error_code: ErrorCode
    error_message: str
    log_start_offset: int
    high_watermark: int
    pending_leaves: int
    leaf_offsets: int
    content: bytes


def requests_of(queries: Sequence[RangeQuery]) -> list[list[RangeQuery]]:
    """The queries, divided into requests that a broker answers."""
    digests = [query for query in queries if query.span != HEADERS]
    headers = [query for query in queries if query.span == HEADERS]
    return [
        *(digests[at : at + RANGES_MAX] for at in range(0, len(digests), RANGES_MAX)),
        *_requests_of_headers(headers),
    ]


def _requests_of_headers(queries: Sequence[RangeQuery]) -> list[list[RangeQuery]]:
    """The queries, divided by their number and by their offsets."""
    requests: list[list[RangeQuery]] = []
    offsets = 0
    for query in queries:
        size = query.end_offset - query.first_offset
        if not requests or len(requests[-1]) == HEADER_RANGES_MAX or offsets + size > HEADER_OFFSETS_MAX:
            requests.append([])
            offsets = 0
        requests[-1].append(query)
        offsets += size
    return requests


async def request_range_digests(
    connection: Connection, queries: Sequence[RangeQuery]
) -> dict[RangeQuery, RangeContent]:
    """One request, of `requests_of`. UnsupportedApi from a broker that has no digests."""
    by_topic: dict[str, list[RangeQuery]] = {}
    for query in queries:
        by_topic.setdefault(query.topic, []).append(query)
    topics = [{"name": name, "partitions": [_fields(query) for query in asked]} for name, asked in by_topic.items()]
    response = await connection.call(RANGE_DIGESTS, {"topics": topics})
    return {
        query: RangeContent(
            error_code=error_code(found.error_code),
            error_message=found.error_message or "",
            log_start_offset=found.log_start_offset,
            high_watermark=found.high_watermark,
            pending_leaves=found.pending_leaves,
            leaf_offsets=response.leaf_offsets,
            content=bytes(found.content),
        )
        for asked, topic in zip(by_topic.values(), response.topics, strict=True)
        for query, found in zip(asked, topic.partitions, strict=True)
    }


def _fields(query: RangeQuery) -> Mapping[str, Any]:
    return {
        "index": query.partition,
        "first_offset": query.first_offset,
        "end_offset": query.end_offset,
        "span": query.span,
    }
