"""Spark's Kafka connector. Offsets are the query's own, kept in its checkpoint, so it joins no
group and administers nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import jar_sets
from deploy.class_archives import spark_environment
from tests.compatibility.cells import Check, Column, NotOffered, Row
from tests.compatibility.checks import OffersNothing, Read, check_consume, check_produce, values
from tests.compatibility.commands import lines, reads, run
from tests.compatibility.environments import SLOW
from tests.compatibility.python_clients import Librdkafka
from tests.compatibility.site import Site

REPOSITORY = Path(__file__).parents[2]


class Spark(OffersNothing):
    """Batch queries, each in a process of its own."""

    name = "Spark's Kafka connector"

    def version(self) -> str:
        """Of the session and of the connector in it."""
        return f"Spark {importlib.metadata.version('pyspark')}, connector {jar_sets.SPARK_KAFKA.version}"

    def missing(self) -> str:
        """Whether the connector has been fetched."""
        connector = jar_sets.SPARK_KAFKA
        if connector.is_there:
            return ""
        return f"the connector {connector.version} is not in the parts folder: `make setup-java` fetches it by Maven"

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        self._query("write", servers, topic, given=lines(values))

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        return reads(self._query("read", servers, topic, isolation))

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        raise NotImplementedError(group)

    def _query(self, *arguments: str, given: bytes = b"") -> bytes:
        jars = ",".join(str(jar) for jar in jar_sets.SPARK_KAFKA.jars())
        environment = {
            **os.environ,
            **spark_environment(),
            "PYTHONPATH": str(REPOSITORY),
            "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell",
        }
        command = [sys.executable, "-W", "ignore", "-m", "tests.compatibility.spark_queries", *arguments]
        return run(command, given, environment=environment, directory=REPOSITORY)


def check_transactions(client: Spark, site: Site) -> str:
    """A query that asks for committed records alone gets them whole; the sink has no
    transactions.
    """
    topic = site.create_topic("transacted")
    batches = [(values(0, 20), True), (values(20, 40), False), (values(40, 60), True)]
    Librdkafka().transact(site.bootstrap_servers, topic, site.fresh("transactional"), batches)
    found = [read.value for read in client.consume(site.bootstrap_servers, topic, 40, "read_committed")]
    assert found == values(0, 20) + values(40, 60), f"{len(found)} records"
    return "reads what is committed; its sink has no transactions"


def rows() -> tuple[Row, ...]:
    """Its one row."""
    client = Spark()
    cells: dict[Column, Check | NotOffered] = {
        Column.PRODUCE: lambda site: check_produce(client, site),
        Column.CONSUME: lambda site: check_consume(client, site),
        Column.GROUPS: NotOffered("a query keeps its offsets in its checkpoint and assigns itself partitions"),
        Column.TRANSACTIONS: lambda site: check_transactions(client, site),
        Column.ADMIN: NotOffered("it only looks up offsets"),
    }
    return (Row(name=client.name, version=client.version, missing=client.missing, cells=cells, environments=SLOW),)
