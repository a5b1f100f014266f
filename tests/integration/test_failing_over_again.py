"""Failovers after failovers between two real sites: idle moves there and back, standbys with a
history of their own, paused sites.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from dr.failover.report import FailoverReport
from dr.links.administration import list_links
from dr.links.completeness import complete_until, looks_at_sites
from dr.links.readiness import check_readiness
from dr.sites.core.loss import LossAccount
from runtime.clock import SystemClock
from runtime.grpc_server import open_channel
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.pairs.site_comparison import check_prefix, common_ends
from wire.control import mirror_pb2, mirror_pb2_grpc

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PATIENT_MS = 120_000
PLANNED = FailoverPolicy(unavailability_max_ms=30_000, drain_timeout_ms=60_000)
"""A machine that does other work may stop writers for longer than a site should."""
LOST = FailoverPolicy(settle_ms=200)


async def produce(bootstrap: str, count: int, *, first: int = 0, topic: str = "flights") -> None:
    records = [Record(value=f"v{number}".encode()) for number in range(first, first + count)]
    settings = {"enable.idempotence": True, "acks": "all"}
    await asyncio.to_thread(librdkafka_produce, bootstrap, topic, records, settings=settings)


async def is_passive(sites: LinkedSites, name: str) -> bool:
    """The site's record names the other site as active, and its brokers refuse writes. A broker
    that is not registered describes no partition, and may still write what it was sent.
    """
    reply = await sites.describe(name)
    is_active = reply.record.active_site == name
    return not is_active and bool(reply.partitions) and not any(item.is_writable for item in reply.partitions)


async def linked(sites: LinkedSites) -> dict[str, str]:
    """The link, a topic, and a mirror into each site; where the mirrors serve MirrorAdmin."""
    await sites.link()
    await sites.create_topic("flights", 2)
    mirrors = {}
    for name in ("a", "b"):
        sites.start_mirror(into=name)
        mirrors[name] = sites.mirror_grpc
    await eventually(lambda: sites.is_writable("a"), PATIENT_MS)
    await eventually(lambda: has_mirror(sites), PATIENT_MS)
    return mirrors


async def has_mirror(sites: LinkedSites) -> bool:
    (heard_ms,) = [entry.mirror_report_age_ms for entry in await list_links([sites.client("b")])]
    return heard_ms is not None and heard_ms >= 0


async def have_both(sites: LinkedSites, total: int) -> bool:
    ends = await sites.ends("a")
    return sum(ends.values()) == total and ends == await sites.ends("b")


async def is_mirroring(mirror: str) -> bool:
    async with open_channel(mirror) as channel:
        stub = mirror_pb2_grpc.MirrorAdminStub(channel)  # type: ignore[no-untyped-call]
        reply = await stub.DescribeMirror(mirror_pb2.DescribeMirrorRequest(link=LINK), wait_for_ready=True)
    states = {(one.topic, one.partition): one.state for one in reply.partitions}
    assert "FAULTED" not in states.values(), [one.reason for one in reply.partitions]
    return bool(states) and set(states.values()) == {"MIRRORING"}


async def move(sites: LinkedSites, to: str) -> FailoverReport:
    report = await failover(LINK, to_site=to, agents=sites.agents, policy=PLANNED)
    assert report.is_done, report
    assert report.account is not None
    assert report.account.loses_nothing, report.account
    return report


async def test_f6_ten_moves_there_and_back_of_an_idle_link_leave_it_mirroring(
    sites: LinkedSites,
) -> None:
    mirrors = await linked(sites)
    await produce(sites.a.bootstrap, 100)
    await eventually(lambda: have_both(sites, 100), PATIENT_MS)
    for number in range(10):
        await move(sites, "ba"[number % 2])
        passive = "ab"[number % 2]
        await eventually(lambda passive=passive: is_mirroring(mirrors[passive]), PATIENT_MS)
    await produce(sites.a.bootstrap, 50, first=100)
    await eventually(lambda: have_both(sites, 150), PATIENT_MS)
    assert sum(end for end, _ in (await check_prefix(sites.a.bootstrap, sites.b.bootstrap)).values()) == 150
    clients = [sites.client("a"), sites.client("b")]

    async def is_ready() -> bool:
        found = await check_readiness(LINK, clients)
        return found.is_ready(lag_records_max=0, groups_age_ms_max=1_000_000)

    await eventually(is_ready, PATIENT_MS)


@pytest.mark.long
async def test_f6_two_failovers_and_the_way_back_with_writes_in_between_lose_nothing(sites: LinkedSites) -> None:
    await linked(sites)
    total = 0
    for to in ("b", "a", "b"):
        await produce(sites.a.bootstrap, 40, first=total)
        total += 40
        report = await move(sites, to)
        assert report.account is not None
        assert sum(item.kept_below for item in report.account.partitions) == total
        await eventually(lambda total=total: have_both(sites, total), PATIENT_MS)
    assert sum(end for end, _ in (await check_prefix(sites.b.bootstrap, sites.a.bootstrap)).values()) == total
    options = [f"--site={name}={addresses[0]}" for name, addresses in sites.agents.items()]
    arguments = ["failovers", "show", LINK, *options]
    shown = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--output=json"])
    found = json.loads(shown.stdout)
    assert [(run["epoch"], run["outcome"]) for run in found["runs"]] == [(2, "done"), (3, "done"), (4, "done")]
    accounts = found["accounts"]
    assert [(account["epoch"], account["to_site"], account["is_exact"]) for account in accounts] == [
        (2, "b", True),
        (3, "a", True),
        (4, "b", True),
    ]
    text = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert text.stdout.count("lost in all: nothing") == 3


class Parted(NamedTuple):
    """Site b was promoted at its ends `kept`; a is back with records of its own, up to its ends
    `abandoned`.
    """

    report: FailoverReport
    kept: dict[tuple[str, int], int]
    abandoned: dict[tuple[str, int], int]

    @property
    def differing(self) -> list[tuple[str, int]]:
        """Partitions of which a has records that b never got."""
        return [key for key, end in self.abandoned.items() if end > self.kept[key]]


async def parted(sites: LinkedSites, *, at_a: Callable[[], None] = lambda: None) -> Parted:
    """An unplanned failover to b, records written there, and a back. `at_a` runs when nothing is
    mirrored to b any more.
    """
    await linked(sites)
    await produce(sites.a.bootstrap, 60)
    await eventually(lambda: have_both(sites, 60), PATIENT_MS)
    assert sites.mirror is not None
    sites.mirror.kill()
    kept = await sites.ends("b")
    await produce(sites.a.bootstrap, 9, first=100)
    abandoned = await sites.ends("a")
    await asyncio.to_thread(at_a)
    sites.a.process.kill()
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=LOST)
    assert report.is_done, report
    await produce(sites.b.bootstrap, 25, first=500)
    await asyncio.to_thread(sites.a.restart)

    async def a_is_passive_again() -> bool:
        described = await sites.describe("a")
        led = {(item.topic, item.partition) for item in described.partitions}
        return described.record.epoch == report.epoch and led == abandoned.keys()

    await eventually(a_is_passive_again, PATIENT_MS)
    return Parted(report, kept, abandoned)


async def test_f2_when_the_lost_site_is_back_its_log_shows_that_the_account_of_the_failover_was_true(
    sites: LinkedSites,
) -> None:
    report, kept, abandoned = found = await parted(sites)
    assert report.account is not None
    for item in report.account.partitions:
        place = (item.topic, item.partition)
        assert item.kept_below == kept[place]
        assert item.known_lost_records <= abandoned[place] - item.kept_below
    common = await common_ends(sites.b.bootstrap, sites.a.bootstrap)
    assert found.differing
    assert {key: common[key] for key in found.differing} == {key: kept[key] for key in found.differing}


async def test_a_standby_with_a_history_of_its_own_is_neither_ready_nor_promoted_before_and_after_its_peer_is_lost(
    sites: LinkedSites,
) -> None:
    there = await parted(sites)
    report, kept, abandoned = there

    clients = {name: sites.client(name) for name in ("a", "b")}
    found = await check_readiness(LINK, list(clients.values()))
    assert not found.is_ready(lag_records_max=1_000_000, groups_age_ms_max=1_000_000)
    for topic, partition in there.differing:
        sentence = f"{topic}-{partition} differs from offset {kept[topic, partition]} on"
        assert any(sentence in problem for problem in found.problems), found.problems
    clock = SystemClock()
    look = await looks_at_sites(LINK, clients, clock)
    topics = await complete_until(look, until_ms=clock.now_ms(), topics=[".*"], timeout_ms=0, clock=clock)
    assert not any(one.is_complete for one in topics)

    refused = await failover(LINK, to_site="a", agents=sites.agents)
    assert refused.outcome == "refused"
    assert "a is not a copy of b" in refused.reason
    assert await sites.is_writable("b")

    async def a_keeps_the_account() -> bool:
        accounts = [LossAccount.from_json(text) for text in await sites.client("a").failovers(LINK)]
        return [account.epoch for account in accounts] == [report.epoch]

    await eventually(a_keeps_the_account, PATIENT_MS)
    sites.b.process.kill()
    refused = await failover(LINK, to_site="a", agents=sites.agents, policy=LOST)
    assert refused.outcome == "refused"
    for topic, partition in there.differing:
        own = abandoned[topic, partition] - kept[topic, partition]
        sentence = (
            f"{topic}-{partition} differs from offset {kept[topic, partition]} on: a has {own} records of its own"
        )
        assert sentence in refused.reason
    accepting = FailoverPolicy(settle_ms=200, accepts_data_loss=True)
    accepted = await failover(LINK, to_site="a", agents=sites.agents, policy=accepting)
    assert accepted.is_done, accepted
    assert accepted.account is not None
    accounted = {(item.topic, item.partition): item for item in accepted.account.partitions}
    for key, item in accounted.items():
        returning = abandoned[key] - kept[key]
        assert item.returning_records == returning
        if returning:
            assert item.kept_below == kept[key]


async def test_without_a_living_mirror_a_planned_failover_is_refused_and_no_writer_waits(sites: LinkedSites) -> None:
    await sites.link()
    await sites.create_topic("flights")
    await eventually(lambda: sites.is_writable("a"), PATIENT_MS)
    refused = await failover(LINK, to_site="b", agents=sites.agents)
    assert refused.outcome == "refused"
    assert "no mirror of link a-b into b runs (never reported)" in refused.reason
    assert [step.step for step in refused.steps] == ["prepare"]
    assert refused.epoch == 1
    await produce(sites.a.bootstrap, 5)
    planned = await failover(LINK, to_site="b", agents=sites.agents, is_dry_run=True)
    assert (planned.outcome, planned.reason) == ("refused", refused.reason)


async def test_f3_an_active_site_paused_during_a_promotion_takes_no_write_after_it_learns_of_it(
    sites: LinkedSites,
) -> None:
    """Without leases: a paused site answers no request; resumed, it learns of the new epoch from
    its peer within a second or two.
    """
    await linked(sites)
    await produce(sites.a.bootstrap, 40)
    await eventually(lambda: have_both(sites, 40), PATIENT_MS)
    sites.a.process.pause()
    report = await failover(LINK, to_site="b", agents={"b": sites.agents["b"]}, policy=LOST)
    assert report.is_done, report
    sites.a.process.resume()

    await eventually(lambda: is_passive(sites, "a"), PATIENT_MS)
    ends = await sites.ends("a")
    await produce(sites.a.bootstrap, 10, first=40)  # its clients are sent to b
    assert sum((await sites.ends("b")).values()) == 50
    await eventually(lambda: have_both(sites, 50), PATIENT_MS)
    assert sum(ends.values()) == 40


@pytest.mark.long
async def test_f3_a_write_that_waited_at_a_paused_site_is_refused_or_named_and_the_next_one_is_refused(
    sites: LinkedSites,
) -> None:
    """Without leases a resumed site may acknowledge waiting requests before it asks its peer.
    Nothing hides such a record.
    """
    await linked(sites)
    await produce(sites.a.bootstrap, 40)
    await eventually(lambda: have_both(sites, 40), PATIENT_MS)
    with RawClient(sites.a.client_port, timeout_s=PATIENT_MS / 1000) as client:
        first = await asyncio.to_thread(client.produce, "flights", batch([b"before"]))
        assert not first.error_code
        await eventually(lambda: have_both(sites, 41), PATIENT_MS)
        sites.a.process.pause()
        report = await failover(LINK, to_site="b", agents={"b": sites.agents["b"]}, policy=LOST)
        assert report.is_done, report
        client.send_produce("flights", batch([b"waited"]))
        sites.a.process.resume()
        waited = (await asyncio.to_thread(client.produced)).topics[0].partitions[0]

        await eventually(lambda: is_passive(sites, "a"), PATIENT_MS)
        late = await asyncio.to_thread(client.produce, "flights", batch([b"late"]))
        assert late.error_code == ErrorCode.not_leader_or_follower
    assert report.account is not None
    (kept,) = [item.kept_below for item in report.account.partitions if item.partition == 0]
    found = await check_readiness(LINK, [sites.client("a"), sites.client("b")])
    named = [problem for problem in found.problems if problem.startswith(f"flights-0 differs from offset {kept} on")]
    assert len(named) == (waited.error_code == ErrorCode.none), (waited, found.problems)
    if waited.error_code == ErrorCode.none:
        assert waited.base_offset >= kept
        refused = await failover(LINK, to_site="a", agents=sites.agents)
        assert "a is not a copy of b: flights-0 differs" in refused.reason


async def test_f3_a_site_that_stands_still_before_the_fence_reaches_it_takes_no_write_after_the_promotion(
    sites: LinkedSites,
) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 40)
    await eventually(lambda: have_both(sites, 40), PATIENT_MS)

    def pause_before_the_fence(step: str, _: str) -> None:
        if step == "fence" and not paused:
            paused.append(step)
            sites.a.process.pause()

    paused: list[str] = []
    policy = FailoverPolicy(unavailability_max_ms=2_000, settle_ms=200)
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=policy, progress=pause_before_the_fence)
    assert report.is_done, report
    assert not report.is_fence_proven
    assert any(step.step == "fence" and step.problem for step in report.steps)
    sites.a.process.resume()

    await eventually(lambda: is_passive(sites, "a"), PATIENT_MS)
    await produce(sites.a.bootstrap, 10, first=40)
    await eventually(lambda: have_both(sites, 50), PATIENT_MS)


async def test_f7_of_three_promotions_at_once_one_epoch_remains(sites: LinkedSites) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 40)
    await eventually(lambda: have_both(sites, 40), PATIENT_MS)
    reports = await asyncio.gather(
        *(failover(LINK, to_site="b", agents=sites.agents, policy=PLANNED) for _ in range(3))
    )
    assert {report.epoch for report in reports} == {2}
    assert any(report.is_done for report in reports)
    await eventually(lambda: sites.is_writable("b"), PATIENT_MS)
    assert not await sites.is_writable("a")
    accounts = [LossAccount.from_json(text) for text in await sites.client("b").failovers(LINK)]
    assert [(account.epoch, account.loses_nothing) for account in accounts] == [(2, True)]
