"""Many partitions on a site of three brokers, replicated three times: creation, a broker's death,
its return, and its controlled shutdown.

1,000 partitions are created at once. Then a broker is killed and restarted with 3,000 partitions,
and with 10,000 for Antipode alone. The peer would need minutes to create so many. In the gap case a
paced producer with librdkafka's own back-off writes to eight partitions while a broker that leads
some of them does a controlled shutdown: the figure is the longest time without an acknowledgement
in one of its partitions.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.loads.paced_load import PacedLoad, PacedLoadProcess
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, cpu_s, memory, metered
from bench.peers.sides import site_of
from bench.peers.systems import PARTITION_COUNT, STOP_TIMEOUT_MS, MeasuredSite, create_topic
from bench.sections.sites.partition_watch import created_s, in_sync_s, led_again_s
from wire.client.raw_client import KafkaClient, call_client

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

TOPIC_PARTITIONS = 1_000
COUNTS = {Side.ANTIPODE: (3_000, 10_000), Side.PEER: (3_000,)}
GAP_TOPIC = "gap"
DESCRIBE_QUORUM, METADATA_TOPIC = 55, "__cluster_metadata"
GAP_LOAD_S, GAP_LOAD_S_MIN, GAP_STOP_AFTER_SHARE = 12.0, 6.0, 0.35
GAP_RECORDS_PER_S = 1_000
SETTLE_S = 1.0


def measure(plan: Plan) -> None:
    """Measure both sides, and record the samples in the plan."""
    for side in plan.sides:
        plan.say(f"starting three brokers of {side}")
        with site_of(side, plan.directory / f"partitions-{side}") as site:
            for repeat in range(plan.repeats):
                _stop_gap(plan, site, repeat)
            _many(plan, site)


def _many(plan: Plan, site: MeasuredSite) -> None:
    topics: list[str] = []
    size = plan.scaled(TOPIC_PARTITIONS, least=24)
    for count in COUNTS[site.side]:
        while len(topics) * TOPIC_PARTITIONS < count:
            topics.append(f"many-{len(topics)}")
            node_id = next(iter(site.children))
            with metered(site.pid(node_id)) as usage:
                answered_s, led_s, produced_s = created_s(site, topics[-1], size)
            values = {"answered_s": answered_s, "led_s": led_s, "produced_s": produced_s}
            plan.record("partitions", "create 1,000", site.side, usage, **values)
        _kill_and_return(plan, site, topics, f"{count:,} partitions")
        _kill_controller(plan, site, topics, f"{count:,} partitions, the controller dies")


def _kill_and_return(plan: Plan, site: MeasuredSite, topics: list[str], case: str) -> None:
    """Kill a broker and restart it, then stop it in order and restart it."""
    node_id = _controllers_neighbour(site)
    child, pid = site.children[node_id], site.pid(node_id)
    size = {"resident_mb": memory(pid).resident_bytes / 1e6, "descriptors": float(len(os.listdir(f"/proc/{pid}/fd")))}
    with metered(os.getpid()) as usage:
        began = time.monotonic()
        child.send(signal.SIGKILL)
        values = {"led_again_s": led_again_s(site, topics, without=node_id, began=began)}
        child.wait_ended(timeout_ms=STOP_TIMEOUT_MS)
        began = time.monotonic()
        child.start()
        values["back_after_kill_s"] = in_sync_s(site, topics, began=began)
        time.sleep(SETTLE_S)
        began = time.monotonic()
        child.stop(timeout_ms=STOP_TIMEOUT_MS)
        values["stop_s"] = time.monotonic() - began
        began = time.monotonic()
        child.start()
        values["back_after_stop_s"] = in_sync_s(site, topics, began=began)
    usage.cpu_s = cpu_s(site.pid(node_id))
    plan.record("partitions", case, site.side, usage, **values, **size)


def _kill_controller(plan: Plan, site: MeasuredSite, topics: list[str], case: str) -> None:
    """Kill the broker with the active controller, and restart it."""
    with metered(os.getpid()) as usage:
        node_id = _controller(site)
        began = time.monotonic()
        site.children[node_id].send(signal.SIGKILL)
        values = {"led_again_s": led_again_s(site, topics, without=node_id, began=began)}
    site.children[node_id].wait_ended(timeout_ms=STOP_TIMEOUT_MS)
    site.children[node_id].start()
    in_sync_s(site, topics, began=time.monotonic())
    plan.record("partitions", case, site.side, usage, **values)


def _controller(site: MeasuredSite) -> int:
    """Node id of the active controller. Metadata of a KRaft cluster names any broker as controller,
    so the quorum is asked there.
    """

    async def ask(client: KafkaClient) -> int:
        metadata = await client.metadata([])
        if site.side is Side.ANTIPODE:
            return metadata.controller_id
        connection = await client.connection(min(metadata.brokers))
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        answer = await connection.call(DESCRIBE_QUORUM, {"topics": topics})
        return int(answer.topics[0].partitions[0].leader_id)

    return call_client(site.bootstrap_servers, ask)


def _controllers_neighbour(site: MeasuredSite) -> int:
    """A broker that is not the controller: the measure is its death, not the election of another
    controller.
    """
    controller = _controller(site)
    return next(node_id for node_id in sorted(site.children, reverse=True) if node_id != controller)


def _stop_gap(plan: Plan, site: MeasuredSite, repeat: int) -> None:
    topic, node_id = f"{GAP_TOPIC}-{repeat}", _controllers_neighbour(site)
    create_topic(site.bootstrap_servers, topic, replication_factor=len(site.children))
    load = PacedLoad(
        bootstrap_servers=site.bootstrap_servers,
        topic=topic,
        partition_count=PARTITION_COUNT,
        records_per_s=GAP_RECORDS_PER_S,
        record_bytes=1_000,
        duration_s=max(GAP_LOAD_S_MIN, GAP_LOAD_S * plan.scale),
        result=str(_result(plan, topic)),
    )
    with metered(os.getpid()) as usage, PacedLoadProcess(load) as running:
        time.sleep(load.duration_s * GAP_STOP_AFTER_SHARE)
        led = _led_by(site, topic, node_id)
        stopped_ns = time.monotonic_ns()
        site.children[node_id].stop(timeout_ms=STOP_TIMEOUT_MS)
        stop_s = (time.monotonic_ns() - stopped_ns) / 1e9
        acknowledged = running.finish()
    site.children[node_id].start()
    in_sync_s(site, [topic], began=time.monotonic())
    gap_ms = longest_gap_ms(acknowledged["partition"], acknowledged["acknowledged_ns"], led, after_ns=stopped_ns)
    _record_gap(plan, site, usage, gap_ms, stop_s)


def _record_gap(plan: Plan, site: MeasuredSite, usage: Usage, gap_ms: float, stop_s: float) -> None:
    plan.record("partitions", "orderly stop under load", site.side, usage, gap_ms=gap_ms, stop_s=stop_s)


def _result(plan: Plan, topic: str) -> Path:
    return plan.directory / f"{topic}.npz"


def _led_by(site: MeasuredSite, topic: str, node_id: int) -> list[int]:
    async def ask(client: KafkaClient) -> list[int]:
        found = (await client.metadata([topic])).topics[topic].partitions
        return [index for index, partition in found.items() if partition.leader_id == node_id]

    return call_client(site.bootstrap_servers, ask)


def longest_gap_ms(
    partitions: NDArray[int64], acknowledged_ns: NDArray[int64], led: list[int], *, after_ns: int
) -> float:
    """The longest time in ms without an acknowledgement in any of these partitions, among gaps that
    end after `after_ns`; 0 without gaps.
    """
    import numpy as np

    longest = 0.0
    for partition in led:
        times = np.sort(acknowledged_ns[partitions == partition])
        gaps = np.diff(times)[times[1:] > after_ns]
        longest = max(longest, float(gaps.max(initial=0)) / 1e6)
    return longest
