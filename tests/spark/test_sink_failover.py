"""The sink of streaming queries over an unplanned failover of real sites, task by task and without
a Spark session. Promised: records that crossed the link are written no second time, whatever
crossed of the decision about their batch, also for more than a hundred tasks; a query that cannot
know it stops, and writes by option.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_jobs.connector import sink
from spark_jobs.connector.core.options import Use, parse_write
from spark_jobs.connector.core.sink_decisions import BatchNotWhole
from spark_jobs.connector.sink import StreamSink
from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic
from tests.support.pairs.site_comparison import caught_up
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.client.security import SECURITY_KEYS
from wire.protocol.ids import PartitionKey

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Offsets = dict[PartitionKey, CommittedOffset]
SCHEMA = StructType([StructField("value", BinaryType())])
MANY = 120


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    """Two sites with a link from a to b."""
    starter = SitesStarter(tmp_path_factory.mktemp("sink"))
    try:
        yield starter()
    finally:
        starter.end_all()


@dataclass
class Query:
    """A query whose batches have so many tasks, with a record each; the first batch may have fewer,
    and be written under another name.
    """

    name: str
    tasks: int = 2
    first_tasks: int = 2
    first_name: str = ""

    def groups(self, batch: int = 1) -> list[str]:
        """The groups of a decision."""
        group = f"antipode-spark.{self._name(batch)}"
        return [group] + [f"{group}.decision-1"] * (self.tasks > 100)

    def run(self, bootstrap: str, batch: int, **options: str) -> None:
        """Write and commit a batch as Spark does, task by task."""
        given = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": self.name,
            "antipode.query": self._name(batch),
            **options,
        }
        written = StreamSink(parse_write(given, Use.WRITE_STREAM, SECURITY_KEYS), SCHEMA)
        with pytest.MonkeyPatch.context() as patched:
            messages = []
            for task in range(self._tasks(batch)):
                patched.setattr(sink, "_task", lambda task=task: task)
                patched.setattr(sink, "_property", lambda _: str(batch))
                rows = pa.record_batch([pa.array([self.value(batch, task)], pa.binary())], ["value"])
                messages.append(written.write(iter([rows])))
            written.commit([*messages], batch)

    def value(self, batch: int, task: int) -> bytes:
        return b"%d of %d" % (task, batch)

    def expected(self, batches: int) -> list[bytes]:
        return sorted(self.value(batch, task) for batch in range(batches) for task in range(self._tasks(batch)))

    def _tasks(self, batch: int) -> int:
        return self.tasks if batch else self.first_tasks

    def _name(self, batch: int) -> str:
        return self.first_name if self.first_name and not batch else self.name

    def values(self, bootstrap: str, count: int) -> list[bytes]:
        """The values of committed records, sorted; at least `count`."""
        settings = {"isolation.level": "read_committed"}
        received = librdkafka_consume(bootstrap, self.name, count, group=f"readers of {self.name}", settings=settings)
        return sorted(one.value or b"" for one in received)


def decision(bootstrap: str, group: str) -> Offsets:
    async def ask() -> Offsets:
        async with KafkaClient(bootstrap) as client:
            return await client.committed(group)

    return asyncio.run(ask())


def set_decision(bootstrap: str, group: str, offsets: Offsets) -> None:
    """Have the site hold this decision, as if no later one had crossed the link."""

    async def ask() -> None:
        async with KafkaClient(bootstrap) as client:
            assert not any((await client.commit(group, offsets)).values())

    asyncio.run(ask())


def changed(offsets: Offsets, old: str, new: str) -> Offsets:
    """The decision with other text."""
    found = {
        key: CommittedOffset(one.offset, metadata=re.sub(old, new, one.metadata or "")) for key, one in offsets.items()
    }
    assert found != offsets
    return found


def test_records_that_crossed_are_written_once_whatever_crossed_of_their_decision(sites: EmbeddedSites) -> None:
    at_a, at_b = (sites.bootstrap(site) for site in "ab")
    queries = {name: Query(name) for name in ("before", "unfinished", "none", "lost-list")}
    queries["first-of-a-task"] = Query("first-of-a-task", first_tasks=1)
    # Tasks get other producers after the last epoch of the former ones: here by another name.
    queries["other-producers"] = Query("other-producers", first_name="former-producers")
    queries["many"] = Query("many", MANY, MANY)
    decided: dict[str, list[list[Offsets]]] = {}
    for name, query in queries.items():
        asyncio.run(create_topic(sites, name=name))
        for batch in range(1 if name == "none" else 2):
            query.run(at_a, batch)
            decided.setdefault(name, []).append([decision(at_a, group) for group in query.groups(batch)])
    asyncio.run(caught_up(at_a, at_b))
    sites.broker("a").kill()
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    unfinished = (r'out":true', 'out":false')
    crossed = {name: decided[name][0] for name in ("before", "first-of-a-task", "other-producers")} | {
        "unfinished": [changed(decided["unfinished"][1][0], *unfinished)],
        "none": [changed(decided["none"][0][0], ".+", "")],
        "lost-list": [changed(decided["lost-list"][0][0], ".+", "")],
        # Decisions about more than a hundred tasks take several groups, which cross one by one.
        "many": [changed(decided["many"][1][0], *unfinished), decided["many"][0][1]],
    }
    for name, query in queries.items():
        for group, offsets in zip(query.groups(), crossed[name], strict=True):
            set_decision(at_b, group, offsets)
    lost = queries.pop("lost-list")
    for name, query in queries.items():
        last = 0 if name == "none" else 1
        query.run(at_b, last)
        # What was written twice is in the topic before the next batch.
        query.run(at_b, last + 1)
        wanted = query.expected(last + 2)
        assert query.values(at_b, len(wanted)) == wanted, name
    with pytest.raises(BatchNotWhole, match=r"batch 1 of query lost-list.* lacks the list of the batch before"):
        lost.run(at_b, 1)
    lost.run(at_b, 1, **{"antipode.after.failover": "write"})
    again = [lost.value(1, task) for task in range(lost.tasks)]
    assert lost.values(at_b, 6) == sorted([*lost.expected(2), *again])
