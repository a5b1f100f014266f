"""The producer of jobs that write without the data source: librdkafka's, which logs in as the other
clients of a job do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from runtime.process import OperationalFailure
from spark_jobs.logs.cluster_client import security_of_file
from wire.client.librdkafka_options import librdkafka_options

if TYPE_CHECKING:
    from confluent_kafka import Producer


ANSWER_WITHIN_S: Final = 60.0
FULL_QUEUE_POLL_S: Final = 0.1
BATCH_BYTES_MAX: Final = 1_000_000
"""librdkafka's own limit, below the default of a topic's max.message.bytes."""


def idempotent_producer(bootstrap: str, *, linger_ms: int = 5, batch_bytes_max: int = BATCH_BYTES_MAX) -> Producer:
    """A producer that waits for all in-sync replicas and repeats no record. Its batches have to be
    smaller than the topic's max.message.bytes. ConfigurationError.
    """
    from confluent_kafka import Producer

    security = security_of_file()
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "batch.size": batch_bytes_max,
            **({} if security is None else librdkafka_options(security)),
        }
    )


def send_all(producer: Producer, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Send keys and values, and wait until all are acknowledged. OperationalFailure when some are
    not.
    """
    problems: list[str] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            problems.append(str(error))

    for key, value in records:
        while not _is_queued(producer, topic, key, value, note):
            producer.poll(FULL_QUEUE_POLL_S)
        producer.poll(0)
    if left := producer.flush(ANSWER_WITHIN_S) or len(problems):
        raise OperationalFailure(f"{left} records were not written to {topic}: {problems[:1]}")


def _is_queued(
    producer: Producer, topic: str, key: bytes, value: bytes, note: Callable[[object, object], None]
) -> bool:
    """False if the producer's queue is full."""
    try:
        producer.produce(topic, value, key, on_delivery=note)
    except BufferError:
        return False
    return True
