"""`failover --to-time`: the records of a faulty producer are in quarantine at the promoted site,
groups that have read them go back, and the old site follows.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner

from runtime.clock import SystemClock
from runtime.times import iso_time
from tests.integration.test_failback import command
from tests.integration.test_failing_over_again import PATIENT_MS, have_both, is_mirroring, linked, produce
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.pairs.site_comparison import check_prefix
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

pytestmark = pytest.mark.integration

GOOD_MS = SystemClock().now_ms() - 1_000_000
"""Within the retention of a week: a broker deletes older records half a minute after its start."""
SINCE_MS, FAULTY_MS = GOOD_MS + 200_000, GOOD_MS + 500_000
GOOD, FAULTY = 40, 25
GROUP = "board"


async def write(bootstrap: str, count: int, at_ms: int) -> None:
    """Write to both partitions in turn, each batch to one partition."""
    for partition in (0, 1):
        records = [
            Record(value=f"{at_ms}-{number}".encode(), partition=partition, timestamp_ms=at_ms + number)
            for number in range(partition, count, 2)
        ]
        await asyncio.to_thread(librdkafka_produce, bootstrap, "flights", records, settings={"acks": "all"})


async def committed(bootstrap: str) -> dict[Any, int]:
    async with KafkaClient(bootstrap, site_local=True) as client:
        return {key: found.offset for key, found in (await client.committed(GROUP)).items()}


async def test_records_after_the_time_go_to_quarantine_and_groups_go_back(sites: LinkedSites) -> None:
    mirrors = await linked(sites)
    await write(sites.a.bootstrap, GOOD, GOOD_MS)
    await eventually(lambda: have_both(sites, GOOD), PATIENT_MS)
    kept = await sites.ends("b")
    await write(sites.a.bootstrap, FAULTY, FAULTY_MS)
    ends = await sites.ends("a")
    async with KafkaClient(sites.a.bootstrap, site_local=True) as client:
        offsets = {("flights", 0): CommittedOffset(ends["flights", 0]), ("flights", 1): CommittedOffset(3)}
        assert not any((await client.commit(GROUP, offsets)).values())
    await eventually(lambda: have_both(sites, GOOD + FAULTY), PATIENT_MS)

    site_options = [f"--site={name}={agents[0]}" for name, agents in sites.agents.items()]
    options = ("failover", LINK, "--to=b", *site_options, f"--to-time={iso_time(SINCE_MS)}")
    plan = await command(*options, "--dry-run")
    assert f"{FAULTY} records of" in plan["reason"]
    assert await sites.ends("b") == ends
    report = await command(*options)
    assert [step["step"] for step in report["steps"] if step["step"] in ("raise", "truncate", "account")] == [
        "raise",
        "truncate",
        "account",
    ]
    assert {(one["topic"], one["partition"]): one["kept_below"] for one in report["account"]["partitions"]} == kept
    assert sum(one["known_lost_records"] for one in report["account"]["partitions"]) == FAULTY
    assert await sites.ends("b") == kept
    assert await committed(sites.b.bootstrap) == {("flights", 0): kept["flights", 0], ("flights", 1): 3}
    found = await command("quarantine", "list", f"--bootstrap-server={sites.b.bootstrap}")
    assert {(one["topic"], one["partition"]): (one["first_offset"], one["end_offset"]) for one in found} == {
        key: (kept[key], ends[key]) for key in kept
    }
    assert {one["kind"] for one in found} == {"undone"}

    await produce(sites.b.bootstrap, 10)
    asked = ("links", "reinstate", LINK, f"--mirror={mirrors['a']}", "--yes")

    async def is_reinstated() -> bool:
        """The copies of site a have lost what the failover removed."""
        await asyncio.to_thread(CliRunner().invoke, app, asked)
        return await have_both(sites, GOOD + 10)

    await eventually(is_reinstated, PATIENT_MS)
    await eventually(lambda: is_mirroring(mirrors["a"]), PATIENT_MS)
    assert sum(end for end, _ in (await check_prefix(sites.b.bootstrap, sites.a.bootstrap)).values()) == GOOD + 10
