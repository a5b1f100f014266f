"""The pipelines on a real broker, as `antipode pipeline run` and spark-submit start them."""

from __future__ import annotations

import asyncio
import json
import random
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from deploy import jar_sets
from deploy.stores.document_store import DocumentStore
from spark_jobs.connector.topic_frames import TopicSource, records_of
from spark_jobs.pipelines import files_to_topic, follow_topics, log_documents, topic_to_files
from spark_jobs.pipelines.catalogue import PIPELINES, pipeline
from spark_jobs.pipelines.word_count import words_counted
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.transactional_clients import read_values
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.ports import LOOPBACK, free_port
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.timeout(480)

READY_WITHIN_MS = 120_000

WORDS = ("plate", "road", "camera", "north", "south", "late")


class Jobs:
    """Pipelines against one broker or site."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def topic(self, *, partitions: int = 2) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"

        async def create() -> None:
            async with KafkaClient(self.bootstrap) as client:
                wanted = NewTopic(name=name, partition_count=partitions, replication_factor=1)
                (outcome,) = await client.create_topics([wanted])
                assert not outcome.error_code, outcome

        asyncio.run(create())
        return name

    def run(self, name: str, *arguments: str) -> str:
        job = pipeline(name).module
        given = job.parser().parse_args(["--bootstrap-server", self.bootstrap, *arguments])
        return str(job.run(self.spark, given))

    def produce(self, topic: str, lines: list[str], *, partitions: int = 2) -> None:
        records = [Record(value=line.encode(), partition=number % partitions) for number, line in enumerate(lines)]
        librdkafka_produce(self.bootstrap, topic, records)

    def values(self, topic: str, *, partitions: int = 2) -> list[bytes]:
        """All values up to the topic's end; in log order within a partition."""
        found = read_values(self.bootstrap, topic, partitions)
        return [value for partition in sorted(found) for value in found[partition]]


@pytest.fixture
def jobs(spark: SparkSession, brokers: tuple[LoneBroker, LoneBroker]) -> Jobs:
    return Jobs(spark, brokers[0].bootstrap)


def lines_of(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=5)) for _ in range(count)]


def test_every_pipeline_has_a_parser_and_a_summary() -> None:
    for one in PIPELINES:
        assert one.module.parser().description
        assert one.summary
    with pytest.raises(KeyError, match="accepted: word-count"):
        pipeline("no-such")


def test_words_are_counted_as_a_reference_does_also_over_a_restart(jobs: Jobs, tmp_path: Path) -> None:
    source, target = jobs.topic(), jobs.topic(partitions=1)
    first, second = lines_of(500, 1), [*lines_of(500, 2), "two  spaces"]
    arguments = ("--input-topic", source, "--output-topic", target, "--checkpoint", str(tmp_path / "c"), "--once")
    for lines in (first, second):
        jobs.produce(source, lines)
        jobs.run("word-count", *arguments)
    reference = Counter(word for line in (*first, *second) for word in line.split(" "))
    counts: dict[str, int] = {}
    for value in jobs.values(target, partitions=1):
        found = json.loads(value)
        counts[found["word"]] = found["count"]
    assert counts == dict(reference)


def test_lines_of_files_become_records_by_lists_of_both_limits(jobs: Jobs, tmp_path: Path) -> None:
    topic, lines = jobs.topic(), lines_of(500, 3)
    (tmp_path / "lines").mkdir()
    for number in range(2):
        (tmp_path / "lines" / f"{number}.txt").write_text("\n".join(lines[number::2]) + "\n")
    other = "caf\xe9".encode("latin-1")  # the bytes of a line are not text of one encoding
    (tmp_path / "lines" / "latin.txt").write_bytes(other + b"\n")
    (tmp_path / "lines" / "empty.txt").touch()
    source = (tmp_path / "lines").as_uri()
    said = jobs.run("files-to-topic", "--from", source, "--topic", topic, "--list-bytes", "300", "--list-records", "7")
    assert said == f"wrote 501 lines to {topic}"
    assert sorted(jobs.values(topic)) == sorted([other, *(line.encode() for line in lines)])
    assert (
        files_to_topic.parser().parse_args(["--bootstrap-server", "x:1", "--from", "f", "--topic", "t"]).list_records
        == 32_767
    )


def test_a_task_that_failed_and_is_run_again_sends_each_line_at_least_once(jobs: Jobs) -> None:
    topic, lines = jobs.topic(), [f"line {number}" for number in range(30)]

    def rows(fails_after: int) -> Iterator[Row]:
        for number, line in enumerate(lines):
            if number == fails_after:
                raise OSError("the disk is gone")
            yield Row(value=line.encode())

    def attempt(fails_after: int) -> None:
        list(files_to_topic._write(jobs.bootstrap, topic, 1 << 20, 7, rows(fails_after)))

    with pytest.raises(OSError, match="disk"):
        attempt(20)
    attempt(len(lines))
    found = Counter(value.decode() for value in jobs.values(topic))
    # Two lists of seven lines were acknowledged before the task failed.
    assert found == Counter(lines) + Counter(lines[:14])


