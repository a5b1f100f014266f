"""Copies between two real brokers know where they begin, whichever mirror looks at them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.clients.kafka_clients import delete_records
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, reset_topics
from tests.support.pairs.mirror_sites import Pair, start_pair
from tests.support.processes.processes import Processes, RunningProcess
from wire.client.raw_client import KafkaClient
from wire.rules.topic_configs import COPY_BEGINS

pytestmark = pytest.mark.integration

WITHIN_MS = 120_000


async def is_in(mirror: RunningProcess, states: dict[str, str], reason: str = "") -> None:
    """Wait until each topic's only partition is in its state, and one of them for such a reason."""

    async def is_so() -> bool:
        partitions = (await describe_mirror(mirror)).partitions
        found = {partition.topic: partition.state for partition in partitions}
        assert found == states, [(partition.topic, partition.state, partition.reason) for partition in partitions]
        return any(reason in partition.reason for partition in partitions)

    await eventually(is_so, WITHIN_MS)


async def begins(pair: Pair, topic: str) -> str | None:
    """The beginning of the copy, as the target has it in the topic's configs."""
    async with KafkaClient(pair.target.bootstrap) as client:
        return (await client.topic_configs([topic]))[topic].get(COPY_BEGINS)


async def test_an_empty_copy_has_a_gap_for_records_that_expired_between_two_mirrors_but_not_for_earlier_ones(
    processes: Processes, tmp_path: Path
) -> None:
    """MM-31."""
    pair = await start_pair(processes, tmp_path)
    for topic in ("old", "orders"):
        await pair.create(topic)
    await pair.produce("old", 0, 4)
    await asyncio.to_thread(delete_records, pair.source.bootstrap, "old", 20)
    first = pair.start_mirror()
    await is_in(first, {"old": "MIRRORING", "orders": "MIRRORING"})
    await pair.caught_up("old", within_ms=WITHIN_MS)
    assert await pair.ends(pair.target, "old", 1) == [(20, 40)]
    assert (await begins(pair, "old"), await begins(pair, "orders")) == ("0:20", None)
    first.kill()
    await pair.produce("orders", 0, 4)
    await asyncio.to_thread(delete_records, pair.source.bootstrap, "orders", 30)
    second = pair.start_mirror()
    await is_in(second, {"old": "MIRRORING", "orders": "GAP"}, "30 offsets expired")
    assert await pair.ends(pair.target, "orders", 1) == [(0, 0)]
    await reset_topics(second, "orders")
    await pair.caught_up("orders", within_ms=WITHIN_MS)
    assert await pair.ends(pair.target, "orders", 1) == [(30, 40)]
    await is_in(second, {"old": "MIRRORING", "orders": "MIRRORING"})
    assert await begins(pair, "orders") == "0:30"
