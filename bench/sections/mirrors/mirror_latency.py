"""Mirrors: how long after its acknowledgement at the source a record can be read at the target, at
1,000 records/s and at 10 MB/s.

The pairs run one after the other, as in `mirror.py`. Beside each measurement, a loopback echo shows
how long the machine delays a message at that moment. For our mirror, the time of the slowest
hundredth of the records is attributed to the stages of `hops.py`. The mirror records the times
itself (`traced_mirror.py`), which costs it some microseconds a batch.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bench.loads.lag import Journeys, followed
from bench.measuring.figures import Side, percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.peers.systems import STOP_TIMEOUT_MS, create_topic
from bench.sections.mirrors.hops import attribution, stages_ms
from bench.sections.mirrors.mirror import MirrorPair, antipode_pair, kafka_pair
from bench.sections.mirrors.traced_mirror import read_ways
from runtime.compiled import ROOT
from runtime.process import OperationalFailure
from wire.client.client_errors import BrokerError, Unreachable
from wire.client.raw_client import KafkaClient

BYTES_PER_S = {"steady-small": 1e6, "steady": 10e6}
"""The rate by topic: 1,000 and 10,000 records a second."""
STEADY_S, SKIPPED_S = 25.0, 5.0
ECHO_ENDS_WITHIN_S = 10.0
MADE_WITHIN_S = 90.0
POLL_S = 0.1
TRACE = "trace.npz"


def measure(plan: Plan) -> None:
    """Measure the pairs one after the other, each anew for each repeat, and record the samples in
    the plan.
    """
    for repeat in range(plan.repeats):
        for side in plan.sides:
            directory = plan.directory / f"mirror-latency-{side}-{repeat}"
            with (
                _traced_pair(directory) if side is Side.ANTIPODE else kafka_pair(directory, tuple(BYTES_PER_S)) as pair
            ):
                _measure_pair(plan, pair, directory)


@contextmanager
def _traced_pair(directory: Path) -> Iterator[MirrorPair]:
    with antipode_pair(directory) as pair:
        file = pair.child.directory / "mirror.properties"
        command = (sys.executable, "-m", "bench.sections.mirrors.traced_mirror", str(file), str(directory / TRACE))
        environment = {**pair.child.environment, "PYTHONPATH": str(ROOT)}
        yield replace(pair, child=replace(pair.child, command=command, environment=environment))


def _measure_pair(plan: Plan, pair: MirrorPair, directory: Path) -> None:
    for topic, followed_load in follow_loads(plan, pair, directory, BYTES_PER_S).items():
        is_ours = pair.side is Side.ANTIPODE
        slow = _slowest(followed_load.journeys, directory / TRACE, topic) if is_ours else {}
        values = {**followed_load.values(), **slow}
        plan.record("mirror-latency", case_of(BYTES_PER_S[topic]), pair.side, followed_load.usage, **values)


class FollowedLoad(NamedTuple):
    """The records of one steady load, the mirror's use of CPU and memory during it, and the
    loopback echo of the same time.
    """

    journeys: Journeys
    usage: Usage
    echo: Mapping[str, float]

    def values(self) -> dict[str, float]:
        """The figures of a sample."""
        lags_ms = self.journeys.lags_ms
        return {
            "lag_p50_ms": percentile(lags_ms, 50),
            "lag_p99_ms": percentile(lags_ms, 99),
            "lag_p999_ms": percentile(lags_ms, 99.9),
            "lag_max_ms": max(lags_ms),
            "cores": self.usage.cpu_s / self.usage.wall_s,
            **self.echo,
        }


def case_of(bytes_per_s: float) -> str:
    """The name of a steady load in the table."""
    return f"steady, {bytes_per_s / 1e6:g} MB/s"


def follow_loads(
    plan: Plan, pair: MirrorPair, directory: Path, bytes_per_s: Mapping[str, float]
) -> dict[str, FollowedLoad]:
    """Create topics, start the mirror, follow a steady load through each topic, stop the mirror."""
    for topic in bytes_per_s:
        create_topic(pair.source, topic)
    plan.say(f"starting {pair.child.name}")
    found: dict[str, FollowedLoad] = {}
    try:
        pid = pair.child.start()
        asyncio.run(_until_made(pair, bytes_per_s))
        for topic, rate in bytes_per_s.items():
            plan.say(f"{rate / 1e6:g} MB/s through {pair.child.name}")
            found[topic] = _follow(plan, pair, pid=pid, directory=directory, topic=topic, bytes_per_s=rate)
    finally:
        pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
    return found


async def _until_made(pair: MirrorPair, topics: Collection[str]) -> None:
    """Wait until the mirror has created the topics at the target. Raises OperationalFailure if the
    mirror ends or takes too long.
    """
    deadline = time.monotonic() + MADE_WITHIN_S
    async with KafkaClient(pair.target, site_local=True, retry_budget_ms=1) as client:
        for topic in topics:
            while not await _is_made(client, pair.target_topic(topic)):
                if pair.child.pid() is None or time.monotonic() > deadline:
                    raise OperationalFailure(f"{pair.child.name} does not make {topic}: {pair.child.log_tail()}")
                await asyncio.sleep(POLL_S)


async def _is_made(client: KafkaClient, topic: str) -> bool:
    try:
        found = (await client.metadata([topic])).topics.get(topic)
    except (BrokerError, Unreachable):
        return False
    if found is None or not found.partitions:
        return False
    return all(partition.leader_id >= 0 for partition in found.partitions.values())


def _follow(plan: Plan, pair: MirrorPair, pid: int, directory: Path, topic: str, bytes_per_s: float) -> FollowedLoad:
    duration_s = max(3.0, STEADY_S * plan.scale)
    with metered(pid) as usage, _echo(directory / f"echo-{topic}.json", duration_s) as echo:
        journeys = followed(
            pair.source,
            pair.target,
            (topic, pair.target_topic(topic)),
            directory,
            bytes_per_s=bytes_per_s,
            duration_s=duration_s,
            skip_s=max(1.0, SKIPPED_S * plan.scale),
        )
    return FollowedLoad(journeys, usage, echo)


@contextmanager
def _echo(result: Path, duration_s: float) -> Iterator[dict[str, float]]:
    """Run an echo while the block runs; its figures are available after the block."""
    figures: dict[str, float] = {}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.loads.loopback_echo", str(duration_s), str(result)], cwd=ROOT
    )
    try:
        yield figures
        if process.wait(timeout=duration_s + ECHO_ENDS_WITHIN_S) != 0:
            raise OperationalFailure(f"the loopback echo ended with {process.returncode}")
        figures.update(json.loads(result.read_text(encoding="utf-8")))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _slowest(journeys: Journeys, trace: Path, topic: str) -> Mapping[str, float]:
    """The mean by stage of the slowest records of all partitions."""
    import numpy as np

    rows = []
    for partition in np.unique(journeys.partition):
        chosen = journeys.partition == partition
        fetches, appends = read_ways(trace, topic, int(partition))
        rows.append(
            stages_ms(
                offsets=journeys.offset[chosen],
                acknowledged_ns=journeys.acknowledged_ns[chosen],
                came_ns=journeys.came_ns[chosen],
                fetches=fetches,
                appends=appends,
            )
        )
    return {f"slow_{stage}_ms": mean for stage, mean in attribution(np.concatenate(rows)).items()}
