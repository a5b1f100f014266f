"""Jobs over two linked sites. Promised: an audit counts the standby's own copies; after a planned
move each pipeline goes on at the other site from where it was; a table that is built there from the
beginning has the rows of the first one; commands of the site that was left are not carried out, and
references to payloads that only that site has are counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import audit
from spark_jobs.auditing.report import AuditReport, audited
from spark_jobs.pipelines import follow_topics, log_documents, road_report
from spark_jobs.pipelines.catalogue import pipeline
from spark_jobs.pipelines.road_report import table
from tests.spark.test_pipelines import Jobs, lines_of
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_200)]

DATA = "road-data"
CONTROL = {site: f"road-control-{site}" for site in "ab"}
"""Not mirrored, and of different names: clients of a routed link see the topics of both sites."""
AUDITED = "audited"
"""Has 30 records before any test."""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path_factory.mktemp("jobs"))
    try:
        started = starter("--blacklist", "road-control-.*")
        asyncio.run(create_topic(started, 1, name=AUDITED))
        librdkafka_produce(started.bootstrap("a"), AUDITED, [Record(value=b"%d" % number) for number in range(30)])
        await_complete(started)
        yield started
    finally:
        starter.end_all()


class Road:
    """The ingest at either site."""

    def __init__(self, spark: SparkSession, sites: EmbeddedSites, directory: Path) -> None:
        self.spark, self.sites, self.directory = spark, sites, directory

    def run(self, name: str, site: str, *arguments: str) -> None:
        job = pipeline(name).module
        job.run(self.spark, job.parser().parse_args(["--bootstrap-server", self.sites.bootstrap(site), *arguments]))

    def produce(self, site: str, first: int) -> None:
        self.run("road-produce", site, "--count", "60", "--bad-every", "20", "--first", str(first))

    def ingest(self, site: str, tables: str, checkpoint: str) -> None:
        to, kept = str(self.directory / tables), str(self.directory / checkpoint)
        own = ("--site", site, "--control", CONTROL[site])
        self.run("road-ingest", site, *own, "--to", to, "--checkpoint", kept, "--once")

    def rows(self, tables: str) -> list[Any]:
        stored = table(self.spark, self.directory / tables, "stored")
        return sorted(stored.drop("ingest_ms", "batch").collect())

    def command(self, site: str, command: str, **fields: str) -> None:
        value = json.dumps({"command": command, **fields}).encode()
        librdkafka_produce(self.sites.bootstrap(site), CONTROL[site], [Record(value=value)])

    def alerts(self) -> list[str]:
        found = table(self.spark, self.directory / "tables", "alerts").select("plate").collect()
        return sorted(row.plate for row in found)

    def references(self) -> tuple[int, int]:
        """Results of payloads, and references that dangle."""
        given = road_report.parser().parse_args(["--from", str(self.directory / "tables")])
        report = road_report.report_of(self.spark, given)
        return report["results"], report["dangling_references"]


def await_complete(sites: EmbeddedSites) -> None:
    """Wait until site b has what was produced before now."""
    done = sites.command("links", "complete", "a-b", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr


def report_of(state: Path) -> AuditReport:
    settled = {DATA: round(time.time() * 1000) + 3_600_000}
    return audited(
        state, reference="a", settled_until_ms=settled, alarm_windows=1, delay_alarm_ms=0, lateness_ms=60_000
    )


def test_jobs_count_the_standby_and_go_on_at_the_site_that_is_promoted(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path
) -> None:
    road = Road(spark, sites, tmp_path)
    for name in (DATA, "road-dead-letter", "road-alerts"):
        asyncio.run(create_topic(sites, 2 if name == DATA else 1, name=name))
    for site, name in CONTROL.items():
        asyncio.run(create_topic(sites, site=site, name=name))
    road.produce("a", 0)
    road.command("a", "watch", plate="A000061")
    payload = tmp_path / "storage-of-a" / "video.txt"
    payload.parent.mkdir()
    payload.write_text("car 1\ncar 2\n")
    road.command("a", "analyse", url=payload.as_uri())
    road.ingest("a", "tables", "checkpoint")
    assert road.references() == (2, 0)
    await_complete(sites)
    with sites.cut_off():
        road.produce("a", 60)
        named = [f"--site={site}={sites.bootstrap(site)}" for site in "ab"]
        counting = [*named, "--state", str(tmp_path / "audit"), "--topics", DATA, "--once"]
        assert audit.main(counting) == 0
    records = {one.tier: one.records for one in report_of(tmp_path / "audit").totals}
    assert records == {"a": 120, "b": 60}
    assert report_of(tmp_path / "audit").judged.is_alarm
    await_complete(sites)
    assert audit.main(counting) == 0
    assert report_of(tmp_path / "audit").judged.gaps == ()
    done = sites.command("switchover", "a-b", "--to", "b")
    assert done.returncode == 0, done.stdout + done.stderr
    # The mirror carries no payloads: the storage of site a is lost with the site.
    payload.unlink()
    road.command("b", "watch", plate="A000062")
    road.command("b", "analyse", url=payload.as_uri())
    road.produce("b", 120)
    road.ingest("b", "tables", "checkpoint")
    road.ingest("b", "rebuilt", "another-checkpoint")
    rows = road.rows("tables")
    assert len(rows) == len({row.plate for row in rows}) == 171
    assert road.rows("rebuilt") == rows
    assert "A000061" not in road.alerts()
    assert road.references() == (2, 1)


@pytest.fixture
def own_sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    """Two linked sites for one test, which leaves one of them."""
    starter = SitesStarter(tmp_path)
    try:
        yield starter()
    finally:
        starter.end_all()


class Pipelines:
    """The pipelines beside the road's, over one topic of lines, each with a place of its own."""

    def __init__(self, jobs: Jobs, directory: Path, *, lines: str, words: str, copies: str) -> None:
        self.jobs, self.directory = jobs, directory
        self.lines, self.words, self.copies = lines, words, copies

    def run(self, texts: list[str]) -> None:
        """Work on what is there now; `texts` are lines of a new file."""
        jobs, to = self.jobs, self.directory

        def streaming(name: str, *arguments: str) -> None:
            jobs.run(name, *arguments, "--checkpoint", str(to / f"checkpoint-{name}"), "--once")

        streaming("word-count", "--input-topic", self.lines, "--output-topic", self.words)
        streaming("log-documents", "--topic", self.lines, "--match", "plate", "--to", str(to / "documents"))
        streaming("follow-topics", "--topics", self.lines, "--to", str(to / "followed"), "--small")
        jobs.run("topic-to-files", "--topic", self.lines, "--to", str(to / "files"))
        file = to / "texts" / f"{uuid.uuid4().hex}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{text}\n" for text in texts))
        jobs.run("files-to-topic", "--from", file.as_uri(), "--topic", self.copies)

    def counts(self) -> dict[str, int]:
        """The newest count of each word."""
        found = [json.loads(value) for value in self.jobs.values(self.words, partitions=1)]
        return {one["word"]: one["count"] for one in found}


