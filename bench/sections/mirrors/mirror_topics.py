"""Mirrors: many topics from scratch. How long after its start a mirror has copied the one record
that waits in each partition.

The topics are created at the source, four partitions each with a record in every one, before the
mirror is started; it finds them, creates them at the target, and copies the records. As in
`mirror.py`, the pairs are measured one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from kio.schema.errors import ErrorCode

from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import cpu_s, metered
from bench.peers.systems import STOP_TIMEOUT_MS
from bench.sections.mirrors.mirror import MirrorPair, antipode_pair, kafka_pair
from runtime.process import OperationalFailure
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.ids import DEBUGGING_CONSUMER, LATEST_TIMESTAMP

TOPIC_COUNTS = (200, 1_000)
PARTITIONS = 4
CREATED_AT_ONCE = 100
PRODUCED_AT_ONCE = 32
MIRRORED_WITHIN_S = 300
POLL_S = 0.2


def measure(plan: Plan) -> None:
    """Measure each number of topics on its own pairs, and record the samples in the plan."""
    for count in TOPIC_COUNTS:
        scaled = plan.scaled(count, least=3)
        topics = [f"many-{number}" for number in range(scaled)]
        for side in plan.sides:
            directory = plan.directory / f"mirror-topics-{count}-{side}"
            with antipode_pair(directory) if side is Side.ANTIPODE else kafka_pair(directory, ("many-.*",)) as pair:
                plan.say(f"creating {scaled:,} topics of {PARTITIONS} partitions at the source of {pair.child.name}")
                asyncio.run(_fill(pair.source, topics))
                _measure_pair(plan, pair, topics, f"{count:,} topics", directory)


def _measure_pair(plan: Plan, pair: MirrorPair, topics: Sequence[str], case: str, directory: Path) -> None:
    plan.say(f"starting {pair.child.name} in {directory.name}")
    try:
        began = time.monotonic()
        pid = pair.child.start()
        with metered(pid) as usage:
            asyncio.run(_mirrored(pair, topics))
            took_s = time.monotonic() - began
        plan.record("mirror-topics", case, pair.side, usage, all_mirrored_s=took_s, cpu_s=cpu_s(pid))
    finally:
        pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)


async def _fill(bootstrap_servers: str, topics: Sequence[str]) -> None:
    """Create the topics and put a record into each partition."""
    records = encode_batch([Record(None, b"one record", int(time.time() * 1000))])
    async with KafkaClient(bootstrap_servers) as client:
        for first in range(0, len(topics), CREATED_AT_ONCE):
            some = topics[first : first + CREATED_AT_ONCE]
            wanted = [NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1) for topic in some]
            for outcome in await client.create_topics(wanted):
                if outcome.error_code not in (
                    ErrorCode.none,
                    ErrorCode.topic_already_exists,
                ):  # a retry finds the latter
                    raise OperationalFailure(f"topic {outcome.name} cannot be created: {outcome.error_code.name}")
        places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
        for first in range(0, len(places), PRODUCED_AT_ONCE):
            some_places = places[first : first + PRODUCED_AT_ONCE]
            await asyncio.gather(*(client.produce(topic, partition, records) for topic, partition in some_places))


async def _mirrored(pair: MirrorPair, topics: Sequence[str]) -> None:
    """Watch the target until every partition has its record."""
    missing = {(pair.target_topic(topic), partition) for topic in topics for partition in range(PARTITIONS)}
    deadline = time.monotonic() + MIRRORED_WITHIN_S
    async with KafkaClient(pair.target, site_local=True, retry_budget_ms=1) as client:
        while missing:
            missing -= await _come(client, missing)
            if missing and (pair.child.pid() is None or time.monotonic() > deadline):
                raise OperationalFailure(
                    f"{pair.child.name} left {len(missing)} partitions out: {pair.child.log_tail()}"
                )
            await asyncio.sleep(POLL_S if missing else 0)


async def _come(client: KafkaClient, places: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the partitions that have a record."""
    try:
        found = (await client.metadata()).topics
        there = [place for place in places if place[0] in found and place[1] in found[place[0]].partitions]
        ends = await client.offsets_at(there, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER) if there else {}
    except KafkaClientError:
        return set()
    return {place for place, end in ends.items() if end > 0}
