"""Links and failovers between two real sites: brokers, controllers, agents, a mirror, and clients
that know only site a.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from dr.failover.journal import read_journal
from dr.links.administration import LinkAtSite, confirm_link, delete_link, list_links
from dr.sites.core.mirror_reports import MIRROR_NEVER_SEEN, MIRROR_SILENT_MS
from dr.sites.site_client import SiteClient
from runtime.grpc_server import open_channel
from runtime.process import OperationalFailure
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.pairs.interrupted_runs import RunEnded, end_run_at
from tests.support.pairs.site_comparison import check_prefix
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.control import mirror_pb2, mirror_pb2_grpc
from wire.control.site_pb2 import LinkReply

pytestmark = pytest.mark.integration


def records(count: int, *, first: int = 0) -> list[Record]:
    return [Record(value=f"v{number}".encode()) for number in range(first, first + count)]


async def produce(bootstrap: str, count: int, *, first: int = 0) -> None:
    settings = {"enable.idempotence": True, "acks": "all"}
    await asyncio.to_thread(librdkafka_produce, bootstrap, "flights", records(count, first=first), settings=settings)


async def values_at(bootstrap: str, count: int) -> list[bytes | None]:
    received = await asyncio.to_thread(librdkafka_consume, bootstrap, "flights", count, group="board")
    return [record.value for record in received]


async def commit(bootstrap: str, offsets: dict[str, int]) -> None:
    async with KafkaClient(bootstrap) as client:
        for group, offset in offsets.items():
            outcome = await client.commit(group, {("flights", 0): CommittedOffset(offset)})
            assert not any(outcome.values()), outcome


async def has_offsets(sites: LinkedSites, offsets: dict[str, int]) -> bool:
    """True if the standby's coordinator has these offsets by group."""
    async with KafkaClient(sites.b.bootstrap, site_local=True) as client:
        found = {group: (await client.committed(group)).get(("flights", 0)) for group in offsets}
    return {group: at.offset for group, at in found.items() if at is not None} == offsets


async def linked(sites: LinkedSites) -> None:
    await sites.link()
    await sites.create_topic("flights")
    sites.start_mirror()
    await eventually(lambda: sites.is_writable("a"))


async def caught_up(sites: LinkedSites, end: int) -> bool:
    return (await sites.ends("b")).get(("flights", 0)) == end


async def test_a_link_is_confirmed_at_both_sites_and_taken_away_from_both(sites: LinkedSites) -> None:
    record = await sites.link()
    clients = [sites.client("a"), sites.client("b")]

    async def all_confirmed() -> bool:
        entries = await list_links(clients)
        return len(entries) == 2 and all(entry.status is not None and entry.status.is_confirmed for entry in entries)

    await eventually(all_confirmed)
    # no mirror runs yet
    assert [entry.mirror_report_age_ms for entry in await list_links(clients)] == [None, MIRROR_NEVER_SEEN]
    with pytest.raises(OperationalFailure, match="already exists with another record"):
        await sites.link(topics=("other",))
    assert (await confirm_link(LINK, clients[0])).epoch == record.epoch
    assert await delete_link(LINK, clients) == ["a", "b"]
    with pytest.raises(OperationalFailure, match="not known at a, b"):
        await delete_link(LINK, clients)


@pytest.mark.long
async def test_a_daemon_that_cannot_carry_offsets_is_named_although_another_one_of_the_link_carries_its_own(
    processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    """The standby refuses records of one partition, which one of the two daemons has."""
    limits = {"b": {"offset.metadata.max.bytes": "8"}}
    sites = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect, properties=limits)
    clients = [sites.client("a"), sites.client("b")]
    try:
        await sites.link()
        await sites.create_topic("flights", 2)
        addresses = []
        for name in ("-1", "-2"):
            sites.start_mirror(name=name, settings={"antipode.sharing.enabled": "true"})
            addresses.append(sites.mirror_grpc)
        await eventually(lambda: are_shared(addresses))
        await eventually(lambda: is_well_at_standby(clients))
        offsets = {("flights", 0): CommittedOffset(0, -1, "much too long"), ("flights", 1): CommittedOffset(0)}
        async with KafkaClient(sites.a.bootstrap, site_local=True) as client:
            assert not any((await client.commit("board", offsets)).values())
        await eventually(lambda: is_refused_daemon_named(clients, addresses))
        was_behind_ms = await eventually(lambda: report_age_ms(clients))
        # The other daemon continues to report that it carries its part.
        await eventually(lambda: is_older(clients, was_behind_ms))
        async with KafkaClient(sites.a.bootstrap, site_local=True) as client:
            assert not any((await client.commit("board", {("flights", 0): CommittedOffset(0)})).values())
        await eventually(lambda: is_well_at_standby(clients))
    finally:
        await sites.channels.close()


