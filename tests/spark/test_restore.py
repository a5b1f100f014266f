"""An archive restored into a site that has nothing. Promised: the same ids, offsets, leader epochs
and bytes; afterwards clients write behind them; a topic that is not empty is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli.spark.restore import restored
from runtime.process import OperationalFailure
from spark_jobs.archiving.archive_run import ArchiveRequest, ArchiveRun
from spark_jobs.archiving.restore import planned
from spark_jobs.archiving.site_topics import site_topics
from spark_jobs.logs.survey import topic_filter
from spark_jobs.reconciling.core.verdict import Verdict
from spark_jobs.reconciling.request import Request
from spark_jobs.reconciling.run import reconcile
from tests.spark.test_archive import batch
from tests.support.clients.kafka_clients import delete_records
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from wire.client.raw_client import KafkaClient, NewTopic, call_client

pytestmark = pytest.mark.timeout(360)

TOPIC = "orders"


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    """Two sites that know nothing of each other."""
    starter = SitesStarter(tmp_path)
    try:
        yield starter("--no-link", "--no-proxy")
    finally:
        starter.end_all()


def produce(bootstrap: str, partition: int, *batches: bytes) -> None:
    async def run(client: KafkaClient) -> None:
        for records in batches:
            await client.produce(TOPIC, partition, records)

    call_client(bootstrap, run)


def create(bootstrap: str) -> None:
    async def run(client: KafkaClient) -> None:
        wanted = NewTopic(name=TOPIC, partition_count=2, replication_factor=1)
        (outcome,) = await client.create_topics([wanted])
        assert not outcome.error_code, outcome

    call_client(bootstrap, run)


def test_a_restored_site_is_equal_takes_writes_and_is_not_restored_twice(
    spark: SparkSession, sites: EmbeddedSites, tmp_path: Path
) -> None:
    a, b = sites.bootstrap("a"), sites.bootstrap("b")
    create(a)
    produce(a, 0, batch(b"1", b"2", b"3"), batch(b"4"))
    produce(a, 1, batch(b"5"), batch(b"6", b"7"))
    delete_records(a, TOPIC, 1)
    address = (tmp_path / "archive").as_uri()
    assert not ArchiveRun(ArchiveRequest(bootstrap=a, to=address)).run(lambda: spark, cores=2).problems
    plan = planned(address, b, ".*")
    report = restored(spark, plan, archive=address, bootstrap=b, site="b", known=sites.environment.agents())
    assert (report.partitions, report.offsets) == (2, 6)
    request = Request(source_site="a", target_site="b", source_bootstrap=a, target_bootstrap=b, settle_timeout_ms=0)
    compared = reconcile(lambda: spark, request)
    assert (compared.verdict, compared.explanations) == (Verdict.EQUAL, ())
    assert [(one.target.start_offset, one.target.end_offset) for one in compared.partitions] == [(1, 4), (0, 3)]
    wanted = topic_filter([TOPIC], [])
    assert site_topics(a, wanted).topics == site_topics(b, wanted).topics
    produce(b, 0, batch(b"8"))
    with pytest.raises(OperationalFailure, match="orders is not empty"):
        planned(address, b, ".*")
