"""Links with a lease: an arbiter in a third place decides which site writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from dr.drill.faults import ARBITER_KIND, Toxic
from dr.sites.channels import Channels
from dr.sites.core.loss import LossAccount
from dr.sites.site_client import SiteClient, SiteRefused
from runtime.zookeeper.client import ZooKeeper
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_writer import Answer, SiteWriter
from tests.support.eventually import eventually
from tests.support.pairs.site_comparison import batches, site_client
from wire.batches.records import decode_batch
from wire.control.site_pb2 import RequestFailoverReply
from wire.znodes.arbiter_znodes import LINKS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

LEASE_MS = 2_000
NODE_A, NODE_B = 1, 1001


def writer(sites: EmbeddedSites, site: str) -> SiteWriter:
    node_id = NODE_A if site == "a" else NODE_B
    return SiteWriter(sites.bootstrap(site), node_id, TOPIC)


async def command(sites: EmbeddedSites, *arguments: str) -> Any:
    return await asyncio.to_thread(sites.command, *arguments)


async def link_at(sites: EmbeddedSites, site: str) -> dict[str, Any]:
    """The link as a site sees it."""
    done = await command(sites, "links", "list", "--output", "json")
    (found,) = [one for one in json.loads(done.stdout) if one["site"] == site]
    return dict(found)


async def lease_at(sites: EmbeddedSites, site: str) -> dict[str, Any]:
    return dict((await link_at(sites, site))["lease"])


async def has_permit_from(sites: EmbeddedSites, giver: str) -> bool:
    return bool((await lease_at(sites, "a"))["permit_from"] == giver)


async def has_complete_copy(sites: EmbeddedSites, standby: str) -> bool:
    """Whether the standby would fail over by itself if the active site were lost."""
    verdict = str((await lease_at(sites, standby))["failover_verdict"])
    return verdict != "None" and "first copy" not in verdict


@pytest.mark.long
async def test_a_healthy_site_goes_on_after_any_single_loss_and_is_not_promoted_over(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites("--arbiter", "--lease-ms", str(LEASE_MS))
    await create_topic(sites)
    async with writer(sites, "a") as at_a:
        await at_a.writes()
        arbiter = sites.process("arbiter")
        arbiter.kill()
        await eventually(lambda: has_permit_from(sites, "standby"))
        known = len(at_a.answers)
        deadline_ms = at_a.answers[-1].answered_at_ms + 3 * LEASE_MS

        async def has_passed() -> bool:
            return at_a.answers[-1].answered_at_ms >= deadline_ms

        await eventually(has_passed)
        assert all(answer.is_acknowledged for answer in at_a.answers[known:])
        status = json.loads((await command(sites, "status", "--output", "json")).stdout)
        assert any("writes by the vow of its standby: no site can be promoted" in one for one in status["problems"])
        refused = await command(sites, "failover", LINK, "--to", "b")
        assert refused.returncode == 1
        assert "takes writes only when the arbiter opens an epoch for it" in refused.stdout
        await at_a.writes()
        arbiter.start()
        await eventually(lambda: has_permit_from(sites, "arbiter"))
        known = len(at_a.answers)
        with sites.cut_off():
            await at_a.writes(400)
            assert all(answer.is_acknowledged for answer in at_a.answers[known:])
            sites.broker("a").kill()
            sites.restart(sites.broker("a"))
            await at_a.writes()  # although no agent of b can confirm the epoch
        known = len(at_a.answers)
        await equal_ends(sites)
        moved = json.loads((await command(sites, "switchover", LINK, "--to", "b", "--output", "json")).stdout)
        assert moved["outcome"] == "done", moved
        await at_a.is_refused()
    first_of_b = await first_acknowledged(sites, "b")
    assert max(answer.answered_at_ms for answer in at_a.acknowledged) < first_of_b
    await equal_ends(sites)
    await eventually(lambda: has_complete_copy(sites, "a"))
    # the site is lost: the standby reports it, a person fails over, and the lease is proof enough
    sites.broker("b").kill()

    async def would_fail_over() -> bool:
        return "would fail over now" in str((await lease_at(sites, "a"))["failover_verdict"])

    await eventually(would_fail_over)
    done = await command(sites, "failover", LINK, "--to", "a")
    assert done.returncode == 0, done.stdout + done.stderr
    async with writer(sites, "a") as at_a:
        await at_a.writes()


async def first_acknowledged(sites: EmbeddedSites, site: str) -> float:
    """When the site acknowledged a record (monotonic ms)."""
    async with writer(sites, site) as writing:
        await writing.writes(1)
    return writing.acknowledged[0].answered_at_ms


async def test_a_site_that_is_cut_off_stops_within_its_lease_and_the_standby_takes_over_by_itself(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites("--arbiter", "--lease-ms", str(LEASE_MS), "--failover", "automatic")
    await create_topic(sites)
    produce(sites, 50)
    await equal_ends(sites)
    altered = await command(sites, "links", "alter", LINK, "--reinstate", "automatic")
    assert altered.returncode == 0, altered.stderr
    network = sites.network
    await eventually(lambda: has_complete_copy(sites, "b"))
    async with writer(sites, "a") as at_a, writer(sites, "b") as at_b:
        await at_a.writes()
        assert not at_b.acknowledged
        network.cut(network.selected(), is_silent=True)
        network.cut(network.selected(kind=ARBITER_KIND, site="a"), is_silent=True)
        await at_b.writes()
        last_of_a = max(answer.answered_at_ms for answer in at_a.acknowledged)
        assert last_of_a < at_b.acknowledged[0].answered_at_ms
        await at_a.is_refused()
        own_of_a = len(at_a.acknowledged)
        assert at_a.acknowledged[-1].answered_at_ms == last_of_a
        network.heal()

        async def follows() -> bool:
            found = await link_at(sites, "a")
            return bool(found["link"]["active_site"] == "b")

        await eventually(follows)
    ends = await equal_ends(sites)
    await check_written(sites, at_a.acknowledged[own_of_a:])
    accounts = json.loads((await command(sites, "failovers", "show", LINK, "--output", "json")).stdout)["accounts"]
    assert [(one["from_site"], one["to_site"]) for one in accounts] == [("a", "b")]
    assert ends[(TOPIC, 0)] >= 50 + len(at_b.acknowledged)
    await a_site_that_wakes_after_its_lease_acknowledges_nothing(sites)
    sites.stop()


async def check_written(sites: EmbeddedSites, answers: Sequence[Answer]) -> None:
    """Check that both sites have each acknowledged record at its offset."""
    ends = await equal_ends(sites)
    for site in ("a", "b"):
        written: dict[int, bytes | None] = {}
        async with site_client(sites.bootstrap(site)) as client:
            async for header, batch in batches(client, (TOPIC, 0), 0, ends[TOPIC, 0]):
                written.update((record.offset, record.value) for record in decode_batch(batch, 0, header))
        assert [written.get(answer.offset) for answer in answers] == [answer.value for answer in answers]


async def a_site_that_wakes_after_its_lease_acknowledges_nothing(sites: EmbeddedSites) -> None:
    """The broker of b, the active site, is stopped with requests in flight, and a takes over: b
    forwards what waits, and then a acknowledges it.
    """
    await eventually(lambda: has_complete_copy(sites, "a"))
    async with writer(sites, "a") as at_a, writer(sites, "b") as at_b:
        await at_b.writes()
        broker = sites.broker("b")
        broker.pause()
        await at_a.writes()
        own_of_b = len(at_b.acknowledged)
        broker.resume()
        await at_b.is_refused()
        assert at_b.acknowledged[own_of_b - 1].answered_at_ms < at_a.acknowledged[0].answered_at_ms

    async def follows() -> bool:
        return bool((await link_at(sites, "b"))["link"]["active_site"] == "a")

    await eventually(follows)
    await eventually(lambda: has_complete_copy(sites, "b"))
    await check_written(sites, at_b.acknowledged[own_of_b:])
    with pytest.raises(SiteRefused, match="the link has failed over 2 times within the last hour"):
        await requested(sites, "b")


async def requested(sites: EmbeddedSites, site: str) -> RequestFailoverReply:
    """Ask the standby's agents for a failover, as an application does."""
    channels = Channels()
    try:
        client = SiteClient(site, sites.environment.sites[site].grpc, channels)
        return await client.request_failover(LINK, asked_by="shop: no orders come in", timeout_ms=60_000)
    finally:
        await channels.close()


