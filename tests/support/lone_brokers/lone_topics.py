"""Topics of a lone broker with numbers as records, one partition after the other."""

from __future__ import annotations

import asyncio
import uuid

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.raw_client import KafkaClient, NewTopic

PARTITIONS = 4


async def new_topic(broker: LoneBroker, prefix: str = "t") -> str:
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    async with KafkaClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic(name=name, partition_count=PARTITIONS)])
    return name


async def produce(broker: LoneBroker, topic: str, first: int, end: int) -> None:
    records = [Record(value=b"%d" % number, partition=number % PARTITIONS) for number in range(first, end)]
    await asyncio.to_thread(librdkafka_produce, broker.bootstrap, topic, records)
