"""Produce throughput, and broker CPU for each GB: librdkafka and Java's ProducerPerformance, three
record sizes, acks 1 and all.

One producer, eight partitions, batches of 128 KiB, linger 5 ms, no compression. The sides take
turns within each case. Each broker gets some load before the measurement, and the first fifth of
the Java producer's records is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.loads import java_tools, librdkafka
from bench.loads.payloads import payloads, write_payload_file
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.measuring.warm_memory import touch_free_memory
from bench.peers.systems import MeasuredBroker, check_complete, create_topic, delete_topic_and_files

SIZES_BYTES = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}
LOAD_BYTES = {100: 300e6, 1_000: 1e9, 10_000: 1e9}
WARM_UP_BYTES = {100: 200e6, 1_000: 1.5e9}
ACKS = {"1": "acks=1", "all": "acks=all"}
JAVA_SETTINGS = {"batch.size": "131072", "linger.ms": "5", "buffer.memory": "67108864"}


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Measure all cases on all brokers, and record the samples in the plan."""
    warm_up(plan, brokers)
    for repeat in range(plan.repeats):
        for size_bytes, size in SIZES_BYTES.items():
            count = plan.scaled(LOAD_BYTES[size_bytes] / size_bytes, least=1_000)
            for acks, acks_name in ACKS.items():
                for broker in brokers:
                    topic = f"produce-{size_bytes}-{acks}-{repeat}"
                    values, usage = by_librdkafka(broker, f"{topic}-c", size_bytes, acks, count)
                    delete_topic_and_files(broker, f"{topic}-c")
                    plan.record("produce", f"librdkafka, {size}, {acks_name}", broker.side, usage, **values)
                    if Side.PEER in plan.sides:
                        _java(
                            plan,
                            broker,
                            topic=f"{topic}-java",
                            case=f"Java, {size}, {acks_name}",
                            size_bytes=size_bytes,
                            acks=acks,
                            count=count,
                        )


def warm_up(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Put an unmeasured load on each broker, so that Java compiles its hot code."""
    for broker in brokers:
        plan.say(f"warming up {broker.child.name}")
        create_topic(broker.bootstrap_servers, "warm-up")
        for size_bytes, load_bytes in WARM_UP_BYTES.items():
            values, count = payloads(size_bytes), plan.scaled(load_bytes / size_bytes, least=1_000)
            for acks in ACKS:
                librdkafka.produce(broker.bootstrap_servers, "warm-up", values, count, {"acks": acks})
        delete_topic_and_files(broker, "warm-up")


def by_librdkafka(
    broker: MeasuredBroker, topic: str, size_bytes: int, acks: str, count: int
) -> tuple[dict[str, float], Usage]:
    """Produce to a new topic, which is kept; return the figures of a sample, and the broker's use
    of CPU and memory.
    """
    create_topic(broker.bootstrap_servers, topic)
    touch_free_memory(count * size_bytes)
    with metered(broker.pid) as usage:
        taken_s = librdkafka.produce(broker.bootstrap_servers, topic, payloads(size_bytes), count, {"acks": acks})
    check_complete(broker.bootstrap_servers, topic, count)
    sent = count * size_bytes
    return {"mb_per_s": sent / 1e6 / taken_s, "cpu_s_per_gb": usage.cpu_s / (sent / 1e9)}, usage


def _java(plan: Plan, broker: MeasuredBroker, topic: str, case: str, size_bytes: int, acks: str, count: int) -> None:
    file = payload_file(plan.directory, size_bytes)
    create_topic(broker.bootstrap_servers, topic)
    settings = {**JAVA_SETTINGS, "acks": acks}
    touch_free_memory(count * size_bytes)
    with metered(broker.pid) as usage:
        produced = java_tools.produce(broker.bootstrap_servers, topic, file, count, settings)
    check_complete(broker.bootstrap_servers, topic, count)
    delete_topic_and_files(broker, topic)
    values = {
        "mb_per_s": produced.records_per_s * size_bytes / 1e6,
        "cpu_s_per_gb": usage.cpu_s / (count * size_bytes / 1e9),
        "p50_ms": produced.p50_ms,
        "p99_ms": produced.p99_ms,
    }
    plan.record("produce", case, broker.side, usage, **values)


def payload_file(directory: Path, size_bytes: int) -> Path:
    """The file of values of this size, written once a run."""
    file = directory / f"values-{size_bytes}.txt"
    if not file.exists():
        write_payload_file(file, size_bytes)
    return file
