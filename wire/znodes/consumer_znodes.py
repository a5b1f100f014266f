"""Consumer groups of the classic kind in ZooKeeper: members, owners of partitions, and offsets.
Kafka's own paths and JSON (0.8).

    /consumers/<group>/ids/<consumer>                    ephemeral: subscription, pattern
    /consumers/<group>/owners/<topic>/<partition>        ephemeral: the consumer's thread
    /consumers/<group>/offsets/<topic>/<partition>       the next offset, decimal

Pure functions between bytes and values; `clients/classic/zookeeper_consumer.py` acts on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from wire.protocol.json_documents import parse_json
from wire.znodes.documents import MalformedZnode

CONSUMERS: Final = "/consumers"
STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
PATTERNS: Final = (STATIC, WHITE_LIST, BLACK_LIST)


class ConsumerRegistration(Struct, frozen=True, kw_only=True):
    """A consumer's registration in its group: streams by topic, or by a regular expression for the
    other two patterns.
    """

    subscription: Mapping[str, int]
    pattern: str = STATIC
    timestamp_ms: int = 0


def ids_path(group: str) -> str:
    """Parent of the group's consumers."""
    return f"{CONSUMERS}/{group}/ids"


def id_path(group: str, consumer_id: str) -> str:
    """One consumer."""
    return f"{ids_path(group)}/{consumer_id}"


def owners_path(group: str, topic: str) -> str:
    """Parent of the owners of a topic's partitions."""
    return f"{CONSUMERS}/{group}/owners/{topic}"


def owner_path(group: str, topic: str, partition: int) -> str:
    """The path of a partition's owner."""
    return f"{owners_path(group, topic)}/{partition}"


def offset_path(group: str, topic: str, partition: int) -> str:
    """The next offset that the group reads."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def encode_registration(registration: ConsumerRegistration) -> bytes:
    """The payload of a consumer's node."""
    document = {
        "version": 1,
        "subscription": dict(registration.subscription),
        "pattern": registration.pattern,
        "timestamp": str(registration.timestamp_ms),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_registration(path: str, payload: bytes) -> ConsumerRegistration:
    """The contents of a consumer's node. MalformedZnode."""
    try:
        document = parse_json(payload)
        subscription = {str(topic): int(count) for topic, count in document["subscription"].items()}
        pattern, timestamp_ms = str(document.get("pattern", STATIC)), int(document.get("timestamp", 0))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise MalformedZnode(path, f"not a consumer's registration: {error}") from error
    if pattern not in PATTERNS:
        raise MalformedZnode(path, f"pattern is {pattern!r}, accepted are {', '.join(PATTERNS)}")
    if any(count < 1 for count in subscription.values()):
        raise MalformedZnode(path, "subscription names a topic with less than one stream")
    return ConsumerRegistration(subscription=subscription, pattern=pattern, timestamp_ms=timestamp_ms)


def encode_offset(offset: int) -> bytes:
    """The next offset as text."""
    return str(offset).encode()


def decode_offset(path: str, payload: bytes) -> int:
    """The next offset. MalformedZnode."""
    try:
        return int(payload)
    except ValueError as error:
        raise MalformedZnode(path, f"{payload[:40]!r} is not an offset") from error
