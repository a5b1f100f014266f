"""Identities that all packages share: partitions, nodes, replica ids, epochs, and the values that
mean "none" and "unknown". Each is defined here alone.

Kafka writes -1 for most of them. They have names of their own because they mean different things,
and because some ids below zero name a reader (`CONSUMER`, `DEBUGGING_CONSUMER`, `MIRROR`,
`REPLICA_READER`).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TopicPartition(NamedTuple):
    """One partition by name; sorts by topic, then by index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionKey = tuple[str, int]
"""A topic and a partition index as the key of a mapping. A TopicPartition is one, with the same
hash; code that looks up a partition for each request uses the plain pair, which is cheaper to make.
"""

CONSUMER: Final = -1
"""Replica id of a client in Fetch and ListOffsets."""
DEBUGGING_CONSUMER: Final = -2
"""Kafka's replica id of tools; Antipode's brokers serve it from any role."""
MIRROR: Final = -3
"""The replica id of an exact link's mirror: it reads up to what the site's in-sync replicas have,
before a sync link shows it to consumers.
"""
REPLICA_READER: Final = -4
"""The replica id of a repair in Fetch: it reads the replica of the asked broker, also of a
follower, in any role and up to the high watermark that the replica knows.
"""

NO_NODE: Final = -1
"""Instead of a node id: no leader, no controller, no coordinator, no follower."""

NO_EPOCH: Final = -1
"""Instead of a leader epoch, partition epoch, producer epoch or link epoch: none, or unknown."""
UNCHECKED_EPOCH: Final = -1
"""Broker epoch of a replica that did not report it (Fetch before version 15)."""

NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1

NO_OFFSET: Final = -1
"""Instead of an offset in a response: there is none."""
NO_TIMESTAMP: Final = -1
UNKNOWN: Final = -1
"""Instead of an offset, a time, a count or an epoch that was not measured or not reported."""

EARLIEST_TIMESTAMP: Final = -2
"""Instead of a time in ListOffsets: asks for the log's start."""
LATEST_TIMESTAMP: Final = -1
"""Instead of a time in ListOffsets: asks for the end that the reader may see."""
MAX_TIMESTAMP: Final = -3
"""Instead of a time in ListOffsets: asks for the record with the largest timestamp (KIP-734)."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Isolation levels of Fetch and ListOffsets."""

ACKS_ALL: Final = -1
"""acks of a Produce that waits for all in-sync replicas."""

SITE_DEFAULT: Final = -1
"""Partition count or replication factor of a new topic: the one of the site's configs."""
