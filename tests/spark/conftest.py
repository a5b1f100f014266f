"""One Spark session and two lone brokers for all reconciliation tests: starting them takes longer
than using them.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy import jar_sets
from deploy.class_archives import spark_environment
from runtime.process import OperationalFailure
from spark_jobs.session import interpreted, noise_into, session
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, NewTopic

SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""What pyspark reads when it starts its Java machine."""


@pytest.fixture(scope="session")
def hadoop_jars() -> None:
    """Hadoop's jars; tests that need them are skipped where Maven cannot fetch them."""
    try:
        jar_sets.fetch([jar_sets.HADOOP], print)
    except OperationalFailure as failure:
        pytest.skip(str(failure))


@dataclass
class TwoLogs:
    """A topic of one partition at each of two brokers, written by hand and batch by batch."""

    topic: str
    a: LoneBroker
    b: LoneBroker

    def append(self, broker: LoneBroker, *batches: bytes) -> None:
        """Append batches at one broker."""

        async def run() -> None:
            async with KafkaClient(broker.bootstrap) as client:
                for records in batches:
                    await client.produce(self.topic, 0, records)

        asyncio.run(run())

    def append_both(self, *batches: bytes) -> None:
        """Append the same batches at both."""
        for broker in (self.a, self.b):
            self.append(broker, *batches)

    def delete_topic(self, broker: LoneBroker) -> None:
        """Delete the topic at one broker."""

        async def run() -> None:
            async with KafkaClient(broker.bootstrap) as client:
                (outcome,) = await client.delete_topics([self.topic])
                assert not outcome.error_code, outcome

        asyncio.run(run())

    def configure(self, broker: LoneBroker, values: Mapping[str, str]) -> None:
        """Set configs of the topic at one broker."""

        async def run() -> None:
            async with KafkaClient(broker.bootstrap) as client:
                await client.alter_topic_configs(self.topic, to_set=values)

        asyncio.run(run())

    def segment(self, broker: LoneBroker) -> Path:
        """The log's only segment file."""
        return broker.data / f"{self.topic}-0" / "00000000000000000000.log"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session on two cores, with the Kafka connector where it has been fetched: jars cannot
    be added to it later. Its queries are interpreted: compiling them costs more than the few
    records of a test.
    """
    os.environ.update(spark_environment())
    if jar_sets.SPARK_KAFKA.is_there:
        jars = ",".join(str(jar) for jar in jar_sets.SPARK_KAFKA.jars())
        os.environ[SUBMIT_ARGUMENTS] = f"--jars {jars} pyspark-shell"
    with noise_into(tmp_path_factory.mktemp("spark") / "spark.log"):
        started = session("tests", is_local=True, cores=2)
    os.environ.pop(SUBMIT_ARGUMENTS, None)
    with interpreted(started):
        yield started
    started.stop()


@pytest.fixture(scope="session")
def brokers(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoneBroker, LoneBroker]:
    """Two sites' brokers; leave them running."""
    first, second = (LoneBroker(session_processes, tmp_path_factory.mktemp(f"site-{name}")) for name in "ab")
    return first, second


@pytest.fixture
def logs(brokers: tuple[LoneBroker, LoneBroker]) -> TwoLogs:
    """A fresh topic at both."""
    return fresh_logs(brokers)


def fresh_logs(brokers: tuple[LoneBroker, LoneBroker], name: str = "t") -> TwoLogs:
    """A fresh topic at both; its name begins with this one."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"

    async def create(broker: LoneBroker) -> None:
        async with KafkaClient(broker.bootstrap) as client:
            (outcome,) = await client.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
            assert not outcome.error_code, outcome

    for broker in brokers:
        asyncio.run(create(broker))
    return TwoLogs(topic, *brokers)
