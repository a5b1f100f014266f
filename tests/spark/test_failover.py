"""Structured Streaming over a failover of real sites. Promised: a query that ran at a is started
again at b from its checkpoint and goes on, with our source and with the Kafka connector; a planned
move loses nothing and writes nothing twice; after an unplanned one the query names what it has read
and b does not have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deploy import jar_sets
from runtime.process import OperationalFailure
from tests.spark.streams import Streams, newest_file
from tests.spark.test_pipelines import Jobs
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import caught_up
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import PartitionKey

pytestmark = [pytest.mark.integration, pytest.mark.timeout(480)]

OTHER_READER = ["kafka"] if jar_sets.SPARK_KAFKA.is_there else []


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    """Two sites with a link from a to b."""
    starter = SitesStarter(tmp_path)
    try:
        yield starter()
    finally:
        starter.end_all()


def mirrored(sites: EmbeddedSites) -> None:
    """Wait until b has all of a."""
    asyncio.run(caught_up(sites.bootstrap("a"), sites.bootstrap("b")))


@pytest.mark.java
def test_queries_go_on_at_the_other_site_after_a_planned_move(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path
) -> None:
    at_a, at_b = (Streams(spark, sites.bootstrap(site)) for site in "ab")
    source = at_a.create(partitions=3)
    targets = {reader: at_a.create() for reader in ("antipode", *OTHER_READER)}
    at_a.fill(source, 0, 120, partitions=3)
    for reader, target in targets.items():
        at_a.carry(source, target, tmp_path / reader, reader=reader)
    mirrored(sites)
    done = sites.command("switchover", "a-b", "--to", "b", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    sites.broker("a").kill()
    # Both queries ended before Spark noted their last batch: it is run again, at b.
    for reader in targets:
        newest = newest_file(tmp_path / reader / "commits")
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    at_b.fill(source, 120, 180, partitions=3)
    for reader, target in targets.items():
        at_b.carry(source, target, tmp_path / reader, reader=reader)
        assert at_b.values(target) == list(range(180)), reader


async def decision(bootstrap: str, group: str) -> dict[PartitionKey, CommittedOffset]:
    async with KafkaClient(bootstrap) as client:
        return await client.committed(group)


async def set_decision(bootstrap: str, group: str, offsets: dict[PartitionKey, CommittedOffset]) -> None:
    """Have the site hold this decision, as if no later one had crossed the link."""
    async with KafkaClient(bootstrap) as client:
        assert not any((await client.commit(group, offsets)).values())


@pytest.mark.parametrize("crossed", ["the decision before", "the decision without the note"])
def test_a_batch_whose_records_crossed_without_the_decision_is_written_once(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path, crossed: str
) -> None:
    at_a, at_b = (Streams(spark, sites.bootstrap(site)) for site in "ab")
    source, target, checkpoint = at_a.create(partitions=2), at_a.create(partitions=2), tmp_path / "checkpoint"
    query = f"query-{crossed.split()[-1]}"
    group = f"antipode-spark.{query}"
    at_a.fill(source, 0, 60, partitions=2)
    at_a.carry_as(query, source, target, checkpoint)
    before = asyncio.run(decision(at_a.bootstrap, group))
    at_a.fill(source, 60, 120, partitions=2)
    at_a.carry_as(query, source, target, checkpoint)
    last = asyncio.run(decision(at_a.bootstrap, group))
    mirrored(sites)
    sites.broker("a").kill()
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    if crossed == "the decision without the note":
        before = {
            place: CommittedOffset(one.offset, metadata=(one.metadata or "").replace('out":true', 'out":false'))
            for place, one in last.items()
        }
    assert before != last
    asyncio.run(set_decision(at_b.bootstrap, group, before))
    # The query ended before Spark noted its last batch.
    newest = newest_file(checkpoint / "commits")
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    at_b.fill(source, 120, 180, partitions=2)
    at_b.carry_as(query, source, target, checkpoint)
    assert at_b.values(target) == list(range(180))
    at_b.fill(source, 180, 200, partitions=2)
    at_b.carry_as(query, source, target, checkpoint)
    assert at_b.values(target) == list(range(200))


@pytest.mark.long
def test_a_query_names_what_it_has_read_and_the_other_site_does_not_have(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path
) -> None:
    at_a, at_b = (Streams(spark, sites.bootstrap(site)) for site in "ab")
    source = at_a.create()
    at_a.fill(source, 0, 100, partitions=1)
    mirrored(sites)
    sites.network.cut(sites.network.selected(), is_silent=False)
    at_a.fill(source, 1000, 1050, partitions=1)
    at_a.store(source, tmp_path / "files", tmp_path / "checkpoint")
    to_files = ("topic-to-files", "--topic", source, "--to", str(tmp_path / "ranges"))
    Jobs(spark, at_a.bootstrap).run(*to_files)
    sites.broker("a").kill()
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    # More records than were lost: offsets alone would not show it.
    eventually_sync(lambda: not at_b.fill(source, 2000, 2080, partitions=1) or True)
    expected = (
        f"{source}-0: the query has read up to offset 150 under leader epoch 0, and this log has another history "
        "from offset 100 on: offsets 100 to 149 as the query read them are lost"
    )
    with pytest.raises(PySparkException, match=expected):
        at_b.store(source, tmp_path / "files", tmp_path / "checkpoint")
    at_b.store(source, tmp_path / "files", tmp_path / "checkpoint", failOnDataLoss="false")
    values = sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "files")).collect())
    assert values == [*range(100), *range(1000, 1050), *range(2000, 2080)]
    kept = json.loads(newest_file(tmp_path / "checkpoint" / "offsets").read_text().splitlines()[-1])
    assert kept[source] == {"0": 180}
    assert kept[f"{source} (leader epochs)"]["0"] > 0
    # A run of topic-to-files notices the same records.
    jobs = Jobs(spark, at_b.bootstrap)
    with pytest.raises(
        OperationalFailure, match=f"{source}-0 has another history from offset 100 on: offsets 100 to 149"
    ):
        jobs.run(*to_files)
    assert "offsets 100 to 149 of the files are not in it" in jobs.run(*to_files, "--skip-lost")
    stored = spark.read.parquet(str(tmp_path / "ranges")).select("value").collect()
    assert sorted(int(row.value) for row in stored) == values
    assert jobs.run(*to_files) == f"{source} has nothing new"
