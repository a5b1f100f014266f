"""Compaction: how fast a log with many values for few keys is compacted, and how much that delays
producers.

One broker. Records of 1 KB with 20,000 different keys are written to a topic whose
min.compaction.lag.ms delays the cleaner; the config is removed while a paced load writes to another
topic. The time begins with the response to that change and ends when the log has only compacted
segments and the active one. It includes up to LOOK_MS until the cleaner checks the log; both sides
have one cleaner thread.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from bench.loads.paced_load import PacedLoad, PacedLoadProcess
from bench.loads.payloads import payloads
from bench.measuring.figures import percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.peers.sides import broker_of
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, create_topic, wait_until
from bench.sections.sites.replicated import PACED_RECORDS_PER_S, latency_values, warm_up
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient, call_client

RECORD_BYTES = 1_000
LOAD_BYTES = 500e6
KEY_COUNT = 20_000
RECORDS_PER_BATCH = 128
DISTINCT_BATCHES = 400
SEGMENT_BYTES = 32 * 1024 * 1024
LOOK_MS = 200
QUIET_S, LOADED_S = 5.0, 8.0
WARM_UP_S = 1.0
DONE_WITHIN_S = 120
KEPT_SHARE_MAX = 0.5
"""A log that still has more than this share of its bytes is not compacted yet: one record for each
key and the active segment are smaller.
"""
HELD_BACK = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(SEGMENT_BYTES)}
UNFINISHED = (".cleaned", ".swap")
SEED = 11


def measure(plan: Plan) -> None:
    """Measure both sides, one after the other, and record the samples in the plan."""
    for side in plan.sides:
        settings = {"log.cleaner.backoff.ms": str(LOOK_MS)}
        with broker_of(side, plan.directory / f"compaction-{side}", settings=settings) as broker:
            warm_up(plan, broker.bootstrap_servers, replication_factor=1)
            for repeat in range(plan.repeats):
                _measure(plan, broker, repeat)


def _measure(plan: Plan, broker: MeasuredBroker, repeat: int) -> None:
    topic, beside = f"compacted-{repeat}", f"beside-{repeat}"
    size_bytes = plan.scaled(LOAD_BYTES, least=3 * SEGMENT_BYTES)
    plan.say(f"writing {size_bytes / 1e6:,.0f} MB of {KEY_COUNT:,} keys to {broker.child.name}")
    configs = {**HELD_BACK, "min.compaction.lag.ms": "86400000"}
    create_topic(broker.bootstrap_servers, topic, partition_count=1, configs=configs)
    create_topic(broker.bootstrap_servers, beside)
    _write(broker.bootstrap_servers, topic, size_bytes)
    folder = broker.child.directory / "data" / f"{topic}-0"
    written = _log_bytes(folder)
    quiet_s = max(2.0, QUIET_S * plan.scale)
    load = PacedLoad(
        bootstrap_servers=broker.bootstrap_servers,
        topic=beside,
        partition_count=PARTITION_COUNT,
        records_per_s=PACED_RECORDS_PER_S,
        record_bytes=RECORD_BYTES,
        duration_s=quiet_s + max(2.0, LOADED_S * plan.scale),
        result=str(plan.directory / f"{beside}.npz"),
    )
    with PacedLoadProcess(load) as running, metered(broker.pid) as usage:
        time.sleep(quiet_s)
        began_ns = _let_go(broker.bootstrap_servers, topic)
        wait_until(lambda: _is_compacted(folder, written), within_s=DONE_WITHIN_S, what=f"compaction of {topic}")
        done_ns = time.monotonic_ns()
        acknowledged = running.finish()
    taken_s = (done_ns - began_ns) / 1e9
    plan.record(
        "compaction", "1 KB, 20,000 keys", broker.side, usage, mb_per_s=written / 1e6 / taken_s, taken_s=taken_s
    )
    at_ns, latency_ms = acknowledged["acknowledged_ns"], acknowledged["latency_ms"]
    quiet = (at_ns > at_ns.min() + int(WARM_UP_S * 1e9)) & (at_ns < began_ns)
    loaded = (at_ns >= began_ns) & (at_ns <= done_ns)
    for case, chosen in (("produce before it", quiet), ("produce beside it", loaded)):
        _record(plan, case, broker, usage, latency_ms[chosen].tolist())


def _record(plan: Plan, case: str, broker: MeasuredBroker, usage: Usage, latencies_ms: list[float]) -> None:
    values = {**latency_values(latencies_ms), "max_ms": percentile(latencies_ms, 100)}
    plan.record("compaction", case, broker.side, usage, **values)


def _write(servers: str, topic: str, size_bytes: int) -> None:
    """Write batches of random keys, always the same batches."""
    chance = random.Random(SEED)
    values, now_ms = payloads(RECORD_BYTES), time.time_ns() // 1_000_000
    batches = [
        encode_batch(
            [
                Record(key=b"key-%06d" % chance.randrange(KEY_COUNT), value=chance.choice(values), timestamp_ms=now_ms)
                for _ in range(RECORDS_PER_BATCH)
            ]
        )
        for _ in range(DISTINCT_BATCHES)
    ]

    async def write(client: KafkaClient) -> None:
        sent = 0
        while sent < size_bytes:
            batch = batches[sent // len(batches[0]) % len(batches)]
            await client.produce(topic, 0, batch, acks=1)
            sent += len(batch)

    call_client(servers, write)


def _let_go(servers: str, topic: str) -> int:
    """Allow the cleaner to compact the topic; returns the time."""

    async def alter(client: KafkaClient) -> int:
        await client.alter_topic_configs(topic, to_set={"min.compaction.lag.ms": "0"})
        return time.monotonic_ns()

    return call_client(servers, alter)


def _log_bytes(folder: Path) -> int:
    """Bytes of batches in the log's segments, without the files that are being written or
    deleted.
    """
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # renamed while we looked
    return total


def _is_compacted(folder: Path, written_bytes: int) -> bool:
    is_over = not any(path.name.endswith(UNFINISHED) for path in folder.iterdir())
    return is_over and _log_bytes(folder) < KEPT_SHARE_MAX * written_bytes
