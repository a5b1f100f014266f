"""The paths and JSON that Kafka's older tools write to ZooKeeper to move partitions or to elect
preferred leaders.

A tool creates one of the two nodes; the controller takes out what is done and removes the node in
the end. Decoders raise `MalformedZnode`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wire.protocol.ids import PartitionKey
from wire.protocol.json_documents import parse_json
from wire.znodes.documents import MalformedZnode
from wire.znodes.layout import ADMIN

REASSIGN_PARTITIONS = f"{ADMIN}/reassign_partitions"
PREFERRED_ELECTION = f"{ADMIN}/preferred_replica_election"


def decode_reassignments(payload: bytes) -> dict[PartitionKey, tuple[int, ...]]:
    """Wanted replicas by partition, the preferred leader first."""
    wanted = {}
    for entry in _entries(REASSIGN_PARTITIONS, payload):
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not all(_is_number(node) for node in replicas):
            raise MalformedZnode(REASSIGN_PARTITIONS, f"replicas are {replicas!r}, not a list of whole numbers")
        wanted[_named(REASSIGN_PARTITIONS, entry)] = tuple(replicas)
    return wanted


def encode_reassignments(wanted: Mapping[PartitionKey, tuple[int, ...]]) -> bytes:
    """The request without the partitions that are done."""
    entries = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in sorted(wanted.items())
    ]
    return json.dumps({"version": 1, "partitions": entries}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_election(payload: bytes) -> list[PartitionKey]:
    """Partitions whose preferred replica is to lead."""
    return [_named(PREFERRED_ELECTION, entry) for entry in _entries(PREFERRED_ELECTION, payload)]


def _entries(path: str, payload: bytes) -> list[dict[str, Any]]:
    try:
        document = parse_json(payload)
    except ValueError as error:
        raise MalformedZnode(path, f"not JSON: {error}") from error
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MalformedZnode(path, f"field 'partitions' is {entries!r}, not a list of objects")
    return entries


def _named(path: str, entry: Mapping[str, Any]) -> PartitionKey:
    topic, index = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str) or not _is_number(index):
        raise MalformedZnode(path, f"{entry!r} does not name a topic and a partition")
    assert isinstance(index, int)
    return topic, index


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
