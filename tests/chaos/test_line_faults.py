"""Links over lines that have every fault of the table, at either end of the mirror and at both,
while records keep coming.

Promised on exact links: at every moment the target is a byte-exact prefix of the source (M1),
nothing is shown that the source does not have (M2), and all of it arrives once the lines are well,
without anybody's help. On translate links, with Apache Kafka at the source, at the target and at
both ends: the target has each record once, in order, its bytes unchanged. Where the mirror writes
in transactions, this holds for read-committed readers, and the mirror counts the records beyond
that which other readers see. The order of the faults is by chance; the seed is printed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.clients.steady_batches import LARGE, SteadyBatches
from tests.support.pairs.link_faults import (
    BOTH_WAYS,
    FLAPPING_LINES,
    FLAPPING_S,
    HEALED_AT_ONCE_WITHIN_MS,
    HEALED_WITHIN_MS,
    LINE_FAULTS,
    LONG_S,
    LONGER_S,
    OUTLASTING_REQUESTS_S,
    SHORT_S,
)
from tests.support.pairs.many_lines import (
    LARGE_FRAMES,
    LARGE_FRAMES_OF_LINE,
    LINE,
    QUICK,
    StruckLink,
    large_load_of,
    links_at_once,
    links_in_turn,
    load_of,
    strike_all,
)
from tests.support.pairs.mirror_calls import keeps_up
from tests.support.pairs.mirror_sites import start_struck_pair
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

TOPIC = "orders"
PARTITIONS = 3


async def exact_link_under(
    lasting_s: float,
    end: str,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
    settings: Mapping[str, str] = QUICK,
    batches: Mapping[str, int] | None = None,
) -> None:
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy)
    await pair.create(TOPIC, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
    mirror = pair.start_mirror(settings)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS, **(batches or {})) as load:
        await load.wait_for(PARTITIONS)
        await pair.caught_up_once(TOPIC, PARTITIONS)
        for link in links_in_turn(pair.proxy, pair.target_proxy):
            await link.strike(lasting_s)
            await pair.check_prefix(TOPIC, PARTITIONS)
            await pair.caught_up_once(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)
            print(f"passed {link} for {lasting_s} s", flush=True)
    await pair.caught_up(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)
    assert not re.search("checksum|CORRUPT", mirror.log_text())


@pytest.mark.parametrize(
    "end", [pytest.param("source", marks=pytest.mark.long), pytest.param("target", marks=pytest.mark.long), "both"]
)
async def test_an_exact_link_stays_a_prefix_and_heals_by_itself(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    await exact_link_under(SHORT_S, end, processes, tmp_path, toxiproxy)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("end", ["source", "target"])
async def test_an_exact_link_of_large_batches_stays_a_prefix_and_heals_by_itself(
    end: str, compression: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """Each fault strikes within an answer or a request."""
    settings = {"request.timeout.ms": "2000", f"antipode.{end}.compression.type": compression}
    await exact_link_under(SHORT_S, end, processes, tmp_path, toxiproxy, settings, LARGE)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("end", ["source", "target"])
async def test_an_exact_link_outlasts_long_faults(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    await exact_link_under(LONG_S, end, processes, tmp_path, toxiproxy)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["source", "target", "both"])
async def test_an_exact_link_whose_frames_are_large_outlasts_faults_that_strike_within_them(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """A receiver of a large frame wakes only after a good part of it. A line that delivers little
    at a time must not stall the receiver.
    """
    await exact_link_under(OUTLASTING_REQUESTS_S, end, processes, tmp_path, toxiproxy, LARGE_FRAMES)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("end", ["source", "target", "both"])
async def test_an_exact_link_gets_on_over_a_line_that_is_up_every_other_ten_seconds(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy)
    await pair.create(TOPIC, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
    pair.start_mirror(LINE)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS, batches_per_second=40) as load:
        await load.wait_for(PARTITIONS)
        await pair.caught_up_once(TOPIC, PARTITIONS)
        for link in links_in_turn(pair.proxy, pair.target_proxy, FLAPPING_LINES):
            begun = await pair.check_prefix(TOPIC, PARTITIONS)
            await link.strike(FLAPPING_S)
            over = await pair.check_prefix(TOPIC, PARTITIONS)
            # All records that the mirror had when the line went down for the first time have
            # arrived, and later ones.
            assert all(end > had for (_, end), (had, _) in zip(over, begun, strict=True)), f"{link}: {begun}, {over}"
            await pair.caught_up_once(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)
            print(f"passed {link}: (source, target) {begun} before, {over} in the end", flush=True)
    await pair.caught_up(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)


@pytest.mark.long
@pytest.mark.parametrize("end", ["source", "target"])
async def test_large_frames_cross_a_line_that_brings_a_byte_or_three_at_a_time(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy)
    proxy = pair.proxy or pair.target_proxy
    assert proxy is not None
    await pair.create(TOPIC, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
    pair.start_mirror()
    await pair.produce(TOPIC, 0, 1)
    await pair.caught_up(TOPIC, PARTITIONS)
    for stream in BOTH_WAYS:
        await asyncio.to_thread(proxy.add, "slicer", stream=stream, average_size=2, size_variation=1, delay=0)
    for partition in range(PARTITIONS):
        await pair.produce(TOPIC, partition, 2, records=20, size=10_000)
    await pair.caught_up(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("end", "lasting_s"),
    [
        *((end, lasting_s) for end in ("source", "target") for lasting_s in LONGER_S),
        ("both", LONG_S),
        ("both", LONGER_S[0]),
    ],
)
async def test_exact_links_outlast_faults_longer_than_every_time_limit(
    end: str, lasting_s: float, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    await exact_links_under(lasting_s, end, processes, tmp_path, toxiproxy, LINE, load_of)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("end", ["source", "target"])
async def test_exact_links_of_large_batches_outlast_faults_longer_than_a_request(
    end: str, compression: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """With the default sizes of a mirror's fetches and buffers: over little bandwidth a response
    takes longer than the timeout of its request.
    """
    settings = {**LARGE_FRAMES_OF_LINE, f"antipode.{end}.compression.type": compression}
    await exact_links_under(LONG_S, end, processes, tmp_path, toxiproxy, settings, large_load_of)


async def exact_links_under(
    lasting_s: float,
    end: str,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
    settings: Mapping[str, str],
    loads: Callable[[StruckLink, str, str, int], SteadyBatches],
) -> None:
    """A link, a mirror and a line (or two) for each fault, all at once."""
    pair = await start_struck_pair(end, processes, tmp_path, toxiproxy, whitelist=["nothing"], lines=len(LINE_FAULTS))
    links = links_at_once(pair.source.lines, pair.target.lines)
    async with AsyncExitStack() as running:
        for number, link in enumerate(links):
            topic = f"{TOPIC}-{number}"
            await pair.create(topic, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
            await pair.add_link(topic)
            pair.start_mirror({**settings, "link.name": topic, **pair.reached_by_line(number)})
            load = await running.enter_async_context(loads(link, pair.source.bootstrap, topic, PARTITIONS))
            await load.wait_for(1)
            await pair.caught_up_once(topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)

        async def mirrored(number: int) -> object:
            return await pair.ends(pair.target, f"{TOPIC}-{number}", PARTITIONS)

        async def heal(number: int) -> None:
            topic = f"{TOPIC}-{number}"
            await pair.check_prefix(topic, PARTITIONS)
            await pair.caught_up_once(topic, PARTITIONS, within_ms=HEALED_AT_ONCE_WITHIN_MS)

        for mirror in pair.mirrors:
            await keeps_up(mirror, HEALED_AT_ONCE_WITHIN_MS)
        await strike_all(links, lasting_s, mirrored=mirrored, heal=heal)
    for number in range(len(links)):
        await pair.caught_up(f"{TOPIC}-{number}", PARTITIONS, within_ms=HEALED_WITHIN_MS)
