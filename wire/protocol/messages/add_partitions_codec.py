"""The response to AddPartitionsToTxn by hand: each transaction has one, and kio takes some ten
microseconds a partition for it.

Layout: Apache Kafka's AddPartitionsToTxnResponse, versions 0 to 5. Before version 4 it speaks of
one transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes

_SEVERAL_TRANSACTIONS_FROM: Final = 4
_FLEXIBLE_FROM: Final = 3
_NOT_THROTTLED: Final = bytes(4)
_NO_ERROR: Final = bytes(2)
_RESULT: Final = struct.Struct(">ih")
_TAGGED_RESULT: Final = struct.Struct(">ihx")

TopicResults = Mapping[str, Sequence[tuple[int, int]]]
"""Partitions with their error codes by topic."""


def encode_add_partitions_response(version: int, transactions: Sequence[tuple[str, TopicResults]]) -> bytes:
    """The body: topics' outcomes by transactional id, of which there is one before version 4."""
    if version < _SEVERAL_TRANSACTIONS_FROM:
        ((_, topics),) = transactions
        parts = [_NOT_THROTTLED, *_topic_parts(topics, flexible=version >= _FLEXIBLE_FROM)]
    else:
        parts = [_NOT_THROTTLED, _NO_ERROR, count_bytes(len(transactions), flexible=True)]
        for transactional_id, topics in transactions:
            parts += (string_bytes(transactional_id, flexible=True), *_topic_parts(topics, flexible=True), NO_TAGS)
    if version >= _FLEXIBLE_FROM:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _topic_parts(topics: TopicResults, *, flexible: bool) -> list[bytes]:
    pack = (_TAGGED_RESULT if flexible else _RESULT).pack
    parts = [count_bytes(len(topics), flexible=flexible)]
    for name, results in topics.items():
        parts += (string_bytes(name, flexible=flexible), count_bytes(len(results), flexible=flexible))
        parts += [pack(index, error) for index, error in results]
        if flexible:
            parts.append(NO_TAGS)
    return parts
