"""One broker that is killed with SIGKILL at random moments while librdkafka and Java produce to it with acks=all.

Promised: every acknowledged record is there once, at the offset that was acknowledged, in order (A1 to A4); the broker is back by itself
and the producers go on without being restarted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acknowledged_load import AcknowledgedLoad
from tests.support.eventually import eventually_sync
from tests.support.java_clients import VERIFIABLE_PRODUCER, KafkaPrograms
from tests.support.kafka_clients import librdkafka_consume
from tests.support.lone_broker_process import LoneBroker
from tests.support.processes import Processes, RunningProcess
from wire.client import KafkaClient, NewTopic

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

ROUNDS = 8
SEGMENT_BYTES = 1_100_000
"""A little above the largest batch that a client makes."""
RECORDS_BETWEEN_KILLS_MAX = 300
JAVA_RECORDS = 4000
JAVA_RECORDS_PER_SECOND = 250


@pytest.fixture
def broker(processes: Processes, tmp_path: Path) -> Iterator[LoneBroker]:
    """Small segments, so that a kill also meets a roll."""
    return LoneBroker(processes, tmp_path / "broker", log_segment_bytes=str(SEGMENT_BYTES))


async def create(broker: LoneBroker, topic: str, partitions: int) -> None:
    async with KafkaClient(broker.bootstrap) as client:
        (outcome,) = await client.create_topics([NewTopic(name=topic, partition_count=partitions)])
        assert not outcome.error_code, outcome


def kill_at_random_moments(broker: LoneBroker, load: AcknowledgedLoad) -> None:
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


def events(process: RunningProcess, name: str) -> list[dict[str, object]]:
    """What a verifiable producer printed, one JSON object a line."""
    lines = [
        json.loads(line) for line in process.log_text().splitlines() if line.startswith("{") and line.endswith("}")
    ]
    return [line for line in lines if line.get("name") == name]


async def test_kills_at_random_moments_lose_repeat_and_reorder_nothing_that_java_sent(
    broker: LoneBroker, processes: Processes, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    await create(broker, "payments", 1)
    settings = tmp_path / "producer.properties"
    settings.write_text("retries=2147483647\nenable.idempotence=true\n")  # the program's own default is not to retry
    command = kafka_programs.command(
        VERIFIABLE_PRODUCER,
        *("--bootstrap-server", broker.bootstrap, "--topic", "payments", "--acks", "-1"),
        *("--max-messages", str(JAVA_RECORDS), "--throughput", str(JAVA_RECORDS_PER_SECOND)),
        *("--command-config", str(settings)),
    )
    producer = processes.run_command("verifiable-producer", command, tmp_path / "producer")

    def acknowledged() -> int:
        return len(events(producer, "producer_send_success"))

    for _ in range(ROUNDS):
        more = acknowledged() + random.randint(1, RECORDS_BETWEEN_KILLS_MAX)
        eventually_sync(lambda more=more: acknowledged() >= more, 60_000)
        broker.process.kill()
        broker.restart()
    assert producer.wait_ended(60_000) == 0
    assert not events(producer, "producer_send_error")
    answers = events(producer, "producer_send_success")
    wanted = {int(str(answer["offset"])): str(answer["value"]).encode() for answer in answers}
    received = librdkafka_consume(broker.bootstrap, "payments", JAVA_RECORDS, group="checker")
    assert [record.value for record in received] == [b"%d" % number for number in range(JAVA_RECORDS)]
    assert {record.offset: record.value for record in received} == wanted
