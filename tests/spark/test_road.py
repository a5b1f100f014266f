"""The road checkpoint pipeline: two routes in, tables out; produced = stored + rejected; a command
counts from the next record on; one analysis gives its results once; a planted plate at two places
is the only hit; a producer and a consumer can be replaced, each by itself.
"""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark_jobs.pipelines import road_ingest, road_report
from spark_jobs.pipelines.core.road_records import road_record
from spark_jobs.pipelines.data_contracts import load_contract
from spark_jobs.pipelines.road_report import HOUR_MS
from tests.spark.test_pipelines import Jobs
from tests.spark.test_pipelines import jobs as jobs_fixture
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.commands import app
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.timeout(480)
jobs = jobs_fixture

CONSUMER_COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
PLACES = {f"1101{device:02d}#1#0#0": 10.0 * device for device in range(5)}


class Road:
    """Topics and tables of one pipeline."""

    def __init__(self, jobs: Jobs, directory: Path) -> None:
        self.jobs = jobs
        self.tables = directory / "tables"
        self.directory = directory
        self.names = {name: jobs.topic() for name in ("data", "control", "dead-letter", "alerts", "counts")}
        (directory / "places.json").write_text(json.dumps(PLACES))

    def produce(self, *arguments: str) -> None:
        self.jobs.run("road-produce", "--topic", self.names["data"], *arguments)

    def command(self, **fields: str) -> None:
        librdkafka_produce(self.jobs.bootstrap, self.names["control"], [Record(value=json.dumps(fields).encode())])

    def sighting(self, plate: str, device: int, at_ms: int) -> None:
        record = road_record(device, at_ms=at_ms) | {"plate": plate}
        librdkafka_produce(self.jobs.bootstrap, self.names["data"], [Record(value=json.dumps(record).encode())])

    def ingest(self) -> None:
        topics = [text for name, topic in self.names.items() for text in (f"--{name}", topic)]
        self.jobs.run(
            "road-ingest", *topics, "--to", str(self.tables), "--checkpoint", str(self.directory / "c"), "--once"
        )

    def report(self) -> dict[str, Any]:
        job = road_report.parser()
        given = job.parse_args(["--from", str(self.tables), "--places", str(self.directory / "places.json")])
        return dict(json.loads(road_report.run(self.jobs.spark, given)))


@pytest.fixture
def road(jobs: Jobs, tmp_path: Path) -> Road:
    return Road(jobs, tmp_path)


