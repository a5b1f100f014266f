"""A site that is lost between two markers of a commit: the standby has a part of the transaction,
the account names it, and `--consistent` promotes to a point without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from tests.integration.test_failback import command
from tests.support.clients.transactional_clients import WITHIN_S, read_values, transactional_producer
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.processes.processes import Processes
from wire.control.mirror_pb2 import PauseMirrorRequest

pytestmark = pytest.mark.integration

FLIGHTS, SEATS = ("flights", 0), ("seats", 0)


@pytest.fixture
async def torn(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    """Site a is lost. Of its second transaction site b has all records, and the marker of one
    partition; of the third one the records and the marker of that partition alone.
    """
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect)
    await pair.link()
    for topic, _ in (FLIGHTS, SEATS):
        await pair.create_topic(topic)
    mirror = pair.start_mirror()

    async def is_level(*wanted: tuple[str, int]) -> bool:
        there, here = await pair.ends("a"), await pair.ends("b")
        return all(there.get(key, 0) > 0 and there[key] == here.get(key) for key in wanted)

    async def is_writable() -> bool:
        partitions = (await pair.describe("a")).partitions
        return len(partitions) == 2 and all(item.is_writable for item in partitions)

    await eventually(is_writable)
    producer = await asyncio.to_thread(transactional_producer, pair.a.bootstrap, "booking")

    def write(value: str) -> None:
        producer.begin_transaction()
        for topic, _ in (FLIGHTS, SEATS):
            producer.produce(topic, value)
        producer.flush(WITHIN_S)

    await asyncio.to_thread(write, "one")
    await asyncio.to_thread(producer.commit_transaction, WITHIN_S)
    await asyncio.to_thread(write, "two")
    await eventually(lambda: is_level(FLIGHTS, SEATS))
    await pair.channels.mirror_admin(pair.mirror_grpc).PauseMirror(PauseMirrorRequest(link=LINK, topics=["seats"]))
    before = await pair.ends("b")
    await asyncio.to_thread(producer.commit_transaction, WITHIN_S)
    await asyncio.to_thread(write, "three")
    await asyncio.to_thread(producer.commit_transaction, WITHIN_S)
    await eventually(lambda: is_level(FLIGHTS))
    ends = await pair.ends("b")
    assert (ends[FLIGHTS], ends[SEATS]) == (before[FLIGHTS] + 3, before[SEATS])
    mirror.kill()
    pair.a.process.kill()
    yield pair
    await pair.channels.close()


async def reads(bootstrap: str, topic: str, wanted: list[bytes]) -> bool:
    values = await asyncio.to_thread(read_values, bootstrap, topic, 1)
    return values[0] == wanted


async def test_a_torn_transaction_ends_the_same_way_everywhere_and_is_named(torn: LinkedSites) -> None:
    report = await failover(LINK, to_site="b", agents=torn.agents, policy=FailoverPolicy(settle_ms=200))
    assert report.is_done, report
    assert report.account is not None
    second, third = report.account.torn
    for one in (second, third):
        assert (one.transactional_id, one.kept, one.lacking) == ("booking", ("flights-0",), ("seats-0",))
    assert second.decided_at_ms < third.decided_at_ms
    await eventually(lambda: reads(torn.b.bootstrap, "flights", [b"one", b"two", b"three"]))
    await eventually(lambda: reads(torn.b.bootstrap, "seats", [b"one", b"two"]))


async def test_a_consistent_failover_keeps_nothing_of_a_torn_transaction(torn: LinkedSites) -> None:
    ends = await torn.ends("b")
    options = [f"--site={name}={agents[0]}" for name, agents in torn.agents.items()]
    asked = ("failover", LINK, "--to=b", "--consistent", "--old-site-is-down", *options)
    plan = await command(*asked, "--dry-run")
    assert "3 records behind 2 torn transactions would go to quarantine" in plan["reason"]
    report = await command(*asked)
    assert [one["lacking"] for one in report["account"]["torn"]] == [["seats-0"], ["seats-0"]]
    assert report["account"]["undone_transactions"] == 2
    kept = {(one["topic"], one["partition"]): one["kept_below"] for one in report["account"]["partitions"]}
    assert kept == {FLIGHTS: ends[FLIGHTS] - 3, SEATS: ends[SEATS]}
    (entry,) = await command("quarantine", "list", f"--bootstrap-server={torn.b.bootstrap}")
    assert (entry["topic"], entry["first_offset"], entry["end_offset"]) == ("flights", kept[FLIGHTS], ends[FLIGHTS])
    for topic, _ in (FLIGHTS, SEATS):
        await eventually(lambda topic=topic: reads(torn.b.bootstrap, topic, [b"one"]))
