"""Mirrors: how fast one drains 2 GB that are waiting, how much CPU that takes, and how soon it
begins. Its lag under a steady load is measured by `mirror_latency.py`.

Antipode mirrors between two Antipode sites, MirrorMaker 2 between two Apache Kafkas. The pairs run
one after the other, never at the same time. Each mirror process is started when the records are
already waiting. Throughput and CPU cover the time from the first records at the target to the last;
the start is a separate figure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import cpu_s, memory, metered
from bench.measuring.warm_memory import touch_free_memory
from bench.peers import antipode, apache_kafka, mirror_maker
from bench.peers.systems import STOP_TIMEOUT_MS, MeasuredBroker, check_complete, create_topic, end_offset_sum
from bench.sections.mirrors import brokers_alone, bytes_alone
from dr.drill.environment import Environment
from runtime.children import Child
from runtime.process import OperationalFailure
from wire.client.client_errors import BrokerError, Unreachable
from wire.client.raw_client import KafkaClient

DRAINED = "drained"
RECORD_BYTES = 1_000
DRAIN_BYTES = 2e9
DRAIN_WITHIN_S = 300
POLL_S = 0.02


class MirrorPair(Struct, frozen=True, kw_only=True):
    """A source, a target, and the mirror between them, which is not running yet."""

    side: Side
    source: str
    target_broker: MeasuredBroker
    child: Child
    target_topic: Callable[[str], str]
    source_child: Child | None = None
    """The source's broker, where it is a process of its own."""

    @property
    def target(self) -> str:
        """The target's address."""
        return self.target_broker.bootstrap_servers


class Drain(NamedTuple):
    """The figures of one drain."""

    first_record_s: float
    whole_s: float
    mb_per_s: float
    cpu_s_per_gb: float
    cpu_s_per_gb_with_start: float
    target_cores: float


def measure(plan: Plan) -> None:
    """Measure the pairs one after the other, each anew for each repeat, and record the samples in
    the plan.
    """
    for repeat in range(plan.repeats):
        for side in plan.sides:
            directory = plan.directory / f"mirror-{side}-{repeat}"
            pair_of_side = antipode_pair if side is Side.ANTIPODE else kafka_pair
            with pair_of_side(directory) as pair:
                _measure_pair(plan, pair)


@contextmanager
def antipode_pair(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[MirrorPair]:
    """Two linked Antipode sites; their mirror has been stopped and given these settings."""
    with antipode.sites(directory, "--sites", "a,b", "--no-proxy") as environment:
        child = stopped_mirror(environment, settings or {})
        yield MirrorPair(
            side=Side.ANTIPODE,
            source=environment.sites["a"].bootstrap_servers,
            target_broker=antipode.broker_of(environment, "b"),
            child=child,
            target_topic=str,
        )


def stopped_mirror(environment: Environment, settings: Mapping[str, str]) -> Child:
    """The mirror of link a-b, stopped, with settings added to its file."""
    child = environment.processes(process="mirror-a-b")[0].child()
    child.stop(timeout_ms=STOP_TIMEOUT_MS)
    with (child.directory / "mirror.properties").open("a", encoding="utf-8") as file:
        file.writelines(f"{key}={value}\n" for key, value in settings.items())
    return child


@contextmanager
def kafka_pair(
    directory: Path,
    topics: Sequence[str] = (DRAINED,),
    settings: Mapping[str, str] | None = None,
    broker_settings: Mapping[str, str] | None = None,
) -> Iterator[MirrorPair]:
    """Two Apache Kafkas and MirrorMaker 2, which mirrors topics of these names and gets
    `settings`.
    """
    with ExitStack() as running:
        source, target = (
            running.enter_context(
                apache_kafka.lone_broker(directory / name, name=f"kafka-{name}", settings=broker_settings)
            )
            for name in ("a", "b")
        )
        ends = (source.bootstrap_servers, target.bootstrap_servers)
        child = mirror_maker.child(directory / "mirror-maker", *ends, topics, settings)
        yield MirrorPair(
            side=Side.PEER,
            source=source.bootstrap_servers,
            target_broker=target,
            child=child,
            target_topic=mirror_maker.mirrored_topic,
            source_child=source.child,
        )


def _measure_pair(plan: Plan, pair: MirrorPair) -> None:
    count = plan.scaled(DRAIN_BYTES / RECORD_BYTES, least=2_000)
    plan.say(f"writing {count:,} records of 1 KB to the source of {pair.child.name}")
    create_topic(pair.source, DRAINED)
    took_s = librdkafka.produce(pair.source, DRAINED, payloads(RECORD_BYTES), count, librdkafka.EVENLY)
    check_complete(pair.source, DRAINED, count)
    plan.say(f"starting {pair.child.name}")
    try:
        _measure_running(plan, pair, count, produced_mb_per_s=count * RECORD_BYTES / 1e6 / took_s)
    finally:
        pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)


