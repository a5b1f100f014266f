"""The header of a transaction marker that names the transaction and its partitions.

A log does not show which other partitions a transaction has. So a coordinator of mirrored topics
puts this header on the marker's record in each partition. A standby that has one of the markers
then knows the other partitions of the transaction, even if it lacks their markers. Clients skip the
records of control batches. The value is JSON:

    {"id": "booking", "at": 1700000000000, "in": {"flights": [0, 2], "seats": [1]}}

with the transactional id, when it was decided (Unix ms of the coordinator), and the partitions of
mirrored topics. A transaction of one partition has no header, nor one of more than
`PARTITIONS_MAX`, except transactions of Spark's sink: these have the header always, without
partitions if they are not two to `PARTITIONS_MAX`. After a failover the sink finds by it which
transactions of a log are its own. Written by `broker/transactions`, read by `dr/failover` and
`spark_jobs/connector`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from wire.protocol.json_documents import parse_json

HEADER: Final = "antipode.transaction"
PARTITIONS_MAX: Final = 1000
"""Each partition has the whole list: of more the lists would be megabytes."""
SINK_PREFIX: Final = "antipode-spark."
"""What the transactional ids of Spark's sink begin with."""


class TransactionMembers(NamedTuple):
    """A decided transaction and its partitions (topic, index)."""

    transactional_id: str
    decided_at_ms: int
    partitions: frozenset[tuple[str, int]]


def encode_members(members: TransactionMembers) -> bytes | None:
    """The header's value; None if the transaction gets no header."""
    partitions = members.partitions
    if not 1 < len(partitions) <= PARTITIONS_MAX:
        if not members.transactional_id.startswith(SINK_PREFIX):
            return None
        partitions = frozenset()
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    document = {"id": members.transactional_id, "at": members.decided_at_ms, "in": by_topic}
    return json.dumps(document, separators=(",", ":")).encode()


def members_of(headers: Iterable[tuple[str, bytes | None]]) -> TransactionMembers | None:
    """From the headers of a marker's record; None if the header is missing or damaged."""
    value = next((value for name, value in headers if name == HEADER), None)
    if value is None:
        return None
    try:
        document = parse_json(value.decode())
        return TransactionMembers(
            str(document["id"]), int(document["at"]), frozenset(_partitions(document["in"].items()))
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _partitions(topics: Iterable[tuple[str, Sequence[Any]]]) -> Iterable[tuple[str, int]]:
    for topic, indexes in topics:
        for index in indexes:
            yield topic, int(index)
