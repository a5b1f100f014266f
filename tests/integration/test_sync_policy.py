"""The policy of a running sync link between two real sites: changed by an operator, suspended by a
failover, restored by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from dr.failover.execution import failover
from dr.links.alteration import alter_link
from dr.sites.core.sync_policies import is_suspended
from dr.sites.site_client import LinkChanges
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.pairs.interrupted_runs import RunEnded, end_run_at
from tests.support.processes.processes import Processes
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient
from wire.rules.links import SyncPolicy

pytestmark = pytest.mark.integration

KEY = ("flights", 0)
FOR_EVER_MS = 3_600_000
"""A timeout that no test waits for: a request that continues did not wait for it."""
SOON_MS = 300
PATIENCE_MS = 700
BOUND_MS = 3_000
DEGRADE_SOON = LinkChanges(sync=SyncPolicy.DEGRADE, sync_timeout_ms=SOON_MS)


@pytest.fixture
async def sites(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect)
    await pair.link(sync=SyncPolicy.BLOCK, sync_timeout_ms=FOR_EVER_MS)
    await pair.create_topic(KEY[0])
    await eventually(lambda: is_led(pair))
    yield pair
    await pair.channels.close()


async def is_led(sites: LinkedSites) -> bool:
    """True if the active site's broker accepts records of the topic, even if they must wait."""
    reply = await sites.describe("a")
    return [item.is_writable for item in reply.partitions] == [True]


async def produce(bootstrap: str, *, timeout_ms: int = 60_000) -> ErrorCode:
    """One record with acks=all; returns the producer's result."""
    async with KafkaClient(bootstrap, retry_budget_ms=0 if timeout_ms == PATIENCE_MS else 30_000) as client:
        try:
            await client.produce(
                *KEY, batch([(None, b"value")], timestamp_ms=SystemClock().now_ms()), timeout_ms=timeout_ms
            )
        except BrokerError as error:
            return error.code
        return ErrorCode.none


async def policies(sites: LinkedSites, *names: str) -> list[tuple[str, str]]:
    """The policy in each site's record, and the one that is to come back."""
    records = [(await sites.describe(name)).record for name in names]
    return [(record.sync_policy, record.sync_policy_to_restore) for record in records]


async def is_mirrored(sites: LinkedSites, end: int) -> bool:
    return (await sites.ends("a")).get(KEY) == (await sites.ends("b")).get(KEY) == end


async def has_caught_up(sites: LinkedSites) -> bool:
    """Nothing is acknowledged that the standby may lack, and something was."""
    return [item.high_watermark for item in (await sites.describe("a")).partitions] == [1]


async def test_producers_that_wait_for_a_lost_standby_go_on_when_the_operator_says_so(sites: LinkedSites) -> None:
    clients = [sites.client("a"), sites.client("b")]
    assert await produce(sites.a.bootstrap, timeout_ms=PATIENCE_MS) is ErrorCode.request_timed_out
    await asyncio.to_thread(sites.b.process.kill)
    planned = await alter_link(LINK, clients, DEGRADE_SOON, is_dry_run=True)
    assert planned.record.sync_policy == "degrade"
    assert await policies(sites, "a") == [("block", "")]
    altered = await alter_link(LINK, clients, DEGRADE_SOON)
    assert (altered.record.sync_policy, altered.record.revision) == ("degrade", 1)
    assert "reads the change from a when it is back" in altered.problem
    assert await produce(sites.a.bootstrap) is ErrorCode.none
    again = await alter_link(LINK, clients, LinkChanges(sync=SyncPolicy.DEGRADE))
    assert again.record == altered.record
    await asyncio.to_thread(sites.b.restart)

    async def is_told() -> bool:
        return await policies(sites, "b") == [("degrade", "")]

    await eventually(is_told)


async def test_a_bounded_link_acknowledges_alone_until_the_standby_is_too_far_behind(sites: LinkedSites) -> None:
    mirror = sites.start_mirror()
    bounded = LinkChanges(sync=SyncPolicy.BOUND, sync_bound_ms=BOUND_MS)
    await alter_link(LINK, [sites.client("a"), sites.client("b")], bounded)
    assert await produce(sites.a.bootstrap) is ErrorCode.none
    await eventually(lambda: is_mirrored(sites, 1))
    await asyncio.to_thread(mirror.pause)
    assert await produce(sites.a.bootstrap) is ErrorCode.none  # without the standby

    async def is_held() -> bool:
        return await produce(sites.a.bootstrap, timeout_ms=PATIENCE_MS) is ErrorCode.request_timed_out

    await eventually(is_held)
    await asyncio.to_thread(mirror.resume)
    assert await produce(sites.a.bootstrap) is ErrorCode.none


async def test_a_change_whose_operator_dies_after_the_active_site_has_it_reaches_the_other_one(
    sites: LinkedSites,
) -> None:
    active, passive = sites.client("a"), sites.client("b")
    with pytest.raises(OperationalFailure, match="can be changed only at its active site, which is a, not b"):
        await passive.alter_link(LINK, LinkChanges(sync=SyncPolicy.NONE), is_dry_run=False, timeout_ms=60_000)
    await active.alter_link(LINK, LinkChanges(sync=SyncPolicy.NONE), is_dry_run=False, timeout_ms=60_000)
    assert await produce(sites.a.bootstrap) is ErrorCode.none

    async def is_told() -> bool:
        return await policies(sites, "a", "b") == [("", ""), ("", "")]

    await eventually(is_told)
    with pytest.raises(OperationalFailure, match="no agent address is known of a"):
        await alter_link(LINK, [passive], LinkChanges(sync=SyncPolicy.BLOCK))
    altered = await alter_link(LINK, [active, passive], LinkChanges(sync=SyncPolicy.BLOCK))
    assert altered.problem == ""
    assert await produce(sites.a.bootstrap, timeout_ms=PATIENCE_MS) is ErrorCode.request_timed_out


async def test_a_site_promoted_over_a_lost_one_takes_writes_at_once_and_waits_again_when_that_is_back(
    sites: LinkedSites,
) -> None:
    """A run of the failover stops before each step. `block` waits without end, and so does its
    timeout: the test waits for neither.
    """
    mirror = sites.start_mirror()
    assert await produce(sites.a.bootstrap) is ErrorCode.none
    await eventually(lambda: has_caught_up(sites))
    await asyncio.to_thread(sites.a.process.kill)
    mirror.kill()
    planned = await failover(LINK, to_site="b", agents=sites.agents, is_dry_run=True)
    assert "acks=all does not wait for a until it has everything again; then block" in planned.sync
    assert await policies(sites, "b") == [("block", "")]
    for stop_at in ("drain", "raise", "account", "promote"):
        with contextlib.suppress(RunEnded):
            await failover(LINK, to_site="b", agents=sites.agents, progress=end_run_at(stop_at))
    report = await failover(LINK, to_site="b", agents=sites.agents)
    assert report.is_done, report
    assert report.sync == planned.sync
    assert await policies(sites, "b") == [("degrade", "block")]
    assert await produce(sites.b.bootstrap) is ErrorCode.none

    await asyncio.to_thread(sites.a.restart)
    back = sites.start_mirror(into="a")

    async def is_restored() -> bool:
        return await policies(sites, "a", "b") == [("block", "")] * 2

    await eventually(is_restored)
    await eventually(lambda: is_mirrored(sites, 2))
    assert await produce(sites.b.bootstrap) is ErrorCode.none
    back.kill()
    assert await produce(sites.b.bootstrap, timeout_ms=PATIENCE_MS) is ErrorCode.request_timed_out
    assert not is_suspended((await sites.describe("b")).record)
