"""acks=all with three replicas: throughput, CPU of all brokers for each GB, and latency under a
paced load.

A site of three brokers and a cluster of three Kafka nodes, one after the other, never at the same
time. One librdkafka producer, eight partitions, batches of 128 KiB as in the produce section; the
paced load is idempotent, 2,000 records of 1 KB a second.
"""

from __future__ import annotations

from pathlib import Path

from bench.loads import librdkafka
from bench.loads.paced_load import PacedLoad, PacedLoadProcess
from bench.loads.payloads import payloads
from bench.measuring.figures import percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import cpu_s, metered
from bench.measuring.warm_memory import touch_free_memory
from bench.peers.sides import site_of
from bench.peers.systems import MeasuredSite, check_complete, create_topic, delete_topic

SIZES_BYTES = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}
LOAD_BYTES = {100: 200e6, 1_000: 500e6, 10_000: 500e6}
WARM_UP_BYTES = {1_000: 300e6, 100: 10e6}
PACED_RECORDS_PER_S = 2_000
PACED_S, PACED_SKIPPED_SHARE = 15.0, 0.2
REPLICAS = 3


def measure(plan: Plan) -> None:
    """Measure both sides, and record the samples in the plan."""
    for side in plan.sides:
        plan.say(f"starting three brokers of {side}")
        with site_of(side, plan.directory / f"replicated-{side}") as site:
            warm_up(plan, site.bootstrap_servers, replication_factor=REPLICAS)
            for repeat in range(plan.repeats):
                for size_bytes, size in SIZES_BYTES.items():
                    _throughput(plan, site, size_bytes, size, repeat)
                _latency(plan, site, repeat)


def warm_up(plan: Plan, servers: str, *, replication_factor: int) -> None:
    """Put an unmeasured load on the site, in large batches and in small ones, so that Java compiles
    its hot code.
    """
    create_topic(servers, "warm-up", replication_factor=replication_factor)
    for size_bytes, batch_bytes in ((1_000, 131_072), (100, 1_000)):
        count = plan.scaled(WARM_UP_BYTES[size_bytes] / size_bytes, least=1_000)
        settings = {"acks": "all", "batch.size": str(batch_bytes)}
        librdkafka.produce(servers, "warm-up", payloads(size_bytes), count, settings)
    delete_topic(servers, "warm-up")


def _throughput(plan: Plan, site: MeasuredSite, size_bytes: int, size: str, repeat: int) -> None:
    topic, servers = f"replicated-{size_bytes}-{repeat}", site.bootstrap_servers
    count = plan.scaled(LOAD_BYTES[size_bytes] / size_bytes, least=1_000)
    create_topic(servers, topic, replication_factor=REPLICAS)
    touch_free_memory(REPLICAS * count * size_bytes)
    cpu_before_s = site_cpu_s(site)
    with metered(site.pid(next(iter(site.children)))) as usage:
        taken_s = librdkafka.produce(servers, topic, payloads(size_bytes), count, {"acks": "all"})
    used_s = site_cpu_s(site) - cpu_before_s
    check_complete(servers, topic, count)
    delete_topic(servers, topic)
    sent = count * size_bytes
    values = {"mb_per_s": sent / 1e6 / taken_s, "cpu_s_per_gb": used_s / (sent / 1e9)}
    plan.record("replicated", f"librdkafka, {size}, acks=all", site.side, usage, **values)


def _latency(plan: Plan, site: MeasuredSite, repeat: int) -> None:
    topic = f"paced-{repeat}"
    create_topic(site.bootstrap_servers, topic, replication_factor=REPLICAS)
    with metered(site.pid(next(iter(site.children)))) as usage:
        latencies_ms = paced_latencies_ms(
            site.bootstrap_servers, topic, plan.directory, duration_s=max(3.0, PACED_S * plan.scale)
        )
    delete_topic(site.bootstrap_servers, topic)
    plan.record("replicated", "paced, 2 MB/s of 1 KB", site.side, usage, **latency_values(latencies_ms))


def latency_values(latencies_ms: list[float]) -> dict[str, float]:
    """The three percentiles."""
    return {
        f"p{name}_ms": percentile(latencies_ms, percent) for name, percent in (("50", 50), ("99", 99), ("999", 99.9))
    }


def paced_latencies_ms(servers: str, topic: str, directory: Path, *, duration_s: float) -> list[float]:
    """The times from the producer's call to its acknowledgement, for all records except the first
    ones.
    """
    load = PacedLoad(
        bootstrap_servers=servers,
        topic=topic,
        partition_count=8,
        records_per_s=PACED_RECORDS_PER_S,
        record_bytes=1_000,
        duration_s=duration_s,
        result=str(directory / f"{topic}.npz"),
    )
    with PacedLoadProcess(load) as running:
        acknowledged = running.finish()
    times = acknowledged["acknowledged_ns"]
    counted = times >= times.min() + int(PACED_SKIPPED_SHARE * duration_s * 1e9)
    found: list[float] = acknowledged["latency_ms"][counted].tolist()
    return found


def site_cpu_s(site: MeasuredSite) -> float:
    """CPU seconds that the brokers' processes have used since they started."""
    return sum(cpu_s(site.pid(node_id)) for node_id in site.children)
