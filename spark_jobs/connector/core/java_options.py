"""The options of Spark's Kafka connector that have no effect here. Pure."""

from __future__ import annotations

from typing import Final

JAVA_ONLY: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafka.group.id",
    "kafka.max.poll.records",
    "kafka.max.poll.interval.ms",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.fetch.min.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.max.bytes",
    "kafka.receive.buffer.bytes",
    "kafka.send.buffer.bytes",
    "kafka.linger.ms",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.acks",
    "kafka.retries",
    "kafka.enable.idempotence",
    "kafka.delivery.timeout.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
)
"""Options that tune the Java clients inside the Kafka connector. They are accepted, so that a job
keeps them, and change nothing here.
"""
