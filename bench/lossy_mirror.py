"""Mirrors over a line of 100 ms round trip that loses 1 % of its packets, between the source and everything that reads it.

A TCP connection on such a line carries a fraction of a megabyte a second, whoever uses it, so both mirrors get a connection for each
partition of the topic. What the line carries is what as many plain TCP connections carry on it, measured just before in the same place;
the figure is the share of that which the mirror brings, over a stretch of time in which it is under way.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench import librdkafka
from bench.figures import Side
from bench.lossy_line import carried_mb_per_s, lossy_line, may_be_made, own_network, port_for_probes
from bench.mirror import MirrorPair, antipode_pair, arrived_mb_per_s, kafka_pair
from bench.payloads import payloads
from bench.plan import Plan
from bench.processes import metered
from bench.systems import PARTITION_COUNT, STOP_TIMEOUT_MS, check_complete, create_topic
from runtime.addresses import parse_host_port
from runtime.configuration import read_properties

TOPIC = "lossy"
DELAY_MS = 50
LOSS = 0.01
RECORD_BYTES = 1_000
WAITING_BYTES = 200e6
"""More than the line carries in the time that is looked at."""
SKIPPED_S, LOOKED_AT_S = 10.0, 30.0
EVENLY = {"acks": "1", "sticky.partitioning.linger.ms": "0"}
"""Each record to a partition of its own choice, so that every connection has something to carry."""
STREAMS = PARTITION_COUNT
MIRROR_MAKER_SETTINGS = {"tasks.max": str(STREAMS), "A->B.consumer.max.partition.fetch.bytes": str(1024 * 1024)}
"""A fetch of four megabytes would not arrive within its request timeout."""


def measure(plan: Plan) -> None:
    """The pairs one after the other; samples go to the plan. Nothing where such a line cannot be made."""
    if not may_be_made():
        plan.say("mirror-lossy is left out: the line needs root and /dev/net/tun")
        return
    for repeat in range(plan.repeats):
        for side in plan.sides:
            directory = plan.directory / f"mirror-lossy-{side}-{repeat}"
            with own_network():
                if side is Side.ANTIPODE:
                    with antipode_pair(directory, {"num.streams": str(STREAMS)}) as pair:
                        _measure_pair(plan, pair, link_port(directory))
                else:
                    with kafka_pair(directory, (TOPIC,), MIRROR_MAKER_SETTINGS) as pair:
                        _measure_pair(plan, pair, parse_host_port(pair.source).port)


def link_port(directory: Path) -> int:
    """The port at which the first site's broker serves the other site."""
    (file,) = (directory / "sites" / "a").glob("broker-*/server.properties")
    listeners = dict(entry.split("://") for entry in read_properties(file)["listeners"].split(","))
    return parse_host_port(listeners["LINK"]).port


def _measure_pair(plan: Plan, pair: MirrorPair, source_port: int) -> None:
    count = plan.scaled(WAITING_BYTES / RECORD_BYTES, least=10_000)
    looked_at_s, skipped_s = max(5.0, LOOKED_AT_S * plan.scale), max(2.0, SKIPPED_S * plan.scale)
    plan.say(f"writing {count:,} records of 1 KB to the source of {pair.child.name}")
    create_topic(pair.source, TOPIC)
    librdkafka.produce(pair.source, TOPIC, payloads(RECORD_BYTES), count, EVENLY)
    check_complete(pair.source, TOPIC, count)
    probes = port_for_probes()
    with lossy_line([source_port, probes], delay_ms=DELAY_MS, loss=LOSS):
        plan.say("measuring the line")
        one = carried_mb_per_s(probes, streams=1, skip_s=skipped_s, duration_s=looked_at_s / 2)
        carried = carried_mb_per_s(probes, streams=STREAMS, skip_s=skipped_s, duration_s=looked_at_s)
        plan.say(
            f"the line carries {one:.2f} MB/s in one connection, {carried:.2f} in {STREAMS}; starting {pair.child.name}"
        )
        try:
            began = time.monotonic()
            pid = pair.child.start()
            with metered(pid) as usage:
                arrived = asyncio.run(
                    arrived_mb_per_s(pair, began, TOPIC, RECORD_BYTES, skip_s=skipped_s, duration_s=looked_at_s)
                )
            values = {"mb_per_s": arrived, "line_share": arrived / carried, "line_mb_per_s": carried}
            plan.record("mirror-lossy", "100 ms round trip, 1 % loss", pair.side, usage, **values)
        finally:
            pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
