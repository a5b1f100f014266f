"""Word count as an endless query (INT-01, INT-04 of the requirements): its counts are those of a
reference over 100,000 lines, also when the query is killed in a batch and the broker restarts; it
ends on request alone.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from deploy.class_archives import spark_environment
from runtime.children import Child
from tests.spark.test_pipelines import WORDS
from tests.spark.test_stream_source import batches_in
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.transactional_clients import read_values
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, NewTopic, call_client

REPOSITORY = Path(__file__).parents[2]
LINES = 100_000


def counts_in(broker: LoneBroker, topic: str) -> dict[str, int]:
    """The newest count of each word."""
    counts: dict[str, int] = {}
    for value in read_values(broker.bootstrap, topic, 1)[0]:
        found = json.loads(value)
        counts[found["word"]] = found["count"]
    return counts


def create_topics(broker: LoneBroker, **partitions: int) -> None:
    """Topics by name, each with its number of partitions."""

    async def ask(client: KafkaClient) -> None:
        wanted = [NewTopic(name=name, partition_count=n, replication_factor=1) for name, n in partitions.items()]
        assert not any(outcome.error_code for outcome in await client.create_topics(wanted))

    call_client(broker.bootstrap, ask)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_counts_are_right_over_a_kill_and_a_restart_of_the_broker(processes: Processes, tmp_path: Path) -> None:
    broker = LoneBroker(processes, tmp_path / "broker")
    create_topics(broker, lines=2, counts=1)
    chance = random.Random(4)
    lines = [" ".join(chance.choices(WORDS, k=5)) for _ in range(LINES)]
    checkpoint = tmp_path / "checkpoint"
    command = [sys.executable, "-m", "cli.main", "pipeline", "run", "word-count"]
    arguments = ["--bootstrap-server", broker.bootstrap, "--input-topic", "lines", "--output-topic", "counts"]
    query = processes.run(
        Child(
            name="word-count",
            command=[*command, *arguments, "--checkpoint", str(checkpoint), "--trigger-ms", "100"],
            directory=tmp_path,
            log=tmp_path / "query.log",
            environment={"PYTHONPATH": os.pathsep.join([str(REPOSITORY)]), **spark_environment()},
        )
    )

    def produce(begin: int, end: int) -> None:
        records = [Record(value=lines[number].encode(), partition=number % 2) for number in range(begin, end)]
        librdkafka_produce(broker.bootstrap, "lines", records)

    def planned() -> int:
        return batches_in(checkpoint / "offsets")

    produce(0, 40_000)
    eventually_sync(lambda: batches_in(checkpoint / "commits") >= 1, 240_000)
    before = planned()
    produce(40_000, 70_000)
    eventually_sync(lambda: planned() > before, 120_000)
    query.kill()
    query.start()
    committed = batches_in(checkpoint / "commits")
    eventually_sync(lambda: batches_in(checkpoint / "commits") > committed, 240_000)
    broker.process.kill()
    broker.restart()
    produce(70_000, LINES)
    reference = Counter(word for line in lines for word in line.split(" "))
    eventually_sync(lambda: counts_in(broker, "counts") == dict(reference), 240_000)
    assert query.is_running
    query.stop(within_ms=60_000)