@pytest.mark.parametrize("parts", [1, 7])
def test_words_are_counted_by_key_however_the_lines_lie(spark: SparkSession, parts: int) -> None:
    lines = lines_of(200, 5)
    frame = spark.createDataFrame([(line,) for line in lines], "value string").repartition(parts)
    found = {row.word: row["count"] for row in words_counted(frame).collect()}
    assert found == Counter(word for line in lines for word in line.split(" "))


def test_runs_write_a_growing_topic_to_files_once_also_when_one_was_killed(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = jobs.topic(), tmp_path / "files"
    arguments = ("--topic", topic, "--to", str(target))
    jobs.produce(topic, [f"line {number}" for number in range(100)])
    assert "0 to 49 of partition 0, 0 to 49 of partition 1" in jobs.run("topic-to-files", *arguments)
    assert jobs.run("topic-to-files", *arguments) == f"{topic} has nothing new"
    jobs.produce(topic, [f"line {number}" for number in range(100, 130)])

    def interrupted(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(topic_to_files, "keep_ranges", interrupted)
        with pytest.raises(InterruptedError):
            jobs.run("topic-to-files", *arguments)
    jobs.produce(topic, [f"line {number}" for number in range(130, 140)])
    assert "50 to 69 of partition 0" in jobs.run("topic-to-files", *arguments)
    rows = jobs.spark.read.parquet(str(target)).select("value").collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(b"line %d" % number for number in range(140))
    jobs.produce(topic, [f"line {number}" for number in range(140, 150)])
    sql = "select count(*) as all, count(distinct value) as different from records"
    assert json.loads(jobs.run("hot-and-cold", *arguments, "--sql", sql)) == {"all": 150, "different": 150}
    assert json.loads(jobs.run("hot-and-cold", *arguments, "--keep")) == {"records": 150}
    assert len(list((target / topic_to_files.RANGES).glob("*.json"))) == 3


def test_topics_are_followed_into_files_and_what_is_missing_or_repeated_there_is_counted(
    jobs: Jobs, tmp_path: Path
) -> None:
    topics = jobs.topic(), jobs.topic(partitions=1)
    to = tmp_path / "files"
    arguments = ("--topics", ",".join(topics), "--to", str(to), "--checkpoint", str(tmp_path / "checkpoint"), "--small")
    for topic, partitions in zip(topics, (2, 1), strict=True):
        jobs.produce(topic, [f"line {number}" for number in range(40)], partitions=partitions)
    assert jobs.run("follow-topics", *arguments, "--once").startswith("80 records of")
    jobs.produce(topics[0], ["later"] * 10)
    (tmp_path / "brokers").write_text(jobs.bootstrap)
    (tmp_path / "finish").touch()
    files = ("--brokers", str(tmp_path / "brokers"), "--until", str(tmp_path / "finish"))
    assert jobs.run("follow-topics", *arguments, *files).startswith("90 records of")
    assert (to / follow_topics.STORED).exists()
    assert json.loads((to / follow_topics.COMPARISON).read_text()) == {
        "stored": 90, "missing": 0, "repeated": 0, "lost": 0, "lost_from": []
    }  # fmt: skip
    stored = jobs.spark.read.parquet(str(to / follow_topics.RECORDS))
    read = records_of(jobs.spark, TopicSource(bootstrap=jobs.bootstrap, topics=",".join(topics), is_list=True))
    first = [(F.col("topic") == topics[0]) & (F.col("partition") == 0) & (F.col("offset") == at) for at in range(3)]
    planted = stored.where(~(first[0] | first[1]))
    planted = planted.union(stored.where(first[0]).withColumn("value", F.lit(b"other"))).union(stored.where(first[2]))
    found = follow_topics.compared(planted, read)
    lost = follow_topics.LostRecords(topic=topics[0], partition=0, first_offset=0, records=1)
    assert found == follow_topics.Comparison(stored=90, missing=2, repeated=1, lost=1, lost_from=(lost,))
    assert not found.is_exact


def test_generated_log_lines_are_of_several_clients_and_each_is_there_once(jobs: Jobs) -> None:
    topic = jobs.topic()
    assert jobs.run("log-produce", "--topic", topic, "--count", "40") == f"wrote 120 lines of 3 clients to {topic}"
    lines = [value.decode().split(" ", 3) for value in jobs.values(topic)]
    assert Counter(client for _, client, _, _ in lines) == {"web-1": 40, "web-2": 40, "web-3": 40}
    assert Counter(level for _, _, level, _ in lines) == {"INFO": 72, "WARN": 24, "ERROR": 24}
    assert len({tuple(line) for line in lines}) == 120


@pytest.mark.long
def test_matching_lines_of_several_clients_are_found_once_and_other_lines_are_not(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = jobs.topic(), tmp_path / "documents"
    arguments = ("--topic", topic, "--match", "ERROR|WARN", "--to", str(target), "--checkpoint", str(tmp_path / "c"))
    for client in range(3):
        jobs.produce(topic, [f"ERROR disk {client}", f"INFO all is well {client}", f"WARN slow {client}"])
    keep = log_documents._keep

    def interrupted(*given: object) -> None:
        keep(*given)  # type: ignore[arg-type]
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(log_documents, "_keep", interrupted)
        with pytest.raises(StreamingQueryException):
            jobs.run("log-documents", *arguments, "--once")
    jobs.run("log-documents", *arguments, "--once")
    jobs.produce(topic, ["ERROR late"])
    jobs.run("log-documents", *arguments, "--once")
    rows = log_documents.found_in(jobs.spark, target, "").collect()
    assert len(rows) == len({row.id for row in rows}) == 7
    assert [row.message for row in log_documents.found_in(jobs.spark, target, "disk 2").collect()] == ["ERROR disk 2"]
    assert log_documents.found_in(jobs.spark, target, "INFO").count() == 0


def test_without_an_expression_all_lines_are_documents_also_empty_ones(spark: SparkSession) -> None:
    given = log_documents.parser().parse_args(
        ["--bootstrap-server", "h:1", "--topic", "t", "--to", "d", "--checkpoint", "c"]
    )
    lines = [b"a", b"", b"\n", None]
    rows = [("t", 0, offset, None, line) for offset, line in enumerate(lines)]
    records = spark.createDataFrame(rows, "topic string, partition int, offset long, timestamp timestamp, value binary")
    found = log_documents.documents_of(records, given.match).collect()
    assert [(row.id, row.message) for row in found] == [("t-0-0", "a"), ("t-0-1", ""), ("t-0-2", "\n")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DocumentStore]:
    """A real engine."""
    if not jar_sets.OPENSEARCH.is_there:
        pytest.skip("OpenSearch is not there: make setup-java")
    port, transport_port = free_port(), free_port()
    started = DocumentStore(directory=tmp_path / "store", port=port, transport_port=transport_port)
    child = started.child()
    child.start()
    try:
        eventually_sync(started.is_serving, READY_WITHIN_MS)
        yield started
    finally:
        child.stop()


@pytest.mark.long
def test_log_lines_of_three_clients_are_found_in_a_document_store_each_once(
    jobs: Jobs, tmp_path: Path, store: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = jobs.topic()
    where = ("--store", f"http://{LOOPBACK}:{free_port()},{store.url}", "--index", "mylog")
    arguments = ("--topic", topic, "--match", "ERROR|WARN", *where, "--checkpoint", str(tmp_path / "c"))
    for client in range(3):
        jobs.produce(topic, [f"ERROR disk {client}", f"INFO all is well {client}", f"WARN slow {client}"])
    send = log_documents._send

    def interrupted(*given: Any) -> None:
        send(*given)
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(log_documents, "_send", interrupted)
        with pytest.raises(StreamingQueryException):
            jobs.run("log-documents", *arguments, "--once")
    jobs.run("log-documents", *arguments, "--once")

    def found(words: str) -> list[tuple[str, str]]:
        requests.post(f"{store.url}/mylog/_refresh", timeout=30).raise_for_status()
        answer = requests.get(f"{store.url}/mylog/_search", params={"q": words, "size": "100"}, timeout=30).json()
        return sorted((hit["_id"], hit["_source"]["message"]) for hit in answer["hits"]["hits"])

    assert len(found("*")) == 6
    assert [message for _, message in found('message:"disk 2"')] == ["ERROR disk 2"]
    assert all(re.fullmatch(rf"{topic}-[01]-\d+", name) for name, _ in found("*"))
    assert found("INFO") == []
    closed = requests.put(f"{store.url}/mylog/_settings", json={"index.blocks.write": True}, timeout=30)
    closed.raise_for_status()
    jobs.produce(topic, ["ERROR refused"])
    with pytest.raises(StreamingQueryException, match="refuses 1 documents of batch"):
        jobs.run("log-documents", *arguments, "--once")
    requests.put(f"{store.url}/mylog/_settings", json={"index.blocks.write": False}, timeout=30).raise_for_status()
    jobs.run("log-documents", *arguments, "--once")
    assert len(found("*")) == 7