def _measure_running(plan: Plan, pair: MirrorPair, count: int, *, produced_mb_per_s: float) -> None:
    touch_free_memory(count * RECORD_BYTES)
    began = time.monotonic()
    pid = pair.child.start()
    with metered(pid) as usage:
        drain = asyncio.run(watch_drain(pair, pid, began, DRAINED, count))
    peak_mb = memory(pid).peak_bytes / 1e6
    values = {**drain._asdict(), "produced_mb_per_s": produced_mb_per_s, "peak_mb": peak_mb}
    pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
    values |= beside_the_brokers(pair, DRAINED, count * RECORD_BYTES, drain.mb_per_s)
    values |= beside_the_bytes(pair)
    plan.record("mirror", "drain, 1 KB", pair.side, usage, **values)


def beside_the_brokers(pair: MirrorPair, topic: str, size_bytes: float, mb_per_s: float) -> dict[str, float]:
    """The throughput of two Antipode brokers without a mirror between them, and the share of it
    that a drain reached; nothing for the peer. The mirror has stopped and both ends have the topic.
    """
    if pair.side is not Side.ANTIPODE:
        return {}
    carried = brokers_alone.carried_mb_per_s(
        read_from=pair.target, write_to=pair.source, topic=pair.target_topic(topic), size_bytes=size_bytes
    )
    return {"brokers_mb_per_s": carried, "brokers_share": mb_per_s / carried}


def beside_the_bytes(pair: MirrorPair) -> dict[str, float]:
    """The share of our mirror's CPU time that moving the bytes alone takes, if the bytes are
    mirrored unchanged; nothing for the peer.
    """
    return {} if pair.side is not Side.ANTIPODE else {"relay_cpu_s_per_gb": bytes_alone.relayed_cpu_s_per_gb()}


async def watch_drain(
    pair: MirrorPair, pid: int, began: float, source_topic: str, count: int, *, record_bytes: int = RECORD_BYTES
) -> Drain:
    """Watch the target's log ends until all records of this size are there. Raises
    OperationalFailure if the mirror ends or is too slow.
    """
    topic = pair.target_topic(source_topic)
    first: _Look | None = None
    async with KafkaClient(pair.target, site_local=True, retry_budget_ms=1) as client:
        while (look := await _look(client, topic, pair, pid)).come < count:
            if look.come and first is None:
                first = look
            if pair.child.pid() is None or look.at_s - began > DRAIN_WITHIN_S:
                raise OperationalFailure(f"{pair.child.name} mirrored {look.come} of {count}: {pair.child.log_tail()}")
            await asyncio.sleep(POLL_S)
    first = first or look
    drained = (count - first.come) * record_bytes
    took_s = max(look.at_s - first.at_s, POLL_S)
    return Drain(
        first_record_s=first.at_s - began,
        whole_s=look.at_s - began,
        mb_per_s=drained / 1e6 / took_s,
        cpu_s_per_gb=(look.mirror_cpu_s - first.mirror_cpu_s) / (max(drained, record_bytes) / 1e9),
        cpu_s_per_gb_with_start=look.mirror_cpu_s / (count * record_bytes / 1e9),
        target_cores=(look.target_cpu_s - first.target_cpu_s) / took_s,
    )


class _Look(NamedTuple):
    at_s: float
    come: int
    mirror_cpu_s: float
    target_cpu_s: float


async def _look(client: KafkaClient, topic: str, pair: MirrorPair, pid: int) -> _Look:
    come = await _come(client, topic)
    return _Look(time.monotonic(), come, cpu_s(pid), cpu_s(pair.target_broker.pid))


async def arrived_mb_per_s(
    pair: MirrorPair, began: float, source_topic: str, record_bytes: int, *, skip_s: float, duration_s: float
) -> float:
    """The throughput at the target during a period that begins this long after the first record's
    arrival.
    """
    topic = pair.target_topic(source_topic)
    async with KafkaClient(pair.target, site_local=True, retry_budget_ms=1) as client:
        while not await _come(client, topic):
            if pair.child.pid() is None or time.monotonic() - began > DRAIN_WITHIN_S:
                raise OperationalFailure(f"{pair.child.name} mirrored nothing: {pair.child.log_tail()}")
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(skip_s)
        before, looked_at = await end_offset_sum(client, topic), time.monotonic()
        await asyncio.sleep(duration_s)
        come, took_s = await end_offset_sum(client, topic) - before, time.monotonic() - looked_at
    return come * record_bytes / 1e6 / took_s


async def _come(client: KafkaClient, topic: str) -> int:
    """The number of the topic's records at the target; 0 while the mirror has not created the
    topic.
    """
    try:
        return await end_offset_sum(client, topic)
    except (BrokerError, Unreachable):
        return 0
