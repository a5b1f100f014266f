"""A mirror and its sites killed with -9, and its line cut. Promised: the target is a byte-exact
prefix of the source at every moment (M1), all records arrive after the fault has ended, and a
mirror that cannot continue reports the reason. Lines with other faults: test_line_faults.py.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.clients.steady_batches import LARGE, SteadyBatches
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.pairs.mirror_sites import Pair, start_pair
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.toxiproxy import Toxiproxy
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.chaos

TOPIC = "orders"
PARTITIONS = 4
KILLS_LONG = 300


async def started_pair(processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy | None = None) -> Pair:
    pair = await start_pair(processes, tmp_path, toxiproxy=toxiproxy)
    await pair.create(TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        await pair.produce(TOPIC, partition, 1)
    return pair


async def states(mirror: RunningProcess) -> set[str]:
    return {partition.state for partition in (await describe_mirror(mirror)).partitions}


async def test_a_mirror_killed_at_random_moments_leaves_a_prefix_and_catches_up(
    processes: Processes, tmp_path: Path
) -> None:
    """M10, MM-20."""
    pair = await started_pair(processes, tmp_path)
    chance = random.Random(20)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS) as load:
        mirror = pair.start_mirror()
        for _ in range(8):
            await load.wait_for(chance.randint(5, 150))
            mirror.kill()
            await pair.check_prefix(TOPIC, PARTITIONS) if await has_topic(pair) else None
            mirror.start()
    await pair.caught_up(TOPIC, PARTITIONS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("batches", "batches_max", "settings"),
    [
        pytest.param({}, 30, {}, id="small"),
        pytest.param(LARGE, 4, {}, id="large"),
        pytest.param(LARGE, 4, {"antipode.source.compression.type": "zstd"}, id="large-compressed"),
    ],
)
async def test_hundreds_of_kills_of_any_process_lose_repeat_and_reorder_nothing(
    processes: Processes, tmp_path: Path, batches: dict[str, int], batches_max: int, settings: Mapping[str, str]
) -> None:
    """M1, M10: mirror, source and target are killed with -9 at random moments under load, sometimes
    two of them.
    """
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    kills = int(os.environ.get("ANTIPODE_FAULTS") or KILLS_LONG)
    print(f"ANTIPODE_SEED={seed}")
    chance = random.Random(seed)
    pair = await start_pair(processes, tmp_path)
    await pair.create(TOPIC, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
    mirror = pair.start_mirror({"request.timeout.ms": "2000", **settings})
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS, **batches) as load:
        await load.wait_for(PARTITIONS)
        await pair.caught_up_once(TOPIC, PARTITIONS)
        for number in range(kills):
            victims = chance.sample(("mirror", "source", "target"), k=chance.choice((1, 1, 2)))
            print(f"{number}: {' and '.join(victims)}, {load.batches} batches", flush=True)
            if "mirror" in victims:
                mirror.kill()
                mirror.start()
            for site in (pair.source, pair.target):
                if site.name in [{"source": "a", "target": "b"}.get(victim) for victim in victims]:
                    site.process.kill()
                    await site.restart()
            await load.wait_for(chance.randint(0, batches_max))
            if number % 10 == 9:
                await pair.check_prefix(TOPIC, PARTITIONS)
                await pair.caught_up_once(TOPIC, PARTITIONS)
    await pair.caught_up(TOPIC, PARTITIONS)
    assert not re.search("checksum|CORRUPT", mirror.log_text())


async def has_topic(pair: Pair) -> bool:
    async with KafkaClient(pair.target.bootstrap, site_local=True) as client:
        topic = (await client.metadata()).topics.get(TOPIC)
        return topic is not None and len(topic.partitions) == PARTITIONS


async def test_a_killed_source_is_named_and_fetched_records_arrive(processes: Processes, tmp_path: Path) -> None:
    pair = await started_pair(processes, tmp_path)
    mirror = pair.start_mirror()
    await pair.caught_up(TOPIC, PARTITIONS)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS) as load:
        await load.wait_for(100)
        pair.source.process.kill()

    async def is_named_with_rising_lag() -> bool:
        reply = await describe_mirror(mirror)
        assert {partition.state for partition in reply.partitions} == {"SOURCE_UNAVAILABLE"}, reply.partitions
        assert all(partition.lag_records != 0 for partition in reply.partitions)
        return all(partition.lag_ms > 2000 for partition in reply.partitions)

    await eventually(is_named_with_rising_lag)

    async def has_delivered_all() -> bool:
        return (await describe_mirror(mirror)).queued_bytes == 0

    await eventually(has_delivered_all)
    await pair.source.restart()
    await pair.produce(TOPIC, 0, 2)
    await pair.caught_up(TOPIC, PARTITIONS)

    async def is_mirroring() -> bool:
        return await states(mirror) == {"MIRRORING"}

    await eventually(is_mirroring)


@pytest.mark.long
async def test_a_source_that_was_never_reached_is_named(processes: Processes, tmp_path: Path) -> None:
    pair = await started_pair(processes, tmp_path)
    pair.source.process.kill()
    mirror = pair.start_mirror()

    async def is_named() -> bool:
        reply = await describe_mirror(mirror)
        return reply.state == "SOURCE_UNAVAILABLE" and "source: " in reply.reason

    await eventually(is_named)
    await pair.source.restart()
    await pair.caught_up(TOPIC, PARTITIONS)


async def test_a_killed_target_is_filled_again_where_it_stopped(processes: Processes, tmp_path: Path) -> None:
    pair = await started_pair(processes, tmp_path)
    pair.start_mirror()
    await pair.caught_up(TOPIC, PARTITIONS)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS) as load:
        for _ in range(3):
            await load.wait_for(80)
            pair.target.process.kill()
            await load.wait_for(40)
            await pair.target.restart()
            await pair.check_prefix(TOPIC, PARTITIONS)
    await pair.caught_up(TOPIC, PARTITIONS)


async def test_a_cut_link_heals_within_seconds(processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy) -> None:
    pair = await started_pair(processes, tmp_path, toxiproxy)
    assert pair.proxy is not None
    mirror = pair.start_mirror()
    await pair.caught_up(TOPIC, PARTITIONS)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS) as load:
        await load.wait_for(50)
        for _ in range(3):
            with pair.proxy.cut_off():

                async def is_named() -> bool:
                    return await states(mirror) == {"SOURCE_UNAVAILABLE"}

                await eventually(is_named)
                await load.wait_for(50)

            async def has_healed() -> bool:
                return await states(mirror) == {"MIRRORING"}

            await eventually(has_healed)
    await pair.caught_up(TOPIC, PARTITIONS)


async def test_a_mirror_stops_in_time_while_the_source_is_dead(processes: Processes, tmp_path: Path) -> None:
    """Nothing is left to drain, so that nothing is waited for."""
    pair = await started_pair(processes, tmp_path)
    mirror = pair.start_mirror({"shutdown.drain.timeout.ms": "600000"})
    await pair.caught_up(TOPIC, PARTITIONS)
    pair.source.process.kill()
    mirror.stop()
    assert mirror.exit_code == 0
    assert '{"drained": true}' in mirror.log_text()


@pytest.mark.long
async def test_a_mirror_stops_in_time_while_the_target_is_dead(processes: Processes, tmp_path: Path) -> None:
    pair = await started_pair(processes, tmp_path)
    mirror = pair.start_mirror({"shutdown.drain.timeout.ms": "1000"})
    await pair.caught_up(TOPIC, PARTITIONS)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS) as load:
        await load.wait_for(50)
        pair.target.process.kill()
        await load.wait_for(50)
    mirror.stop()
    assert mirror.exit_code == 0
    await pair.target.restart()
    pair.start_mirror()
    await pair.caught_up(TOPIC, PARTITIONS)


async def test_memory_stays_bounded_while_the_target_takes_nothing(processes: Processes, tmp_path: Path) -> None:
    """MM-06: a full queue stops fetching; nothing is dropped, not even when the target is gone
    after all.
    """
    pair = await started_pair(processes, tmp_path)
    mirror = pair.start_mirror({"queue.byte.size": "1048576"})
    await pair.caught_up(TOPIC, PARTITIONS)
    pair.target.process.pause()
    for partition in range(PARTITIONS):
        await pair.produce(TOPIC, partition, 10, records=400, size=1000)

    async def is_full_and_not_more() -> bool:
        queued = (await describe_mirror(mirror)).queued_bytes
        assert queued <= 1_048_576 + 1_048_576
        # one batch at least: the next fetch may bring more than what is left of the room, and waits
        return queued > 400_000

    await eventually(is_full_and_not_more)
    pair.target.process.kill()
    await pair.target.restart()
    await pair.caught_up(TOPIC, PARTITIONS)
