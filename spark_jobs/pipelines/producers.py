"""The producer of jobs that write without the data source: librdkafka's, which logs in as the other
clients of a job do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.logs.cluster_client import security_of_file
from wire.client.librdkafka_options import librdkafka_options

if TYPE_CHECKING:
    from confluent_kafka import Producer


def idempotent_producer(bootstrap: str, *, linger_ms: int = 5) -> Producer:
    """A producer that waits for all in-sync replicas and repeats no record. ConfigurationError."""
    from confluent_kafka import Producer

    security = security_of_file()
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            **({} if security is None else librdkafka_options(security)),
        }
    )
