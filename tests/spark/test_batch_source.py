"""The data source "antipode" in batch queries. Promised: a job of Spark's Kafka connector reads the
same columns and rows with one word changed; filters and splits spare reading; an error about a
wrong option names it.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from deploy import jar_sets
from spark_jobs.connector.tally import read_tallies
from tests.spark.conftest import TwoLogs
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.batches.record_batch import Compression
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.messages.range_digest_messages import HEADER_OFFSETS_MAX

pytestmark = pytest.mark.timeout(360)

NOW_MS = round(time.time() * 1000)
RECORDS = 300


class Topic:
    """Three partitions with keys, headers and times by the number of the record."""

    def __init__(self, spark: SparkSession, broker: LoneBroker, name: str) -> None:
        self.spark = spark
        self.broker = broker
        self.name = name

    def read(self, source: str = "antipode", **options: str) -> DataFrame:
        """A batch query over the topic."""
        given = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": self.name} | options
        return self.spark.read.format(source).options(**given).load()

    def offsets(self, found: DataFrame) -> list[tuple[int, int]]:
        """Partitions and offsets of rows, sorted."""
        return sorted((row[0], row[1]) for row in found.select("partition", "offset").collect())


def record(number: int) -> Record:
    """Some records have no key, some no value."""
    return Record(
        key=None if number % 70 == 0 else b"key-%d" % number,
        value=None if number % 50 == 0 else b"value-%d" % number,
        timestamp_ms=NOW_MS + number,
        headers=[("number", b"%d" % number)],
    )


@pytest.fixture(scope="module")
def topic(spark: SparkSession, brokers: tuple[LoneBroker, LoneBroker]) -> Topic:
    name = "batch-source"

    async def create() -> None:
        async with KafkaClient(brokers[0].bootstrap) as client:
            (outcome,) = await client.create_topics([NewTopic(name=name, partition_count=3, replication_factor=1)])
            assert not outcome.error_code, outcome
            for partition in range(3):
                records = [record(number) for number in range(partition, RECORDS, 3)]
                for at in range(0, len(records), 10):
                    codec = Compression.ZSTD if at % 20 else Compression.NONE
                    await client.produce(name, partition, encode_batch(records[at : at + 10], compression=codec))

    asyncio.run(create())
    return Topic(spark, brokers[0], name)


@pytest.mark.java
@pytest.mark.skipif(not jar_sets.SPARK_KAFKA.is_there, reason="Spark's Kafka connector is not in the parts folder")
def test_rows_and_columns_are_those_of_the_kafka_connector(topic: Topic) -> None:
    for options in ({}, {"includeHeaders": "true"}, {"startingTimestamp": str(NOW_MS + 120)}):
        ours, theirs = topic.read(**options), topic.read("kafka", **options)
        assert ours.dtypes == theirs.dtypes
        assert sorted(ours.collect(), key=str) == sorted(theirs.collect(), key=str)


def test_a_query_reads_between_the_offsets_that_it_names(topic: Topic) -> None:
    starts, ends = {"0": 10, "1": -2, "2": 99}, {"0": 20, "1": 5, "2": -1}
    found = topic.read(startingOffsets=json.dumps({topic.name: starts}), endingOffsets=json.dumps({topic.name: ends}))
    assert topic.offsets(found) == [(0, n) for n in range(10, 20)] + [(1, n) for n in range(5)] + [(2, 99)]


def test_one_partition_is_read_by_several_tasks_and_each_record_once(topic: Topic) -> None:
    found = topic.read(minPartitions="12")
    assert found.rdd.getNumPartitions() == 12
    assert topic.offsets(found) == [(partition, n) for partition in range(3) for n in range(100)]
    by_bytes = topic.read(**{"antipode.split.bytes": "1000"})
    assert by_bytes.rdd.getNumPartitions() > 6
    assert by_bytes.count() == RECORDS


def test_filters_keep_what_they_exclude_from_being_read(topic: Topic, tmp_path: Path) -> None:
    pushdown = "spark.sql.python.filterPushdown.enabled"
    wanted = "topic = 'batch-source' and partition in (0, 2) and offset >= 40 and offset < 44"
    topic.spark.conf.set(pushdown, "true")
    try:
        found = topic.read(**{"antipode.tally.directory": str(tmp_path / "offsets")}).where(wanted)
        assert topic.offsets(found) == [(0, n) for n in range(40, 44)] + [(2, n) for n in range(40, 44)]
        late = topic.read(**{"antipode.tally.directory": str(tmp_path / "times")}).where(
            f"timestamp >= timestamp_millis({NOW_MS + 290})"
        )
        assert late.count() == 10
    finally:
        topic.spark.conf.unset(pushdown)
    spans = {
        (one["partition"], one["first_offset"], one["until_offset"]) for one in read_tallies(str(tmp_path / "offsets"))
    }
    assert spans == {(0, 40, 44), (2, 40, 44)}
    assert {one["first_offset"] for one in read_tallies(str(tmp_path / "times"))} <= {96, 97}


def test_headers_and_digests_count_what_they_cover(topic: Topic) -> None:
    headers = topic.read(mode="headers")
    assert headers.selectExpr("sum(record_count)").first()[0] == RECORDS
    digests = topic.read(mode="digests").collect()
    assert sorted((row.partition, row.first_offset, row.until_offset) for row in digests) == [
        (partition, 0, 100) for partition in range(3)
    ]
    assert all(len(row.digest) == 16 for row in digests)


def without_verdict(found: DataFrame) -> list[tuple[object, ...]]:
    """The rows of batch headers without what their checksums say, sorted."""
    return sorted(tuple(row) for row in found.drop("is_crc_valid").collect())


def test_headers_alone_are_those_of_the_batches_and_nothing_else_is_read(topic: Topic, tmp_path: Path) -> None:
    unread = {"mode": "headers", "antipode.verify.checksums": "false"}
    for options in (
        {},
        {"minPartitions": "12"},
        {
            "startingOffsets": json.dumps({topic.name: {"0": 15, "1": -2, "2": 20}}),
            "endingOffsets": json.dumps({topic.name: {"0": 95, "1": -1, "2": 21}}),
        },
    ):
        tallies = tmp_path / uuid.uuid4().hex
        headers = topic.read(**unread, **options, **{"antipode.tally.directory": str(tallies)})
        assert without_verdict(headers) == without_verdict(topic.read(mode="headers", **options))
        found = read_tallies(str(tallies))
        assert sum(one["batches"] for one in found) == headers.count()
    headers = topic.read(**unread)
    assert headers.where("is_crc_valid is null").count() == headers.count()
    assert headers.rdd.getNumPartitions() == 1
    assert topic.read(**unread, minPartitions="12").rdd.getNumPartitions() == 12


def test_headers_that_a_leader_does_not_send_alone_come_with_their_batches(spark: SparkSession, logs: TwoLogs) -> None:
    many = HEADER_OFFSETS_MAX // 2  # so that the leader is asked about several ranges
    small = Record(key=b"k", value=b"", timestamp_ms=NOW_MS)
    logs.append(logs.a, *[encode_batch([small] * many)] * 3)
    options = {"kafka.bootstrap.servers": logs.a.bootstrap, "subscribe": logs.topic, "mode": "headers"}
    unread = spark.read.format("antipode").options(**options, **{"antipode.verify.checksums": "false"}).load()
    assert unread.selectExpr("sum(record_count)", "count(is_crc_valid)").first() == (3 * many, 0)
    logs.configure(logs.a, {"cleanup.policy": "compact"})
    assert unread.selectExpr("sum(record_count)", "count(is_crc_valid)").first() == (3 * many, 3)


def test_a_committed_read_leaves_out_markers_and_what_was_aborted(spark: SparkSession, logs: TwoLogs) -> None:
    producer = Producer({"bootstrap.servers": logs.a.bootstrap, "transactional.id": logs.topic})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(logs.topic, b"%d" % number)
        producer.flush()
        _ = producer.abort_transaction() if number % 2 else producer.commit_transaction()
    options = {"kafka.bootstrap.servers": logs.a.bootstrap, "subscribe": logs.topic}
    for level, values in (("read_committed", [b"0", b"2"]), ("read_uncommitted", [b"0", b"1", b"2", b"3"])):
        found = spark.read.format("antipode").options(**options, **{"kafka.isolation.level": level}).load()
        assert [bytes(row.value) for row in found.orderBy("offset").collect()] == values
    stored = spark.read.format("antipode").options(**options, mode="stored").load()
    assert stored.where("is_control").count() == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"startingOffset": "earliest"},
            "option startingoffset is 'earliest'; accepted",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"startingOffsets": "latest"},
            "option startingOffsets is 'latest'; accepted: for a batch earliest",
            marks=pytest.mark.long,
        ),
        pytest.param({"assign": '{"t": [0]}'}, "not together with assign", marks=pytest.mark.long),
        pytest.param(
            {"startingOffsets": '{"batch-source": {"0": 1}}'},
            "without batch-source-1, batch-source-2",
            marks=pytest.mark.long,
        ),
        ({"antipode.site": "z"}, "option antipode.site is 'z'; accepted: the site of a bootstrap server"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_by_name(topic: Topic, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        topic.read(**options).collect()
