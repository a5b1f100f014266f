"""A producer at scripted brokers, and the records in their logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clients.producer.producer import Producer
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from tests.support.clients.scripted_cluster import ScriptedCluster
from wire.client.raw_client import KafkaClient

QUICK = {"retry_backoff_ms": 5.0, "linger_ms": 1.0}


def numbered(number: int, partition: int | None = None) -> ProducerRecord:
    """A record whose value is the number."""
    return ProducerRecord(topic="t", value=b"%d" % number, partition=partition)


@asynccontextmanager
async def producing(cluster: ScriptedCluster, **options: object) -> AsyncIterator[Producer]:
    """A producer at the cluster, with short pauses."""
    given = ProducerOptions(**{**QUICK, **options})  # type: ignore[arg-type]
    async with Producer(KafkaClient(cluster.bootstrap, retry_budget_ms=2000), given) as producer:
        yield producer


def values(cluster: ScriptedCluster, partition: int = 0) -> list[bytes | None]:
    """The values in a partition's log."""
    return [record.value for record in cluster.logs[partition].records()]
