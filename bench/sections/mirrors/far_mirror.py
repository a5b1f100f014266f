"""Mirrors over long connections: one with a 100 ms round trip and a bandwidth limit, and one that
loses 1 % of its packets.

The simulated line is between the source and all its readers; TCP itself sees the delay and the
loss. Its capacity is measured just before the run, with as many plain TCP connections as the
mirrors have. The figure is the share of that capacity that the mirror uses while it works steadily.
On a line that loses packets, any connection carries a fraction of a megabyte a second, so both
mirrors get a connection for each partition of the topic there.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers.long_line import carried_mb_per_s, long_line, may_be_made, own_network, port_for_probes
from bench.peers.systems import PARTITION_COUNT, STOP_TIMEOUT_MS, check_complete, create_topic
from bench.sections.mirrors.mirror import MirrorPair, antipode_pair, arrived_mb_per_s, kafka_pair
from runtime.addresses import parse_host_port
from runtime.configuration import read_properties

TOPIC = "far"
RECORD_BYTES = 1_000
FETCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A line, the settings of both mirrors for it, and the duration of the measurement."""

    section: str
    name: str
    loss: float = 0
    mb_per_s: float = math.inf
    streams: int
    settings: Mapping[str, str]
    mirror_maker_settings: Mapping[str, str]
    waiting_bytes: float
    """More than the line carries during the measurement."""
    skipped_s: float
    looked_at_s: float


DELAY_MS = 50
FAR = Case(
    section="mirror-far",
    name="100 ms round trip, 25 MB/s",
    mb_per_s=25,
    streams=4,
    settings={
        "num.streams": "4",
        "fetch.max.bytes": str(FETCH_BYTES),
        "max.partition.fetch.bytes": str(FETCH_BYTES // 4),
        "queue.byte.size": str(4 * FETCH_BYTES),
    },
    mirror_maker_settings={"A->B.consumer.receive.buffer.bytes": "-1"},
    waiting_bytes=1e9,
    skipped_s=5,
    looked_at_s=20,
)
"""The settings of docs/running-two-sites.md for a long line: a fetch brings more than the line
holds. MirrorMaker 2 has such fetch sizes by default.
"""
LOSSY = Case(
    section="mirror-lossy",
    name="100 ms round trip, 1 % loss",
    loss=0.01,
    streams=PARTITION_COUNT,
    settings={"num.streams": str(PARTITION_COUNT)},
    # A fetch of four megabytes would not arrive within its request timeout.
    mirror_maker_settings={
        "tasks.max": str(PARTITION_COUNT),
        "A->B.consumer.max.partition.fetch.bytes": str(1024 * 1024),
    },
    waiting_bytes=200e6,
    skipped_s=10,
    looked_at_s=30,
)
UNBOUNDED_BUFFERS = {"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"}
"""Socket buffers for Apache Kafka: its own 100 KiB would limit a connection to that much in a round
trip.
"""


def measure_far(plan: Plan) -> None:
    """A line with a rate."""
    _measure(plan, FAR)


def measure_lossy(plan: Plan) -> None:
    """A line that loses packets."""
    _measure(plan, LOSSY)


def _measure(plan: Plan, case: Case) -> None:
    """Measure the pairs one after the other, and record the samples in the plan. Measures nothing
    if this machine cannot simulate such a line.
    """
    if not may_be_made():
        plan.say(f"{case.section} is left out: the line needs root and /dev/net/tun")
        return
    for repeat in range(plan.repeats):
        for side in plan.sides:
            with own_network(), _pair(side, plan.directory / f"{case.section}-{side}-{repeat}", case) as (pair, port):
                _measure_pair(plan, case, pair, port)


@contextmanager
def _pair(side: Side, directory: Path, case: Case) -> Iterator[tuple[MirrorPair, int]]:
    """The pair, and the port on which its source serves the mirror."""
    if side is Side.ANTIPODE:
        with antipode_pair(directory, case.settings) as pair:
            yield pair, _link_port(directory)
    else:
        with kafka_pair(directory, (TOPIC,), case.mirror_maker_settings, UNBOUNDED_BUFFERS) as pair:
            yield pair, parse_host_port(pair.source).port


def _link_port(directory: Path) -> int:
    """The port on which the first site's broker serves the other site."""
    (file,) = (directory / "sites" / "a").glob("broker-*/server.properties")
    listeners = dict(entry.split("://") for entry in read_properties(file)["listeners"].split(","))
    return parse_host_port(listeners["LINK"]).port


def _measure_pair(plan: Plan, case: Case, pair: MirrorPair, source_port: int) -> None:
    count = plan.scaled(case.waiting_bytes / RECORD_BYTES, least=10_000)
    looked_at_s, skipped_s = max(5.0, case.looked_at_s * plan.scale), max(2.0, case.skipped_s * plan.scale)
    plan.say(f"writing {count:,} records of 1 KB to the source of {pair.child.name}")
    create_topic(pair.source, TOPIC)
    librdkafka.produce(pair.source, TOPIC, payloads(RECORD_BYTES), count, librdkafka.EVENLY)
    check_complete(pair.source, TOPIC, count)
    probes = port_for_probes()
    with long_line([source_port, probes], delay_ms=DELAY_MS, loss=case.loss, mb_per_s=case.mb_per_s):
        plan.say("measuring the line")
        one = carried_mb_per_s(probes, streams=1, skip_s=skipped_s, duration_s=looked_at_s / 2)
        carried = carried_mb_per_s(probes, streams=case.streams, skip_s=skipped_s, duration_s=looked_at_s)
        plan.say(
            f"the line carries {one:.2f} MB/s in one connection, {carried:.2f} in {case.streams}; "
            f"starting {pair.child.name}"
        )
        try:
            began = time.monotonic()
            pid = pair.child.start()
            with metered(pid) as usage:
                arrived = asyncio.run(
                    arrived_mb_per_s(pair, began, TOPIC, RECORD_BYTES, skip_s=skipped_s, duration_s=looked_at_s)
                )
            values = {"mb_per_s": arrived, "line_share": arrived / carried, "line_mb_per_s": carried}
            plan.record(case.section, case.name, pair.side, usage, **values)
        finally:
            pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
