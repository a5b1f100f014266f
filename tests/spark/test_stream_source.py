"""The data source "antipode" in streaming queries. Promised: a query goes on from its checkpoint,
its own or the Kafka connector's, and its group shows that position; with our sink each record is
written once, also when everything is killed in between.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from deploy import jar_sets
from runtime.children import Child
from spark_jobs.connector.core.checkpoints import parse_offsets_file, topic_offsets
from spark_jobs.connector.core.options import Use, parse_read
from spark_jobs.connector.stream_reader import StreamReader
from spark_jobs.streaming import run_queries
from tests.spark.conftest import fresh_logs
from tests.spark.streams import Streams, newest_file
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, call_client
from wire.client.security import SECURITY_KEYS
from wire.protocol.ids import PartitionKey

pytestmark = pytest.mark.timeout(480)

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def streams(spark: SparkSession, brokers: tuple[LoneBroker, LoneBroker]) -> Streams:
    return Streams(spark, brokers[0].bootstrap)


def move_position(checkpoint: Path, offset: int, moved: int) -> None:
    """Have the checkpoint say that the query has read up to another offset of partition 0."""
    newest = newest_file(checkpoint / "offsets")
    newest.write_text(newest.read_text().replace(f'"0": {offset}', f'"0": {moved}'))
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_query_goes_on_from_its_checkpoint_and_writes_each_record_once(streams: Streams, tmp_path: Path) -> None:
    source, target = streams.create(partitions=2), streams.create(partitions=2)
    checkpoint = tmp_path / "checkpoint"
    streams.fill(source, 0, 100, partitions=2)
    streams.carry(source, target, checkpoint, **{"antipode.progress.group": source})
    assert streams.committed(source) == {(source, 0): 50, (source, 1): 50}
    assert json.loads(newest_file(checkpoint / "offsets").read_text().splitlines()[-1]) == {
        source: {"0": 50, "1": 50},
        f"{source} (leader epochs)": {"0": 0, "1": 0},
    }
    # As after kill -9 between the sink's commits and Spark's own note: the batch is run again.
    newest = newest_file(checkpoint / "commits")
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    streams.fill(source, 100, 130, partitions=2)
    streams.carry(source, target, checkpoint)
    assert streams.values(target) == list(range(130))


class Batches:
    """The batches of a query, as they come: the number of tasks, and the rows in the order of the
    tasks.
    """

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.rows: list[list[Row]] = []

    def take(self, frame: DataFrame, _batch: int) -> None:
        self.tasks.append(frame.rdd.getNumPartitions())
        self.rows.append(frame.collect())


def test_a_stream_has_a_task_for_each_partition_and_two_executions_have_identical_rows(
    streams: Streams, tmp_path: Path
) -> None:
    source = streams.create(partitions=3)

    def run(checkpoint: str, **options: str) -> Batches:
        found = Batches()
        given = streams.servers | {"subscribe": source, "startingOffsets": "earliest"} | options
        writer = streams.spark.readStream.format("antipode").options(**given).load().writeStream
        writer = writer.foreachBatch(found.take).option("checkpointLocation", str(tmp_path / checkpoint))
        run_queries(writer.trigger(availableNow=True).start)
        return found

    streams.fill(source, 0, 120, partitions=3)
    first, again = (run(name, maxOffsetsPerTrigger="60") for name in ("first", "again"))
    assert first.tasks == again.tasks == [3, 3]
    assert first.rows == again.rows
    assert [len(rows) for rows in first.rows] == [60, 60]
    # Spark divides partitions only on request.
    assert run("divided", minPartitions="6").tasks == [6]
    # A restart continues where the checkpoint ends: no gap, and nothing twice.
    streams.fill(source, 120, 150, partitions=3)
    later = run("first")
    assert later.tasks == [3]
    values = sorted(int(row.value) for rows in (*first.rows, *later.rows) for row in rows)
    assert values == list(range(150))


def test_a_group_shows_up_to_where_batches_have_ended(brokers: tuple[LoneBroker, LoneBroker]) -> None:
    logs = fresh_logs(brokers)
    logs.append(logs.a, batch([b"1", b"2", b"3"]))
    given = {"kafka.bootstrap.servers": logs.a.bootstrap, "subscribe": logs.topic, "startingOffsets": "earliest"}
    group = {"antipode.progress.group": f"group of {logs.topic}"}
    reader = StreamReader(parse_read(given | group, Use.READ_STREAM, SECURITY_KEYS))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    assert end[logs.topic] == {"0": 2}
    reader.latestOffset(end, ReadAllAvailable())
    reader.stop()

    async def committed(client: KafkaClient) -> dict[PartitionKey, int]:
        return {key: found.offset for key, found in (await client.committed(f"group of {logs.topic}")).items()}

    assert call_client(logs.a.bootstrap, committed) == {(logs.topic, 0): 2}


@pytest.mark.java
@pytest.mark.skipif(not jar_sets.SPARK_KAFKA.is_there, reason="Spark's Kafka connector is not in the parts folder")
def test_a_checkpoint_of_the_kafka_connector_serves_us_and_ours_serves_it(streams: Streams, tmp_path: Path) -> None:
    source, target = streams.create(partitions=2), streams.create()
    for number, reader in enumerate(("kafka", "antipode", "kafka")):
        streams.fill(source, number * 60, number * 60 + 60, partitions=2)
        plain = {"antipode.leader.epochs": "false"} if reader == "antipode" else {}
        streams.carry(source, target, tmp_path / "checkpoint", reader=reader, **plain)
    assert streams.values(target) == list(range(180))


@pytest.mark.long
def test_a_position_that_the_log_lacks_stops_the_query_or_not_by_option(streams: Streams, tmp_path: Path) -> None:
    source, target = streams.create(), streams.create()
    checkpoint = tmp_path / "checkpoint"
    streams.fill(source, 0, 100, partitions=1)
    streams.carry(source, target, checkpoint)
    # The query has read more than this log has, as after a failover that lost the end.
    move_position(checkpoint, 100, 120)
    with pytest.raises(PySparkException, match=f"{source}-0: the query has read up to offset 120"):
        streams.carry(source, target, checkpoint)
    streams.carry(source, target, checkpoint, failOnDataLoss="false")
    streams.fill(source, 100, 110, partitions=1)
    streams.carry(source, target, checkpoint, failOnDataLoss="false")
    assert streams.values(target) == list(range(110))


@pytest.fixture
def job(processes: Processes, streams: Streams, tmp_path: Path) -> Child:
    source, target = streams.create(partitions=3), streams.create(partitions=2)
    command = [sys.executable, str(Path(__file__).with_name("stream_job.py")), streams.bootstrap, source, target]
    return Child(
        name="stream-job",
        command=[*command, str(tmp_path / "checkpoint")],
        directory=tmp_path,
        log=tmp_path / "job.log",
        environment={"PYTHONPATH": os.pathsep.join([str(REPOSITORY)])},
    )


def batches_in(commits: Path) -> int:
    """The number of batches that a query has committed, from its checkpoint."""
    return int(newest_file(commits).name) + 1 if commits.is_dir() and any(commits.glob("[0-9]*")) else 0


def records_in(checkpoint: Path) -> int:
    """The number of records in the batches that a query has committed. The checkpoint gives it
    without a job of Spark, which would take processor time from the query.
    """
    committed = batches_in(checkpoint / "commits")
    if not committed:
        return 0
    (source,) = parse_offsets_file((checkpoint / "offsets" / str(committed - 1)).read_text()).sources
    return sum((topic_offsets(source) or {}).values())


# Three starts of Spark alone take minutes where other programs use the processors.
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_query_that_is_killed_again_and_again_writes_each_record_once(
    processes: Processes, streams: Streams, job: Child, tmp_path: Path
) -> None:
    source, target = job.command[3:5]
    commits = tmp_path / "checkpoint" / "commits"
    total = 6_000
    streams.fill(source, 0, total, partitions=3)
    running = processes.run(job)
    committed = 0
    for _ in range(2):
        eventually_sync(lambda at_least=committed + 3: batches_in(commits) >= at_least, 240_000)
        running.kill()
        committed = batches_in(commits)
        running.start()
    eventually_sync(lambda: records_in(tmp_path / "checkpoint") >= total, 300_000)
    running.kill()
    assert streams.values(target) == list(range(total))
