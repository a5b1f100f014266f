"""Consume throughput, and broker CPU for each GB: librdkafka without a group and Java's
ConsumerPerformance, three record sizes.

One consumer reads eight partitions that were written just before, so that the page cache has them.
Rates cover fetching only: librdkafka's begins with its first records, and Java's excludes the
joining of its group. The first read of each topic is a warm-up and is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.loads import java_tools, librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, check_complete, create_topic, delete_topic_and_files
from bench.sections.brokers.produce import SIZES_BYTES

LOAD_BYTES_MIN = 20_000_000
LOAD_BYTES = {100: 300e6, 1_000: 2e9, 10_000: 2e9}


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Measure all cases on all brokers, and record the samples in the plan."""
    for size_bytes, size in SIZES_BYTES.items():
        topic, count = (
            f"consume-{size_bytes}",
            plan.scaled(LOAD_BYTES[size_bytes] / size_bytes, least=LOAD_BYTES_MIN // size_bytes),
        )
        for broker in brokers:
            plan.say(f"writing {count:,} records of {size} to {broker.child.name}")
            create_topic(broker.bootstrap_servers, topic)
            librdkafka.produce(broker.bootstrap_servers, topic, payloads(size_bytes), count, {"acks": "1"})
            check_complete(broker.bootstrap_servers, topic, count)
            librdkafka.consume(broker.bootstrap_servers, topic, PARTITION_COUNT, count, {})
        for _ in range(plan.repeats):
            for broker in brokers:
                values, usage = by_librdkafka(broker, topic, size_bytes, count)
                plan.record("consume", f"librdkafka, {size}", broker.side, usage, **values)
                if Side.PEER in plan.sides:
                    _java(plan, broker, topic=topic, case=f"Java, {size}", size_bytes=size_bytes, count=count)
        for broker in brokers:
            delete_topic_and_files(broker, topic)


def by_librdkafka(broker: MeasuredBroker, topic: str, size_bytes: int, count: int) -> tuple[dict[str, float], Usage]:
    """Read a topic; return the figures of a sample, and the broker's use of CPU and memory."""
    with metered(broker.pid) as usage:
        records_per_s = librdkafka.consume(broker.bootstrap_servers, topic, PARTITION_COUNT, count, {})
    read = count * size_bytes
    return {"mb_per_s": records_per_s * size_bytes / 1e6, "cpu_s_per_gb": usage.cpu_s / (read / 1e9)}, usage


def _java(plan: Plan, broker: MeasuredBroker, topic: str, case: str, size_bytes: int, count: int) -> None:
    with metered(broker.pid) as usage:
        consumed = java_tools.consume(broker.bootstrap_servers, topic, count)
    values = {
        "mb_per_s": consumed.fetch_mb_per_s,
        "cpu_s_per_gb": usage.cpu_s / (count * size_bytes / 1e9),
        "whole_mb_per_s": consumed.whole_mb_per_s,
    }
    plan.record("consume", case, broker.side, usage, **values)
