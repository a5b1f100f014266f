"""Jobs at brokers that demand TLS and a login. Promised: the data source reads and writes with the
Kafka connector's options, also as a stream; a job without them logs in with the file that its
environment names, as reader and as producer; a whole pipeline logs in with `--command-config`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.connector.cluster import ClusterReader
from spark_jobs.connector.core.options import Subscription
from spark_jobs.logs.cluster_client import COMMAND_CONFIG
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.log_reader import read_split
from spark_jobs.pipelines import road_report
from spark_jobs.pipelines.core.road_records import DEVICE, road_records
from spark_jobs.pipelines.producers import idempotent_producer
from spark_jobs.streaming import run_queries
from tests.support.clients.transactional_clients import read_values
from tests.support.lone_brokers.secured_broker import PASSWORDS, SecuredBroker, jaas
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.timeout(360)

RECORDS = 200
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    started = SecuredBroker(session_processes, tmp_path_factory.mktemp("secured"))
    yield started
    started.process.stop()


def create(broker: SecuredBroker, *topics: str) -> None:
    async def ask() -> None:
        async with KafkaClient(broker.at("CLIENT")) as client:
            wanted = [NewTopic(name=topic, partition_count=2, replication_factor=1) for topic in topics]
            assert not any(outcome.error_code for outcome in await client.create_topics(wanted))

    asyncio.run(ask())


def login_of(broker: SecuredBroker) -> dict[str, str]:
    """Options of a client at the listener SECURED."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", "alice", PASSWORDS["alice"]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificates.authority),
    }


def test_the_data_source_logs_in_with_the_connectors_options(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path
) -> None:
    create(broker, "in", "out")
    options = {f"kafka.{key}": value for key, value in login_of(broker).items()}
    options |= {"kafka.bootstrap.servers": broker.at("SECURED")}
    rows = spark.range(RECORDS).selectExpr("cast(cast(id as string) as binary) as value")
    rows.write.format("antipode").options(**options, topic="in").mode("append").save()
    stream = spark.readStream.format("antipode").options(**options, subscribe="in", startingOffsets="earliest").load()
    writer = stream.select("value").writeStream.format("antipode").options(**options, topic="out")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_queries(writer.trigger(availableNow=True).start)
    read = spark.read.format("antipode").options(**options, subscribe="out").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(RECORDS))


def command_config(broker: SecuredBroker, directory: Path) -> Path:
    """A file of client properties with alice's login."""
    file = directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login_of(broker).items()))
    return file


def test_a_job_without_options_logs_in_with_the_file_of_its_environment(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "by-file")
    monkeypatch.setenv(COMMAND_CONFIG, str(command_config(broker, tmp_path)))
    producer = idempotent_producer(broker.at("SECURED"))
    producer.produce("by-file", b"kept", partition=1)
    assert producer.flush(30) == 0
    with ClusterReader(ClusterOptions(bootstrap=broker.at("SECURED"))) as cluster:
        partitions = cluster.partitions(Subscription(topics=frozenset(["by-file"])))
        assert {key: log.end_offset for key, log in cluster.logs(partitions).ranges.items()} == {
            ("by-file", 0): 0,
            ("by-file", 1): 1,
        }
    split = Split(site="a", topic="by-file", partition=1, first_offset=0, until_offset=1, is_first=True)
    (stored,) = read_split(broker.at("SECURED"), split)
    assert stored.is_crc_valid


# A Spark session of its own: 40 s of processor time.
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_whole_pipeline_logs_in_with_the_file_of_the_command(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are created, a streaming query reads two of them and writes three."""
    file = command_config(broker, tmp_path)
    address = ("--bootstrap-server", broker.at("SECURED"))

    def antipode(*arguments: str) -> str:
        command = [sys.executable, "-m", "cli.main", "pipeline", *arguments, *address]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=600)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    assert "the topics fit contract road" in antipode("topics", "--create", "--command-config", str(file))
    monkeypatch.setenv(COMMAND_CONFIG, str(file))
    producer = idempotent_producer(broker.at("SECURED"))
    for value in road_records(50, at_ms=round(time.time() * 1000) - 50_000, route=DEVICE, bad_every=10):
        producer.produce("road-data", value)
    assert producer.flush(30) == 0
    monkeypatch.delenv(COMMAND_CONFIG)
    tables = tmp_path / "tables"
    job = ("road-ingest", "--to", str(tables), "--checkpoint", str(tmp_path / "c"), "--counts", "road-counts", "--once")
    antipode("run", "--command-config", str(file), "--cores", "2", *job)
    assert road_report.table(spark, tables, "stored").count() == 45
    # The tasks of the query have logged in as producers, too.
    values = {
        topic: [value for found in read_values(broker.at("CLIENT"), topic, 1).values() for value in found]
        for topic in ("road-dead-letter", "road-counts")
    }
    assert len(values["road-dead-letter"]) == 5
    assert sum(one["stored"] + one["rejected"] for one in map(json.loads, values["road-counts"])) == 50
