"""Spark jobs over failovers of real sites: one pair, a planned move to b, then site b is lost.

Promised: an audit counts the standby's own copies. After a planned move a query goes on at the
other site from its checkpoint, with our source and with the Kafka connector, and writes each record
once; so do the word count and the ingest, a table that is built there from the beginning has the
rows of the first one, and commands of the site that was left are not carried out. After an
unplanned move a query names what it has read and the new active site does not have.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deploy import jar_sets
from spark_jobs.audit import Audit, AuditRequest
from spark_jobs.audit_report import AuditReport, audited
from spark_jobs.pipelines.catalogue import pipeline
from spark_jobs.pipelines.core.road_records import FIELDS
from spark_jobs.pipelines.road_report import table
from tests.spark.streams import Streams, newest_file
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic
from tests.support.eventually import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.timeout(600)]

READERS = ("antipode", *(["kafka"] if jar_sets.SPARK_KAFKA.is_there else []))
DATA = "road-data"
CONTROL = {site: f"road-control-{site}" for site in "ab"}
"""Not mirrored, and of different names: clients of a routed link see the topics of both sites."""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path_factory.mktemp("moves"))
    try:
        yield starter("--blacklist", "road-control-.*")
    finally:
        starter.end_all()


class Pipelines:
    """The jobs of the catalogue at either site."""

    def __init__(self, spark: SparkSession, sites: EmbeddedSites, directory: Path) -> None:
        self.spark, self.sites, self.directory = spark, sites, directory

    def run(self, name: str, site: str, *arguments: str) -> None:
        job = pipeline(name).module
        job.run(self.spark, job.parser().parse_args(["--bootstrap-server", self.sites.bootstrap(site), *arguments]))

    def produce(self, site: str, first: int) -> None:
        self.run("road-produce", site, "--count", "20", "--bad-every", "20", "--first", str(first))

    def ingest(self, site: str, tables: str, checkpoint: str) -> None:
        to, kept = str(self.directory / tables), str(self.directory / checkpoint)
        own = ("--site", site, "--control", CONTROL[site])
        self.run("road-ingest", site, *own, "--to", to, "--checkpoint", kept, "--once")

    def count_words(self, site: str, line: bytes, *, written: int) -> dict[str, int]:
        """Produce a line and count; the newest of so many counts that were written by then."""
        librdkafka_produce(self.sites.bootstrap(site), "lines", [Record(value=line)])
        topics = ("--input-topic", "lines", "--output-topic", "words")
        self.run("word-count", site, *topics, "--checkpoint", str(self.directory / "word-count"), "--once")
        counted = librdkafka_consume(self.sites.bootstrap(site), "words", written, group=f"words-{site}")
        return {found["word"]: found["count"] for one in counted for found in [json.loads(one.value or b"")]}

    def rows(self, tables: str) -> list[Any]:
        stored = table(self.spark, self.directory / tables, "stored")
        return sorted(stored.select(*FIELDS, "topic", "partition", "offset").collect())

    def command(self, site: str, plate: str) -> None:
        value = json.dumps({"command": "watch", "plate": plate}).encode()
        librdkafka_produce(self.sites.bootstrap(site), CONTROL[site], [Record(value=value)])

    def alerts(self) -> list[str]:
        found = table(self.spark, self.directory / "tables", "alerts").select("plate").collect()
        return sorted(row.plate for row in found)


def await_complete(sites: EmbeddedSites, direction: str = "a-b") -> None:
    """Until the standby has what was produced before now."""
    done = sites.command("links", "complete", direction, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr


def report_of(state: Path) -> AuditReport:
    settled = {DATA: round(time.time() * 1000) + 3_600_000}
    return audited(
        state, reference="a", settled_until_ms=settled, alarm_windows=1, delay_alarm_ms=0, lateness_ms=60_000
    )


def test_an_audit_counts_what_the_standby_has(spark: SparkSession, sites: EmbeddedSites, tmp_path: Path) -> None:
    jobs = Pipelines(spark, sites, tmp_path)
    asyncio.run(create_topic(sites, 2, name=DATA))
    request = AuditRequest(
        sites={site: sites.bootstrap(site) for site in "ab"},
        state=tmp_path / "audit",
        topics=DATA,
        options={site: {"antipode.site": site} for site in "ab"},
    )
    jobs.produce("a", 0)
    await_complete(sites)
    with sites.cut_off():
        jobs.produce("a", 20)
        Audit(spark, request).run_until_end()
    assert {one.tier: one.records for one in report_of(tmp_path / "audit").totals} == {"a": 40, "b": 20}
    assert report_of(tmp_path / "audit").judged.is_alarm
    await_complete(sites)
    Audit(spark, request).run_until_end()
    assert report_of(tmp_path / "audit").judged.gaps == ()
    done = sites.command("audit", "report", "a-b", "--state", str(tmp_path / "audit"), "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["tier"]: one["records"] for one in json.loads(done.stdout)["totals"]} == {"a": 40, "b": 40}


def test_jobs_go_on_at_the_other_site_after_a_planned_move(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path
) -> None:
    jobs = Pipelines(spark, sites, tmp_path)
    for name in ("road-dead-letter", "road-alerts", "lines", "words"):
        asyncio.run(create_topic(sites, name=name))
    for site, name in CONTROL.items():
        asyncio.run(create_topic(sites, site=site, name=name))
    at_a, at_b = (Streams(spark, sites.bootstrap(site)) for site in "ab")
    source = at_a.create(partitions=2)
    targets = {reader: at_a.create() for reader in READERS}
    at_a.fill(source, 0, 60, partitions=2)
    for reader, target in targets.items():
        at_a.carry(source, target, tmp_path / reader, reader=reader)
    jobs.command("a", "A000061")
    jobs.ingest("a", "tables", "checkpoint")
    assert jobs.count_words("a", b"north road", written=2) == {"north": 1, "road": 1}
    done = sites.command("switchover", "a-b", "--to", "b")
    assert done.returncode == 0, done.stdout + done.stderr
    # Both queries ended before Spark noted their last batch: it is run again, at b.
    for reader in targets:
        newest = newest_file(tmp_path / reader / "commits")
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    at_b.fill(source, 60, 80, partitions=2)
    for reader, target in targets.items():
        at_b.carry(source, target, tmp_path / reader, reader=reader)
        assert at_b.values(target) == list(range(80)), reader
    assert jobs.count_words("b", b"north", written=3) == {"north": 2, "road": 1}
    jobs.command("b", "A000062")
    jobs.produce("b", 60)
    jobs.ingest("b", "tables", "checkpoint")
    jobs.ingest("b", "rebuilt", "another-checkpoint")
    rows = jobs.rows("tables")
    assert len(rows) == len({row.plate for row in rows}) == 57
    assert jobs.rows("rebuilt") == rows
    assert "A000061" not in jobs.alerts()


def test_a_query_names_what_it_has_read_and_the_new_active_site_does_not_have(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path
) -> None:
    """Site b is active, and is lost."""
    at_a, at_b = (Streams(spark, sites.bootstrap(site)) for site in "ab")
    source = at_b.create()
    at_b.fill(source, 0, 100, partitions=1)
    await_complete(sites)
    sites.network.cut(sites.network.selected(), is_silent=False)
    at_b.fill(source, 1000, 1050, partitions=1)
    at_b.store(source, tmp_path / "files", tmp_path / "checkpoint")
    sites.broker("b").kill()
    done = sites.command("failover", "a-b", "--to", "a", "--old-site-is-down", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    # More records than were lost: offsets alone would not show it.
    eventually_sync(lambda: not at_a.fill(source, 2000, 2080, partitions=1) or True, 60_000)
    expected = (
        rf"{source}-0: the query has read up to offset 150 under leader epoch \d+, and this log has another history "
        "from offset 100 on: offsets 100 to 149 as the query read them are lost"
    )
    with pytest.raises(PySparkException, match=expected):
        at_a.store(source, tmp_path / "files", tmp_path / "checkpoint")
    at_a.store(source, tmp_path / "files", tmp_path / "checkpoint", failOnDataLoss="false")
    values = sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "files")).collect())
    assert values == [*range(100), *range(1000, 1050), *range(2000, 2080)]
    kept = json.loads(newest_file(tmp_path / "checkpoint" / "offsets").read_text().splitlines()[-1])
    assert kept[source] == {"0": 180}
    assert kept[f"{source} (leader epochs)"]["0"] > 0