@pytest.mark.long
async def test_f17_a_slow_control_plane_stops_no_writer_and_no_site_is_promoted_over(start_sites: SitesStarter) -> None:
    """Each message waits for five seconds on its way, in both directions: an answer takes ten."""
    lease_ms, latency_ms = 20_000, 5_000
    # the longest session that the arbiter grants: a heartbeat is answered before the next one
    patient = ("--broker-config", "antipode.arbiter.session.timeout.ms=40000")
    sites = start_sites("--arbiter", "--lease-ms", str(lease_ms), "--failover", "automatic", *patient)
    await create_topic(sites)
    network = sites.network
    slow = Toxic(kind="latency", attributes={"latency": latency_ms, "jitter": 0})
    async with writer(sites, "a") as at_a:
        await at_a.writes()
        known = len(at_a.answers)
        for kind in ("grpc", ARBITER_KIND):
            network.add(network.selected(kind=kind), [slow])
        deadline_ms = at_a.answers[-1].answered_at_ms + 2 * lease_ms

        async def has_passed() -> bool:
            return at_a.answers[-1].answered_at_ms >= deadline_ms

        await eventually(has_passed)
        assert [answer for answer in at_a.answers[known:] if not answer.is_acknowledged] == []
    network.heal()
    assert (await link_at(sites, "b"))["link"]["epoch"] == 1
    await eventually(lambda: has_complete_copy(sites, "b"))
    reply = await requested(sites, "b")
    assert (reply.epoch, LossAccount.from_json(reply.json).loses_nothing) == (2, True)
    (run,) = json.loads((await command(sites, "failovers", "list", LINK, "--output", "json")).stdout)
    assert (run["outcome"], run["who"].split(" (")[0]) == ("done", "shop: no orders come in")
    with pytest.raises(SiteRefused, match="b is active for link a-b already"):
        await requested(sites, "b")


