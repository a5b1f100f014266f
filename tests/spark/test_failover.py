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
from tests.spark.streams import Streams, newest_file
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import caught_up

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