def test_each_pipeline_goes_on_at_the_other_site_from_where_it_was(
    spark: SparkSession, own_sites: EmbeddedSites, tmp_path: Path
) -> None:
    at_a, at_b = (Jobs(spark, own_sites.bootstrap(site)) for site in "ab")
    topics = {"lines": at_a.topic(), "words": at_a.topic(partitions=1), "copies": at_a.topic()}
    first, second = lines_of(100, 1), lines_of(60, 2)
    at_a.produce(topics["lines"], first)
    Pipelines(at_a, tmp_path, **topics).run(["one", "two"])
    await_complete(own_sites)
    done = own_sites.command("switchover", "a-b", "--to", "b")
    assert done.returncode == 0, done.stdout + done.stderr
    own_sites.broker("a").kill()
    at_b.produce(topics["lines"], second)
    pipelines = Pipelines(at_b, tmp_path, **topics)
    pipelines.run(["three"])
    lines = [*first, *second]
    assert pipelines.counts() == Counter(word for line in lines for word in line.split(" "))
    documents = log_documents.found_in(spark, tmp_path / "documents", "").collect()
    assert sorted(row.message for row in documents) == sorted(line for line in lines if "plate" in line)
    for directory in (tmp_path / "followed" / follow_topics.RECORDS, tmp_path / "files"):
        stored = spark.read.parquet(str(directory)).select("value").collect()
        assert sorted(bytes(row.value).decode() for row in stored) == sorted(lines), directory
    sql = "select count(*) as lines from records"
    arguments = ("--topic", topics["lines"], "--to", str(tmp_path / "files"), "--sql", sql)
    assert json.loads(at_b.run("hot-and-cold", *arguments)) == {"lines": len(lines)}
    assert sorted(at_b.values(topics["copies"])) == [b"one", b"three", b"two"]


def test_the_commands_run_and_judge_an_audit(sites: EmbeddedSites, tmp_path: Path) -> None:
    state = str(tmp_path / "state")

    def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
        return sites.command("audit", *arguments, "--state", state)

    assert ended("report", "a-b").returncode == 1
    done = ended("run", "a-b", "--once", "--topics", AUDITED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("counted the records of a and b into")
    done = ended("report", "a-b", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    totals = {one["tier"]: one["records"] for one in json.loads(done.stdout)["totals"]}
    assert totals == {"a": 30, "b": 30}
