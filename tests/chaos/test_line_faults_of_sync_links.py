"""Sync links over lines that have every fault of the table, at either end of the mirror, under a
steady flow of small records.

Promised at every moment: every record that was acknowledged with acks=all, and every record that
consumers saw, is at the target, unless the partition reports that it is degraded; a link that
blocks has no degraded partition. After the line has recovered, without any operator, producers
continue, no partition is degraded, and every record is at both sites, once, in order, at its
acknowledged offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.eventually import eventually
from tests.support.pairs.link_faults import (
    FLAPPING_LINES,
    FLAPPING_S,
    HEALED_AT_ONCE_WITHIN_MS,
    HEALED_WITHIN_MS,
    LINE_FAULTS,
    LONG_S,
    OUTLASTING_REQUESTS_S,
    SHORT_S,
)
from tests.support.pairs.many_lines import LINE, QUICK, StruckLink, links_at_once, links_in_turn, strike_all
from tests.support.pairs.mirror_calls import keeps_up
from tests.support.pairs.mirror_sites import LINK, Pair, start_struck_pair
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP

pytestmark = [pytest.mark.chaos, pytest.mark.long]

TOPIC = "orders"
PARTITIONS = 3
BLOCK, DEGRADE = "block", "degrade"
DEGRADES_AFTER_MS = 1_500
RECORDS_PER_SECOND = 50
SOME_RECORDS = 50


async def shown(pair: Pair, topic: str) -> list[int]:
    """The offset up to which consumers read each partition at the source."""
    keys = [(topic, index) for index in range(PARTITIONS)]
    async with KafkaClient(pair.source.bootstrap, retry_budget_ms=5_000) as client:
        ends = await client.offsets_at(keys, LATEST_TIMESTAMP)
    return [ends[key] for key in keys]


async def degraded(pair: Pair, link: str) -> dict[int, bool]:
    """The partitions of a link at the source, with True if the standby may lack records of one."""
    return {one.partition: one.is_degraded for one in await pair.describe_partitions(pair.source, link)}


async def demand_promise_is_kept(
    pair: Pair, load: AcknowledgedLoad, policy: str, topic: str = TOPIC, link: str = LINK
) -> None:
    """The order of the requests matters: a record that was acknowledged before a partition reports
    that it is not degraded must be at the target afterwards.
    """
    reported = [max(load.acknowledged_values(index), default=-1) + 1 for index in range(PARTITIONS)]
    seen = await shown(pair, topic)
    is_degraded = await degraded(pair, link)
    kept = [end for _, end in await pair.ends(pair.target, topic, PARTITIONS)]
    assert policy == DEGRADE or not any(is_degraded.values())
    for index in range(PARTITIONS):
        if not is_degraded[index]:
            assert max(reported[index], seen[index]) <= kept[index], f"{topic}-{index}: {reported}, {seen}, {kept}"


async def in_sync_again(pair: Pair, link: str, within_ms: float) -> None:
    async def is_in_sync() -> bool:
        return not any((await degraded(pair, link)).values())

    await eventually(is_in_sync, within_ms)


async def demand_both_have_all(pair: Pair, load: AcknowledgedLoad, topic: str) -> None:
    """Both sites must have all records of a finished load."""
    await pair.caught_up(topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
    for site in (pair.source, pair.target):
        await load.check_log(site.bootstrap)


async def sync_link_under(
    links: Sequence[StruckLink], lasting_s: float, pair: Pair, policy: str, settings: Mapping[str, str]
) -> None:
    """One link, struck in turn. A line that flaps lets some through each time that it is up."""
    await pair.make_sync(policy, DEGRADES_AFTER_MS)
    await pair.create(TOPIC, PARTITIONS)
    pair.start_mirror(settings)
    await pair.caught_up_once(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)  # else the topic may not be there yet
    with AcknowledgedLoad(pair.source.bootstrap, TOPIC, PARTITIONS, records_per_second=RECORDS_PER_SECOND) as load:
        await asyncio.to_thread(load.wait_acknowledged, SOME_RECORDS)
        await in_sync_again(pair, LINK, HEALED_WITHIN_MS)
        for link in links:
            begun = load.acknowledged
            striking = asyncio.create_task(link.strike(lasting_s))
            while not striking.done():
                await demand_promise_is_kept(pair, load, policy)
            await striking
            meanwhile = load.acknowledged - begun
            assert meanwhile > SOME_RECORDS or lasting_s < FLAPPING_S, f"{meanwhile} acknowledged under {link}"
            await in_sync_again(pair, LINK, HEALED_WITHIN_MS)
            await demand_promise_is_kept(pair, load, policy)
            await asyncio.to_thread(load.wait_acknowledged, SOME_RECORDS)
            print(f"passed {link} for {lasting_s} s, {meanwhile} acknowledged meanwhile", flush=True)
        await asyncio.to_thread(load.finish)
    await demand_both_have_all(pair, load, TOPIC)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", [BLOCK, DEGRADE])
@pytest.mark.parametrize(
    ("end", "lasting_s"),
    [
        ("source", OUTLASTING_REQUESTS_S),
        ("target", OUTLASTING_REQUESTS_S),
        ("both", SHORT_S),
        ("both", OUTLASTING_REQUESTS_S),
    ],
)
async def test_acknowledged_records_are_at_the_standby_under_every_fault_of_the_line(
    end: str, lasting_s: float, policy: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy)
    await sync_link_under(links_in_turn(pair.proxy, pair.target_proxy), lasting_s, pair, policy, QUICK)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("policy", [BLOCK, DEGRADE])
@pytest.mark.parametrize("end", ["source", "target", "both"])
async def test_a_sync_link_gets_on_over_a_line_that_is_up_every_other_ten_seconds(
    end: str, policy: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy)
    links = links_in_turn(pair.proxy, pair.target_proxy, FLAPPING_LINES)
    await sync_link_under(links, FLAPPING_S, pair, policy, LINE)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", [BLOCK, DEGRADE])
@pytest.mark.parametrize("end", ["source", "target", "both"])
async def test_sync_links_outlast_long_faults(
    end: str, policy: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """A link, a mirror and a line for each fault, all at once; the time limits of producers and
    mirrors are the defaults.
    """
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy, whitelist=["nothing"], lines=len(LINE_FAULTS))
    await pair.make_sync(policy, DEGRADES_AFTER_MS)
    links = links_at_once(pair.source.lines, pair.target.lines)
    loads: list[AcknowledgedLoad] = []
    with ExitStack() as running:
        for number in range(len(links)):
            topic = f"{TOPIC}-{number}"
            await pair.create(topic, PARTITIONS)
            await pair.add_link(topic)
            pair.start_mirror({**LINE, "link.name": topic, **pair.reached_by_line(number)})
            await pair.caught_up_once(topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
            load = AcknowledgedLoad(
                pair.source.bootstrap,
                topic,
                PARTITIONS,
                records_per_second=RECORDS_PER_SECOND,
                settings={"linger.ms": 500},  # twenty-five loads on one machine
            )
            loads.append(running.enter_context(load))
            await asyncio.to_thread(load.wait_acknowledged, PARTITIONS)
            await in_sync_again(pair, topic, HEALED_WITHIN_MS)

        async def mirrored(number: int) -> object:
            topic = f"{TOPIC}-{number}"
            await demand_promise_is_kept(pair, loads[number], policy, topic, topic)
            return await pair.ends(pair.target, topic, PARTITIONS)

        async def heal(number: int) -> None:
            topic = f"{TOPIC}-{number}"
            await in_sync_again(pair, topic, HEALED_AT_ONCE_WITHIN_MS)
            await demand_promise_is_kept(pair, loads[number], policy, topic, topic)
            await asyncio.to_thread(loads[number].finish, HEALED_AT_ONCE_WITHIN_MS)
            await demand_both_have_all(pair, loads[number], topic)

        for mirror in pair.mirrors:
            await keeps_up(mirror, HEALED_AT_ONCE_WITHIN_MS)
        await strike_all(links, LONG_S, mirrored=mirrored, heal=heal)
