"""Measures the time from a commit of a consumer group at the source until it can be read at the
target: a hundred groups commit at once, again and again.

Only Antipode is measured: MirrorMaker 2 translates offsets by samples, so its offset need never be
current.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side, percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers.systems import PARTITION_COUNT, STOP_TIMEOUT_MS, check_complete, create_topic, end_offset_sum
from bench.sections.mirrors.mirror import MirrorPair, antipode_pair
from runtime.process import OperationalFailure
from wire.client.client_errors import BrokerError, Unreachable
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import DEBUGGING_CONSUMER, LATEST_TIMESTAMP, PartitionKey

TOPIC = "grouped"
RECORDS = 10_000
GROUPS = 100
ROUNDS = 40
POLL_S = 0.005
CURRENT_WITHIN_S = 120


def measure(plan: Plan) -> None:
    """Samples go to the plan."""
    if Side.ANTIPODE not in plan.sides:
        return
    for repeat in range(plan.repeats):
        with antipode_pair(plan.directory / f"mirror-groups-{repeat}") as pair:
            create_topic(pair.source, TOPIC)
            librdkafka.produce(pair.source, TOPIC, payloads(100), RECORDS, {"acks": "1"})
            check_complete(pair.source, TOPIC, RECORDS)
            try:
                pid = pair.child.start()
                with metered(pid) as usage:
                    delays_ms = asyncio.run(_delays_ms(pair, plan.scaled(ROUNDS, least=3)))
                values = {f"p{rank}_ms": percentile(delays_ms, rank) for rank in (50, 99)} | {
                    "longest_ms": max(delays_ms)
                }
                plan.record("mirror-groups", f"{GROUPS} groups commit", pair.side, usage, **values)
            finally:
                pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)


async def _delays_ms(pair: MirrorPair, rounds: int) -> list[float]:
    """The time from each group's acknowledged commit until the target has it."""
    groups = [f"group-{number}" for number in range(GROUPS)]
    found: list[float] = []
    async with (
        KafkaClient(pair.source) as source,
        KafkaClient(pair.target, site_local=True) as target,
    ):
        await _until_all_came(target)
        place = await _fullest(target)
        for offset in range(1, rounds + 1):
            committed_at: dict[str, float] = {}
            # the target is watched while groups commit, or the first groups would wait for the last
            arriving = asyncio.create_task(_arrivals_ms(target, groups, committed_at, place, offset))
            for group in groups:
                await source.commit(group, {place: CommittedOffset(offset)})
                committed_at[group] = time.monotonic()
            found += await arriving
    return found


async def _arrivals_ms(
    target: KafkaClient, groups: Sequence[str], committed_at: Mapping[str, float], place: PartitionKey, offset: int
) -> list[float]:
    """The delay of each group; 0 where the target has the commit before its acknowledgement is
    here.
    """
    waiting, found = set(groups), []
    deadline = time.monotonic() + CURRENT_WITHIN_S
    while waiting:
        offsets = await target.committed_by_groups(sorted(waiting))
        now = time.monotonic()
        if now > deadline:
            raise OperationalFailure(f"{len(waiting)} groups are not at offset {offset} at the target")
        for group, at in offsets.items():
            if isinstance(at, dict) and place in at and at[place].offset == offset:
                waiting.discard(group)
                found.append((now - committed_at.get(group, now)) * 1000)
        await asyncio.sleep(POLL_S)
    return found


async def _fullest(target: KafkaClient) -> PartitionKey:
    """The partition with the most records: librdkafka may leave others empty, and the mirror
    carries no group beyond the end of a copy.
    """
    places = [(TOPIC, partition) for partition in range(PARTITION_COUNT)]
    ends = await target.offsets_at(places, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    return max(places, key=ends.__getitem__)


async def _until_all_came(target: KafkaClient) -> None:
    come = 0
    while come < RECORDS:
        await asyncio.sleep(POLL_S)
        with contextlib.suppress(BrokerError, Unreachable):
            come = await end_offset_sum(target, TOPIC)
