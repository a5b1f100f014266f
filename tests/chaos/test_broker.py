"""One broker that is killed with SIGKILL at random moments while librdkafka and Java produce to it
with acks=all.

Promised: every acknowledged record is in the log once, at the acknowledged offset, in order (A1 to
A4); the broker recovers by itself and the producers continue without a restart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.java_load import JavaLoad
from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

ROUNDS = 8
SEGMENT_BYTES = 1_100_000
"""A little above the largest batch that a client makes."""
RECORDS_BETWEEN_KILLS_MAX = 300


@pytest.fixture
def broker(processes: Processes, tmp_path: Path) -> Iterator[LoneBroker]:
    """A broker with small segments, so that some kills hit the roll of a segment."""
    return LoneBroker(processes, tmp_path / "broker", log_segment_bytes=str(SEGMENT_BYTES))


async def create(broker: LoneBroker, topic: str, partitions: int) -> None:
    async with KafkaClient(broker.bootstrap) as client:
        (outcome,) = await client.create_topics([NewTopic(name=topic, partition_count=partitions)])
        assert not outcome.error_code, outcome


def kill_at_random_moments(broker: LoneBroker, load: AcknowledgedLoad | JavaLoad) -> None:
    """Under a load that goes on for as long as that takes."""
    for _ in range(ROUNDS):
        load.wait_acknowledged(random.randint(1, RECORDS_BETWEEN_KILLS_MAX))
        broker.process.kill()
        broker.restart()


async def test_kills_at_random_moments_lose_repeat_and_reorder_nothing_that_librdkafka_sent(broker: LoneBroker) -> None:
    await create(broker, "orders", 3)
    with AcknowledgedLoad(broker.bootstrap, "orders", 3, records_per_second=1000) as load:
        kill_at_random_moments(broker, load)
        assert load.finish() > ROUNDS
        await load.check_log(broker.bootstrap)


@pytest.mark.long
async def test_kills_at_random_moments_lose_repeat_and_reorder_nothing_that_java_sent(
    broker: LoneBroker, processes: Processes, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    await create(broker, "payments", 1)
    load = JavaLoad(
        kafka_programs, processes, tmp_path / "producer", bootstrap_servers=broker.bootstrap, topic="payments"
    )
    kill_at_random_moments(broker, load)
    count = load.finish()
    await load.check_log(broker.bootstrap)
    received = librdkafka_consume(broker.bootstrap, "payments", count, group="checker")
    assert [record.value for record in received] == [b"%d" % number for number in range(count)]
