"""Offsets of consumer groups that a mirror carries: clamped to the end of the copy, and kept for as
long as the source keeps them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.eventually import eventually
from tests.support.pairs.mirror_sites import start_pair
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

pytestmark = pytest.mark.integration


async def test_group_offsets_come_along_clamped_and_go_back_only_after_a_reset(
    processes: Processes, tmp_path: Path
) -> None:
    """M3, M4: also a group at offset 0, and one that is ahead of the log."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    for partition in range(2):
        await pair.produce("orders", partition, 3)
    pair.start_mirror()
    await pair.caught_up("orders", 2)
    keys = [("orders", 0), ("orders", 1)]
    async with KafkaClient(pair.source.bootstrap) as source, KafkaClient(pair.target.bootstrap) as target:

        async def carried(first: int, second: int) -> None:
            async def is_there() -> bool:
                found = await target.committed("billing", keys)
                assert [found[key].offset for key in keys] == [first, second], found
                return True

            await eventually(is_there)

        await source.commit("billing", {keys[0]: CommittedOffset(0), keys[1]: CommittedOffset(20, 0, "mine")})
        await carried(0, 20)
        assert (await target.committed("billing", keys))[keys[1]].metadata == "mine"
        await source.commit("billing", {keys[0]: CommittedOffset(1000), keys[1]: CommittedOffset(5)})
        await carried(30, 5)
        await pair.produce("orders", 0, 1)
        await carried(40, 5)


@pytest.mark.long
async def test_offsets_outlive_the_standbys_retention_as_long_as_they_live_at_the_source(
    processes: Processes, tmp_path: Path
) -> None:
    """M3: a member keeps the group alive at the source; the group's partition is quiet, and at the
    standby it has no members.
    """
    settings = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    }
    pair = await start_pair(processes, tmp_path, settings=settings)
    await pair.create("orders")
    await pair.produce("orders", 0, 3)
    pair.start_mirror()
    await pair.caught_up("orders")
    key, began_s = ("orders", 0), time.monotonic()
    options = {"bootstrap.servers": pair.source.bootstrap, "group.id": "billing", "enable.auto.commit": False}
    consumer = Consumer(options)
    async with KafkaClient(pair.source.bootstrap) as source, KafkaClient(pair.target.bootstrap) as target:
        try:
            consumer.subscribe(["orders"])

            def has_joined() -> bool:
                consumer.poll(0.2)
                return bool(consumer.assignment())

            await eventually(has_joined)
            consumer.commit(offsets=[TopicPartition("orders", 0, 20)], asynchronous=False)
            await source.commit("simple", {key: CommittedOffset(10)})

            async def is_so(client: KafkaClient, group: str, offset: int) -> bool:
                found = (await client.committed(group, [key])).get(key)
                assert found is not None
                assert found.offset == offset, found
                return True

            await eventually(lambda: is_so(target, "billing", 20))
            await eventually(lambda: is_so(target, "simple", 10))
            # The source forgets the simple group's, and a minute later the standby does; the other
            # one stays at both.
            await eventually(lambda: is_so(source, "simple", -1))
            await eventually(lambda: is_so(target, "simple", -1))
            assert time.monotonic() - began_s > 60
            await is_so(source, "billing", 20)
            await is_so(target, "billing", 20)
        finally:
            consumer.close()