def test_both_routes_are_stored_or_rejected_and_the_books_balance_over_an_interruption(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    road.produce("--count", "200", "--bad-every", "20")
    road.produce("--count", "100", "--route", "server", "--first", "1000")
    monkeypatch.setattr(road_ingest, "MINUTE_MS", 1)  # the load crosses windows at any time of the day
    write = road_ingest._write

    def interrupted(rows: Any, given: Any, name: str, batch: int) -> None:
        write(rows, given, name, batch)
        if name == "rejected":
            raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(road_ingest, "_write", interrupted)
        with pytest.raises(StreamingQueryException):
            road.ingest()
    road.ingest()
    stored = road_report.table(road.jobs.spark, road.tables, "stored")
    assert (stored.count(), stored.select("plate").distinct().count()) == (290, 290)
    assert {row.server_address for row in stored.select("server_address").distinct().collect()} == {"", "10.0.1.1"}
    report = road.report()
    assert (report["stored"], report["rejected"]) == (290, {"plate could not be read": 10})
    assert sum(hour["records"] for hour in report["hours"]) == 290
    assert report["skew"] >= 1.0
    counts = {one["id"]: one for one in map(json.loads, road.jobs.values(road.names["counts"]))}
    assert len(counts) > 1
    assert sum(one["stored"] + one["rejected"] for one in counts.values()) == 300
    assert len(road.jobs.values(road.names["dead-letter"])) == 10


@pytest.mark.long
def test_commands_and_two_places(road: Road, tmp_path: Path) -> None:
    """A command counts from the next record on, an analysis gives its results once, and a plate at
    two places in too short a time is the only hit.
    """
    payload = tmp_path / "video.txt"
    payload.write_text("car 1\ncar 2\ncar 3\n")
    now_ms = round(time.time() * 1000)
    road.sighting("WANTED", 1, now_ms)
    road.command(command="watch", plate="WANTED")
    road.command(command="analyse", url=payload.as_uri())
    for dangling in ((tmp_path / "gone.txt").as_uri(), "rtsp://camera/1", ""):
        road.command(command="analyse", url=dangling)
    road.sighting("WANTED", 1, now_ms)
    road.ingest()
    road.sighting("WANTED", 1, now_ms)
    road.sighting("TWICE", 0, now_ms - 600_000)
    road.sighting("TWICE", 4, now_ms - 300_000)  # 40 km in 5 minutes
    road.sighting("DRIVES", 0, now_ms - 600_000)
    road.sighting("DRIVES", 1, now_ms - 240_000)  # 10 km in 6 minutes
    road.sighting("STANDS", 2, now_ms - 600_000)
    road.sighting("STANDS", 2, now_ms - 599_000)
    road.ingest()
    report = road.report()
    assert (report["alerts"], report["results"], report["dangling_references"]) == (2, 3, 3)
    (hit,) = report["two_places"]
    assert (hit["plate"], hit["km"]) == ("TWICE", 40.0)
    alerts = [json.loads(value) for value in road.jobs.values(road.names["alerts"])]
    assert [alert["plate"] for alert in alerts] == ["WANTED", "WANTED"]
    assert all(alert["delay_ms"] >= 0 for alert in alerts)


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_capture_times_are_utc_in_a_session_of_any_zone(spark: SparkSession, zone: str) -> None:
    # New York's clocks skip from 2 to 3 o'clock on this day
    captured = datetime(2026, 3, 8, 2, 30, tzinfo=UTC)
    captured_ms = round(captured.timestamp() * 1000)
    value = json.dumps(road_record(1, at_ms=captured_ms)).encode()
    schema = road_ingest.sighting_schema(None)
    former = spark.conf.get("spark.sql.session.timeZone")
    assert former is not None
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        records = spark.createDataFrame([(None, value, "t", 0, 0, captured)], CONSUMER_COLUMNS)
        (row,) = road_ingest.judged_records(records, schema, captured_ms + 1_000).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", former)
    assert (row.reason, row.capture_ms, row.sent_ms) == (None, captured_ms, captured_ms)


def test_counts_of_two_data_topics_are_not_taken_for_repetitions(spark: SparkSession) -> None:
    judged = spark.createDataFrame([(0, None)], "sent_ms long, reason string")
    counts = [json.loads(road_ingest._counted(judged, topic, 3).collect()[0].value) for topic in ("a", "b")]
    assert len({one["id"] for one in counts}) == 2


class Contracted:
    """Topics of a contract of their own, as `antipode pipeline topics` creates and checks them."""

    def __init__(self, jobs: Jobs, directory: Path) -> None:
        self.jobs = jobs
        self.prefix = f"c-{uuid.uuid4().hex[:8]}-"
        self.file = directory / "contract.yaml"
        text = (resources.files("spark_jobs.pipelines") / "contracts" / "road.yaml").read_text()
        self.file.write_text(text.replace("road-", self.prefix))
        self.contract = load_contract(self.file)
        self.data = f"{self.prefix}data"

    def check(self, *options: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the document of the command."""
        command = ["pipeline", "topics", "--contract", str(self.file), "--output", "json", *options]
        done = CliRunner().invoke(app, [*command, "--bootstrap-server", self.jobs.bootstrap])
        return done.exit_code, json.loads(done.stdout)

    def send(self, *records: dict[str, Any]) -> None:
        """A producer that knows the contract alone."""
        librdkafka_produce(self.jobs.bootstrap, self.data, [Record(value=json.dumps(one).encode()) for one in records])

    def ingest(self, directory: Path) -> set[str]:
        """The plates that the project's consumer stores."""
        topics = [
            text
            for name in ("data", "control", "dead-letter", "alerts")
            for text in (f"--{name}", f"{self.prefix}{name}")
        ]
        where = ("--to", str(directory / "tables"), "--checkpoint", str(directory / "c"), "--once")
        self.jobs.run("road-ingest", *topics, *where, "--contract", str(self.file))
        stored = road_report.table(self.jobs.spark, directory / "tables", "stored")
        return {row.plate for row in stored.select("plate").collect()}


def test_a_producer_and_a_consumer_are_replaced_each_by_itself(jobs: Jobs, tmp_path: Path) -> None:
    """The other producer and the other consumer use nothing of the project but the contract."""
    contracted = Contracted(jobs, tmp_path)
    code, document = contracted.check()
    assert (code, len(document["findings"])) == (1, 5)
    code, document = contracted.check("--create")
    assert (code, document["findings"], len(document["created"])) == (0, [], 5)
    # The producer is replaced: values by the types of fields, and a field that no consumer knows.
    fields = contracted.contract.schemas["sighting"].fields
    samples = {"string": "some text", "integer": 1}
    other = {field.name: samples[field.type] for field in fields} | {"capture_time": "2026-01-31 12:00:00"}
    contracted.send(*({**other, "plate": f"B{number}", "speed_kmh": 50} for number in range(3)))
    assert contracted.ingest(tmp_path) == {"B0", "B1", "B2"}
    # The consumer is replaced: it judges records of the project's producer by the contract.
    jobs.run("road-produce", "--topic", contracted.data, "--count", "20")
    schema = contracted.contract.schemas["sighting"]
    found = [(schema.problem(value), json.loads(value)["plate"]) for value in jobs.values(contracted.data)]
    assert {problem for problem, _ in found} == {None}
    assert {plate for _, plate in found} == {"B0", "B1", "B2", *(f"A{number:06d}" for number in range(20))}
    code, document = contracted.check()
    assert (code, document["records"][contracted.data]) == (0, 23)
    contracted.send({**other, "plate": 7})
    code, document = contracted.check("--records", "1")
    assert code == 1
    (finding,) = document["findings"]
    assert finding["text"].endswith("plate is not of type string")
    # Batches fit into the data topic, also those of many records.
    for route in ("device", "server"):
        written = jobs.run("road-produce", "--topic", contracted.data, "--count", "1000", "--route", route)
        assert written.startswith("wrote 1,000 records")


def test_a_day_of_records_is_a_report_of_24_rows(jobs: Jobs) -> None:
    """An hour has its own delays: hour h's are h and h + 2 seconds."""
    rows = [
        (hour * HOUR_MS + 1_000, hour * HOUR_MS + 1_000 + hour * 1_000 + extra_ms)
        for hour in range(24)
        for extra_ms in (0, 2_000)
    ]
    found = road_report.delays_by_hour(jobs.spark.createDataFrame(rows, "capture_ms bigint, ingest_ms bigint"))
    assert [tuple(row) for row in found.collect()] == [
        (hour * HOUR_MS, 2, hour * 1_000 + 1_000.0, hour * 1_000 + 2_000, hour * 1_000 + 2_000) for hour in range(24)
    ]


def test_the_skew_is_the_largest_partition_over_the_mean(jobs: Jobs) -> None:
    def of(*counts: int) -> float:
        rows = [("t", partition) for partition, count in enumerate(counts) for _ in range(count)]
        return road_report.skew(jobs.spark.createDataFrame(rows, "topic string, partition int"))

    assert of(3, 3, 3) == 1.0
    assert of(6, 2, 1) == 2.0
    assert of() == 0.0


def test_the_delay_is_measured_for_two_intervals(jobs: Jobs) -> None:
    topic = jobs.topic()
    load = ("--intervals-ms", "100,1500", "--records", "60", "--per-second", "40")
    found = json.loads(jobs.run("trigger-delay", "--topic", topic, *load))
    assert [(one["interval_ms"], one["records"]) for one in found["delays"]] == [(100, 60), (1_500, 60)]
    for one in found["delays"]:
        assert 0 <= one["p50_ms"] <= one["p90_ms"] <= one["p99_ms"] <= one["max_ms"]
    # A warm-up record for each interval, which is not measured.
    assert len(jobs.values(topic)) == 122


async def test_a_payload_does_not_fit_into_a_data_topic(road: Road) -> None:
    async with KafkaClient(road.jobs.bootstrap) as client:
        await client.alter_topic_configs(road.names["data"], to_set={"max.message.bytes": "10000"})
    problems: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": road.jobs.bootstrap})
    producer.produce(road.names["data"], b"\1" * 20_000, on_delivery=lambda error, _: problems.append(error))
    producer.flush(30)
    (problem,) = problems
    assert problem is not None
    assert problem.code() == KafkaError.MSG_SIZE_TOO_LARGE
