"""The producer's data types: records, options, deliveries, counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from clients.budget import FOREVER_MS
from clients.core.partitioners import Murmur2Partitioner, Partitioner
from wire.batches.record_batch import Compression
from wire.protocol.ids import ACKS_ALL

RECORD_OVERHEAD_BYTES: Final = 64
"""The bytes that a record uses in the queue in addition to its key, value and headers."""


class ProducerClosed(Exception):
    """The producer was closed, or ended itself after a failure, before the record was
    acknowledged.
    """


class DeliveryTimedOut(Exception):
    """The record was not acknowledged within `delivery_timeout_ms`; if it was sent, it may have
    been written.
    """


class ProducerRecord(Struct, frozen=True, kw_only=True):
    """One record to send. `partition_key` routes instead of `key` and is not stored; `partition`
    overrides both.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition_key: bytes | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the record uses in the queue."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"") + headers


class Delivered(NamedTuple):
    """The partition and offset of a record; the offset is -1 with acks=0 and for a batch that the
    broker already had.
    """

    topic: str
    partition: int
    offset: int


class ProducerOptions(Struct, frozen=True, kw_only=True):
    """Options of a producer under Kafka's names. Times are in milliseconds."""

    acks: int = -1
    is_idempotent: bool = True
    compression: Compression = Compression.NONE
    linger_ms: float = 5
    batch_bytes_max: int = 128 * 1024
    batch_records_max: int = 10_000
    request_bytes_max: int = 1024 * 1024
    in_flight_max: int = 5
    queue_bytes_max: int = 32 * 1024 * 1024
    queue_records_max: int = 100_000
    enqueue_timeout_ms: int = FOREVER_MS
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: float = 120_000
    attempts_max: int | None = None
    retry_backoff_ms: float = 100
    metadata_max_age_ms: float = 300_000
    """0: refreshed after each record that is sent, negative: after failures only (the classic
    topic.metadata.refresh.interval.ms).
    """
    metadata_timeout_ms: float = 10_000
    is_creating_topics: bool = True
    """Whether brokers may create a topic that does not exist (auto.create.topics.enable)."""
    is_aborting_on_failure: bool = False
    partitioner: Callable[[], Partitioner] = Murmur2Partitioner

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks {self.acks} is not usable: accepted are 0, 1 and -1 (all)")
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=all, not {self.acks}")


class ProducerCounts(Struct):
    """Counts of records by outcome."""

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    requests: int = 0
    retries: int = 0
