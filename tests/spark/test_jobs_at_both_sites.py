"""Jobs over two linked sites. Promised: an audit counts the standby's own copies; after a planned
move the ingest goes on at the other site from its checkpoint; a table that is built there from the
beginning has the rows of the first one; commands of the site that was left are not carried out.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.auditing.audit_run import Audit, AuditRequest
from spark_jobs.auditing.report import AuditReport, audited
from spark_jobs.pipelines.catalogue import pipeline
from spark_jobs.pipelines.road_report import table
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

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

    def command(self, site: str, plate: str) -> None:
        value = json.dumps({"command": "watch", "plate": plate}).encode()
        librdkafka_produce(self.sites.bootstrap(site), CONTROL[site], [Record(value=value)])

    def alerts(self) -> list[str]:
        found = table(self.spark, self.directory / "tables", "alerts").select("plate").collect()
        return sorted(row.plate for row in found)


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
    road.command("a", "A000061")
    road.ingest("a", "tables", "checkpoint")
    await_complete(sites)
    with sites.cut_off():
        road.produce("a", 60)
        request = AuditRequest(
            sites={site: sites.bootstrap(site) for site in "ab"},
            state=tmp_path / "audit",
            topics=DATA,
            options={site: {"antipode.site": site} for site in "ab"},
        )
        Audit(spark, request).run_until_end()
    records = {one.tier: one.records for one in report_of(tmp_path / "audit").totals}
    assert records == {"a": 120, "b": 60}
    assert report_of(tmp_path / "audit").judged.is_alarm
    await_complete(sites)
    Audit(spark, request).run_until_end()
    assert report_of(tmp_path / "audit").judged.gaps == ()
    done = sites.command("switchover", "a-b", "--to", "b")
    assert done.returncode == 0, done.stdout + done.stderr
    road.command("b", "A000062")
    road.produce("b", 120)
    road.ingest("b", "tables", "checkpoint")
    road.ingest("b", "rebuilt", "another-checkpoint")
    rows = road.rows("tables")
    assert len(rows) == len({row.plate for row in rows}) == 171
    assert road.rows("rebuilt") == rows
    assert "A000061" not in road.alerts()


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