@pytest.mark.long
async def test_a_running_link_gets_a_lease_and_loses_it(start_sites: SitesStarter, zookeeper_connect: str) -> None:
    sites = start_sites("--broker-config", f"antipode.arbiter.connect={zookeeper_connect}/arbiter-of-a-test")
    await create_topic(sites)

    async def altered(*options: str) -> Any:
        return await command(sites, "links", "alter", LINK, *options)

    async with writer(sites, "a") as at_a:
        await at_a.writes()
        refused = await altered("--failover", "automatic")
        assert refused.returncode == 1
        assert "failover mode 'automatic' needs a lease" in refused.stderr
        done = await altered("--lease-ms", str(LEASE_MS))
        assert done.returncode == 0, done.stderr
        assert "a writes under a lease of 2000 ms; when it is lost, b reports when it would fail over" in done.stdout
        await eventually(lambda: has_permit_from(sites, "arbiter"))
        await at_a.writes()
        refused = await altered("--lease-ms", "3000")
        assert "the lease is 2000 ms: set it to 0 first, then to 3000" in refused.stderr
        done = await altered("--lease-ms", "0")
        assert done.returncode == 0, done.stderr
        assert (await link_at(sites, "a"))["lease"] is None
        await at_a.writes()
        assert (await altered("--lease-ms", str(LEASE_MS))).returncode == 0
        await eventually(lambda: has_permit_from(sites, "arbiter"))
    checks = json.loads((await command(sites, "links", "check", LINK, "--output", "json")).stdout)["checks"]
    assert [one["outcome"] for one in checks if one["check"] == "arbiter"] == ["ok"]
    deleted = await command(sites, "links", "delete", LINK, "--yes")
    assert deleted.returncode == 0, deleted.stderr
    arbiter = ZooKeeper(f"{zookeeper_connect}/arbiter-of-a-test")
    await arbiter.start()
    try:
        assert await arbiter.children(LINKS) == []
    finally:
        await arbiter.stop()


@pytest.mark.long
async def test_a_link_that_degrades_does_so_only_after_the_arbiter_knows(start_sites: SitesStarter) -> None:
    sites = start_sites("--arbiter", "--lease-ms", str(LEASE_MS), "--failover", "automatic", "--sync", "degrade")
    await create_topic(sites)
    altered = await command(sites, "links", "alter", LINK, "--sync", "degrade", "--sync-timeout-ms", "500")
    assert altered.returncode == 0, altered.stderr

    async def is_out_of_sync() -> bool:
        return bool((await lease_at(sites, "a"))["is_out_of_sync"])

    async def is_in_sync() -> bool:
        return not await is_out_of_sync()

    async with writer(sites, "a") as at_a:
        await at_a.writes()
        assert await is_in_sync()
        await eventually(lambda: has_complete_copy(sites, "b"))
        arbiter = sites.process("arbiter")
        arbiter.kill()
        await eventually(lambda: has_permit_from(sites, "standby"))
        sites.mirror.pause()
        await at_a.is_refused(3)  # no mark can be made: acknowledgements wait as under block
        arbiter.start()
        await eventually(is_out_of_sync)
        await at_a.writes()
        sites.mirror.resume()
        await eventually(is_in_sync)
        await at_a.writes()
        sites.mirror.pause()
        await eventually(is_out_of_sync)
        await at_a.writes()
    for process in sites.environment.sites["a"].processes:
        sites.process(process.name).kill()

    async def waits_for_a_person() -> bool:
        verdict = str((await lease_at(sites, "b"))["failover_verdict"])
        return "a person has to decide: brokers 1 of a acknowledged records that the standby may lack" in verdict

    await eventually(waits_for_a_person)
    assert (await link_at(sites, "b"))["link"]["epoch"] == 1
    sites.mirror.resume()