async def partitions_of(mirror: str) -> list[int]:
    async with open_channel(mirror) as channel:
        stub = mirror_pb2_grpc.MirrorAdminStub(channel)  # type: ignore[no-untyped-call]
        reply = await stub.DescribeMirror(mirror_pb2.DescribeMirrorRequest(link=LINK), wait_for_ready=True)
    return [partition.partition for partition in reply.partitions if partition.state == "MIRRORING"]


async def are_shared(mirrors: Sequence[str]) -> bool:
    return sorted([await partitions_of(mirror) for mirror in mirrors]) == [[0], [1]]


async def at_standby(clients: Sequence[SiteClient]) -> LinkAtSite:
    (entry,) = [entry for entry in await list_links(clients) if entry.site == "b"]
    return entry


async def is_refused_daemon_named(clients: Sequence[SiteClient], addresses: Sequence[str]) -> bool:
    """Other problems may come first: the first commit creates the standby's `__consumer_offsets`,
    whose coordinator is not there at once. A slow daemon may also lose its slot for a while.
    """
    ports = [address.rpartition(":")[2] for address in addresses if await partitions_of(address) == [0]]
    assert len(ports) == 1, ports
    failing = "; ".join((await at_standby(clients)).mirror_problems)
    reason = "does not carry offsets: board: the target refuses offset commits: flights-0"
    assert f":{ports[0]} {reason}" in failing, failing
    return True


async def report_age_ms(clients: Sequence[SiteClient]) -> int | None:
    """None, and asked again, while the standby does not answer in time."""
    return (await at_standby(clients)).mirror_report_age_ms


async def is_older(clients: Sequence[SiteClient], than_ms: int) -> bool:
    """Offsets are as old as those of the failing part, and the report still says so."""
    entry = await at_standby(clients)
    assert entry.mirror_problems
    assert entry.mirror_report_age_ms is not None
    return entry.mirror_report_age_ms > than_ms + 2_000


async def is_well_at_standby(clients: Sequence[SiteClient]) -> bool:
    entry = await at_standby(clients)
    assert not entry.mirror_problems, entry.mirror_problems
    return entry.mirror_report_age_ms is not None and 0 <= entry.mirror_report_age_ms < MIRROR_SILENT_MS


async def test_f1_a_failover_from_a_living_site_loses_nothing_and_clients_follow(
    sites: LinkedSites, tmp_path: Path
) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 200)
    await commit(sites.a.bootstrap, {"further": 40, "rewound": 190})
    await eventually(lambda: has_offsets(sites, {"further": 40, "rewound": 190}))
    late = {"further": 90, "rewound": 10, "new": 200}
    await commit(sites.a.bootstrap, late)
    journal = tmp_path / "journal.jsonl"
    planned = await failover(LINK, to_site="b", agents=sites.agents, is_dry_run=True)
    assert planned.outcome == "planned", planned
    report = await failover(LINK, to_site="b", agents=sites.agents, journal_path=journal)
    assert report.is_done, report
    assert report.account is not None
    assert [(item.kept_below, item.known_lost_records) for item in report.account.partitions] == [(200, 0)]
    assert report.account.is_exact
    assert report.account.loses_nothing
    assert await has_offsets(sites, late)
    assert read_journal(journal)[-1]["outcome"] == "done"
    await produce(sites.a.bootstrap, 50, first=200)
    assert await values_at(sites.a.bootstrap, 250) == [record.value for record in records(250)]
    assert await sites.ends("b") == {("flights", 0): 250}
    again = await failover(LINK, to_site="b", agents=sites.agents)
    assert again.outcome == "refused"
    assert "active for link a-b already" in again.reason


