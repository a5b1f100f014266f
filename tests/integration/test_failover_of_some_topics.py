"""F11: of two links between the same sites one is failed over and the other one goes on mirroring;
a topic that can be mirrored no further (GAP) does not hold up the others of its link.
"""

from __future__ import annotations

import asyncio

import pytest

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from tests.support.clients.kafka_clients import Record, delete_records, librdkafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LinkedSites
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.processes.processes import RunningProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ORDERS, REST = "a-b-orders", "a-b-rest"
RECORDS = 10
PATIENT_MS = 120_000


async def produce(bootstrap: str, topic: str) -> None:
    records = [Record(value=f"v{number}".encode()) for number in range(RECORDS)]
    await asyncio.to_thread(librdkafka_produce, bootstrap, topic, records, settings={"acks": "all"})


async def read(bootstrap: str, topic: str, count: int, *, group: str) -> None:
    """Read as a group, whose offsets are committed."""
    found = await asyncio.to_thread(librdkafka_consume, bootstrap, topic, count, group=group)
    assert len(found) == count


async def ends(sites: LinkedSites, site: str, link: str) -> dict[str, int]:
    reply = await sites.client(site).describe_link(link)
    return {item.topic: item.log_end_offset for item in reply.partitions}


async def is_active(sites: LinkedSites, site: str, link: str) -> bool:
    reply = await sites.client(site).describe_link(link)
    return bool(reply.partitions) and all(item.is_writable for item in reply.partitions)


async def equal(sites: LinkedSites, link: str, wanted: dict[str, int]) -> None:
    async def are_equal() -> bool:
        return await ends(sites, "a", link) == await ends(sites, "b", link) == wanted

    await eventually(are_equal, PATIENT_MS)


async def test_f11_a_failover_of_some_topics_leaves_the_others_mirroring_and_needs_no_topic_without_a_gap(
    sites: LinkedSites,
) -> None:
    await sites.link(name=ORDERS, topics=("orders", "trimmed"), groups=("orders-.*",))
    await sites.link(name=REST, topics=("rest",), groups=("rest-.*",))
    for topic in ("orders", "trimmed", "rest"):
        await sites.create_topic(topic)
    mirror = sites.start_mirror(link=ORDERS)
    sites.start_mirror(link=REST)
    for link in (ORDERS, REST):
        await eventually(lambda link=link: is_active(sites, "a", link), PATIENT_MS)
    for topic in ("orders", "trimmed", "rest"):
        await produce(sites.a.bootstrap, topic)
    await equal(sites, ORDERS, {"orders": RECORDS, "trimmed": RECORDS})

    mirror.kill()
    for topic in ("orders", "trimmed"):
        await produce(sites.a.bootstrap, topic)
    await asyncio.to_thread(delete_records, sites.a.bootstrap, "trimmed", RECORDS + 5)
    mirror.start()
    await eventually(lambda: _is_trimmed(mirror), PATIENT_MS)

    policy = FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=2_000, unavailability_max_ms=30_000)
    report = await failover(ORDERS, to_site="b", agents=sites.agents, policy=policy)
    assert report.is_done, report
    assert report.account is not None
    lost = {loss.topic: loss.known_lost_records for loss in report.account.partitions}
    assert lost == {"orders": 0, "trimmed": 5}

    await eventually(lambda: is_active(sites, "b", ORDERS), PATIENT_MS)
    assert not await is_active(sites, "a", ORDERS)
    await produce(sites.b.bootstrap, "orders")
    await read(sites.b.bootstrap, "orders", 3 * RECORDS, group="orders-billing")

    assert await is_active(sites, "a", REST)
    await produce(sites.a.bootstrap, "rest")
    await equal(sites, REST, {"rest": 2 * RECORDS})
    await read(sites.a.bootstrap, "rest", 2 * RECORDS, group="rest-billing")


async def _is_trimmed(mirror: RunningProcess) -> bool:
    reply = await describe_mirror(mirror)
    found = {one.topic: (one.state, one.lag_records) for one in reply.partitions}
    return found.get("trimmed", ("", 0))[0] == "GAP" and found.get("orders") == ("MIRRORING", 0)
