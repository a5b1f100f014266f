"""Mirrors: drains of small and large records, and of compressed ones. Uses the pairs of
`mirror.py`, and mirrors one topic after the other on each.

Megabytes are counted before any compression by producers.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, memory, metered
from bench.measuring.warm_memory import touch_free_memory
from bench.peers.systems import STOP_TIMEOUT_MS, check_complete, create_topic
from bench.sections.mirrors.mirror import (
    Drain,
    MirrorPair,
    antipode_pair,
    beside_the_brokers,
    beside_the_bytes,
    kafka_pair,
    watch_drain,
)

DRAIN_BYTES = 500e6


class Load(NamedTuple):
    """The records that wait at the source."""

    record_bytes: int
    codec: str

    @property
    def topic(self) -> str:
        """The topic of the load."""
        return f"drain-{self.record_bytes}-{self.codec}"

    @property
    def case(self) -> str:
        """The name of the load in the table."""
        return f"{self.record_bytes} B, {self.codec}"


LOADS = (Load(100, "none"), Load(10_000, "none"), Load(1_000, "lz4"), Load(1_000, "zstd"))


def measure(plan: Plan) -> None:
    """Measure the pairs one after the other, and record the samples in the plan."""
    for side in plan.sides:
        directory = plan.directory / f"mirror-drains-{side}"
        topics = [load.topic for load in LOADS]
        with antipode_pair(directory) if side is Side.ANTIPODE else kafka_pair(directory, topics) as pair:
            for load in LOADS:
                _measure_load(plan, pair, load)


def _measure_load(plan: Plan, pair: MirrorPair, load: Load) -> None:
    count, produced_mb_per_s = written(plan, pair.source, load)
    drain, values, usage = drained(plan, pair, load, count)
    values["produced_mb_per_s"] = produced_mb_per_s
    values |= beside_the_brokers(pair, load.topic, count * load.record_bytes, drain.mb_per_s)
    if load.codec == "none":
        values |= beside_the_bytes(pair)
    plan.record("mirror-drains", load.case, pair.side, usage, **values)


def written(plan: Plan, source: str, load: Load) -> tuple[int, float]:
    """Write a load to the source; return the number of records and the rate in MB a second."""
    count = plan.scaled(DRAIN_BYTES / load.record_bytes, least=1_000)
    plan.say(f"writing {count:,} records of {load.case} to the source")
    create_topic(source, load.topic)
    settings = {**librdkafka.EVENLY, "compression.type": load.codec}
    took_s = librdkafka.produce(source, load.topic, payloads(load.record_bytes), count, settings)
    check_complete(source, load.topic, count)
    return count, count * load.record_bytes / 1e6 / took_s


def drained(plan: Plan, pair: MirrorPair, load: Load, count: int) -> tuple[Drain, dict[str, float], Usage]:
    """Start the mirror, wait until it has drained the load, and stop it; return the drain, its
    figures for a sample, and the load of the machine.
    """
    plan.say(f"starting {pair.child.name}")
    touch_free_memory(count * load.record_bytes)
    try:
        began = time.monotonic()
        pid = pair.child.start()
        with metered(pid) as usage:
            drain = asyncio.run(watch_drain(pair, pid, began, load.topic, count, record_bytes=load.record_bytes))
        values = {**drain._asdict(), "peak_mb": memory(pid).peak_bytes / 1e6}
    finally:
        pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
    return drain, values, usage