@pytest.mark.long
async def test_f1_the_source_sends_its_clients_on_before_the_target_is_confirmed(
    sites: LinkedSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their first attempt at the target waits there, in place of a second one after a pause."""
    await linked(sites)
    await produce(sites.a.bootstrap, 10)
    confirm = SiteClient.confirm_link
    writing: list[asyncio.Task[None]] = []

    async def is_source_told(epoch: int) -> bool:
        return (await sites.describe("a")).record.epoch == epoch

    async def confirm_late(client: SiteClient, name: str, *, epoch: int, lease_ms: int = 0) -> LinkReply:
        await eventually(lambda: is_source_told(epoch))
        writing.append(asyncio.create_task(produce(sites.a.bootstrap, 1, first=10)))
        assert not await sites.is_writable("b")
        return await confirm(client, name, epoch=epoch, lease_ms=lease_ms)

    monkeypatch.setattr(SiteClient, "confirm_link", confirm_late)
    report = await failover(LINK, to_site="b", agents=sites.agents)
    assert report.is_done, report
    assert report.account is not None
    assert report.account.loses_nothing
    await asyncio.gather(*writing)
    assert await sites.ends("b") == {("flights", 0): 11}


async def test_f2_a_failover_from_a_killed_site_says_what_is_kept_and_the_old_site_comes_back_passive(
    sites: LinkedSites,
) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 100)
    await eventually(lambda: caught_up(sites, 100))
    assert sites.mirror is not None
    sites.mirror.kill()
    await produce(sites.a.bootstrap, 7, first=100)
    await sites.create_topic("late")

    async def b_has_heard_of_it() -> bool:
        return [one.topic for one in (await sites.describe("b")).unprotected] == ["late"]

    await eventually(b_has_heard_of_it)
    sites.a.process.kill()
    not_protected = ("topic late is not at b: no record of it is kept there",)
    planned = await failover(LINK, to_site="b", agents=sites.agents, is_dry_run=True)
    assert planned.unprotected == not_protected
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=FailoverPolicy(settle_ms=200))
    assert report.is_done, report
    assert report.account is not None
    assert [(item.topic, item.kept_below, item.is_protected) for item in report.account.partitions] == [
        ("flights", 100, True),
        ("late", 0, False),
    ]
    assert not report.account.is_exact
    assert report.unprotected == not_protected
    assert report.account.groups is not None
    assert "the mirror last copied all offsets" in report.account.groups.sentence
    await produce(sites.b.bootstrap, 20, first=500)
    await asyncio.to_thread(sites.a.restart)

    async def a_follows() -> bool:
        described = await sites.describe("a")
        ends = {item.topic: item.log_end_offset for item in described.partitions}
        return described.record.epoch == report.epoch and ends.get("flights") == 107

    await eventually(a_follows)
    assert not await sites.is_writable("a")
    await eventually(lambda: sites.is_writable("b"))
    await produce(sites.a.bootstrap, 5, first=520)
    assert (await sites.ends("b"))[("flights", 0)] == 125


async def test_f2_a_standby_restarted_after_the_disaster_knows_the_last_reports(sites: LinkedSites) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 100)

    async def b_has_heard() -> bool:
        described = (await sites.describe("b")).partitions
        return [one.source_high_watermark for one in described] == [100]

    await eventually(b_has_heard)
    await eventually(lambda: caught_up(sites, 100))  # the first records bring word of those behind them
    assert sites.mirror is not None
    sites.mirror.kill()
    sites.a.process.kill()
    await asyncio.to_thread(sites.b.process.stop)
    await asyncio.to_thread(sites.b.restart)
    planned = await failover(LINK, to_site="b", agents=sites.agents, is_dry_run=True)
    assert planned.account is not None
    (flights,) = planned.account.partitions
    assert (flights.source_end, flights.known_lost_records) == (100, 0)
    assert flights.last_contact_ms >= 0
    report = await failover(LINK, to_site="b", agents=sites.agents, policy=FailoverPolicy(settle_ms=200))
    assert report.is_done, report

    async def is_a_copy_no_more() -> bool:
        described = (await sites.describe("b")).partitions
        return [one.source_high_watermark for one in described] == [-1]

    await eventually(is_a_copy_no_more)


async def test_a_site_that_cannot_ask_its_peer_takes_no_write_until_the_operator_says_so(sites: LinkedSites) -> None:
    await linked(sites)
    sites.b.process.kill()
    sites.a.process.kill()
    await asyncio.to_thread(sites.a.restart)
    assert not await sites.is_writable("a")
    await confirm_link(LINK, sites.client("a"))
    await eventually(lambda: sites.is_writable("a"))


async def test_f7_a_failover_broken_off_at_any_step_is_finished_by_a_second_run(sites: LinkedSites) -> None:
    await linked(sites)
    await produce(sites.a.bootstrap, 30)
    await eventually(lambda: caught_up(sites, 30))

    for stop_at in ("fence", "raise", "account", "promote", "notify"):
        with contextlib.suppress(RunEnded):
            await failover(LINK, to_site="b", agents=sites.agents, progress=end_run_at(stop_at))
    report = await failover(LINK, to_site="b", agents=sites.agents)
    assert report.is_done or "active for link a-b already" in report.reason
    assert report.account is not None
    assert [item.kept_below for item in report.account.partitions] == [30]
    await eventually(lambda: sites.is_writable("b"))
    assert not await sites.is_writable("a")


async def test_m5_with_mirrors_both_ways_nothing_comes_back_before_or_after_the_link_turns(sites: LinkedSites) -> None:
    """The mirror into the active site waits for its turn; then the other one does."""
    await linked(sites)
    into_a = sites.start_mirror(into="a")
    await produce(sites.a.bootstrap, 200)
    await eventually(lambda: caught_up(sites, 200))
    assert (await failover(LINK, to_site="b", agents=sites.agents)).is_done
    await produce(sites.a.bootstrap, 50, first=200)

    async def have_all() -> bool:
        return await sites.ends("a") == await sites.ends("b") == {("flights", 0): 250}

    await eventually(have_all)
    into_a.kill()  # a killed mirror sends nothing more
    assert await have_all()
    assert await check_prefix(sites.b.bootstrap, sites.a.bootstrap) == {("flights", 0): (250, 250)}
    assert await values_at(sites.a.bootstrap, 250) == [record.value for record in records(250)]
