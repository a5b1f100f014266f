"""Mirrors that write in transactions: how fast two daemons that share a link drain a backlog,
compared with MirrorMaker 2 with `exactly.once.source.support`.

Antipode runs a translate link between two Antipode sites; MirrorMaker 2 runs four tasks in one
process between two Apache Kafkas. The measure is the view of a read-committed reader: last stable
offsets, from the first records at the target to the last. The offsets include markers, fewer than
one in a thousand. Afterwards, the headers of all batches show that each record is there exactly
once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import cpu_s, memory, metered
from bench.measuring.warm_memory import touch_free_memory
from bench.peers import antipode, apache_kafka, mirror_maker
from bench.peers.systems import PARTITION_COUNT, STOP_TIMEOUT_MS, MeasuredBroker, check_complete, create_topic
from clients.reader.core.committed import skipped_batches
from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.children import Child
from runtime.process import OperationalFailure
from wire.batches.record_batch import iterate_headers
from wire.client.client_errors import BrokerError, Unreachable
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP, READ_COMMITTED

TOPIC = "in-transactions"
PLACES = [(TOPIC, partition) for partition in range(PARTITION_COUNT)]
RECORD_BYTES = 1_000
DRAIN_BYTES = 1e9
DAEMONS = 2
DRAIN_WITHIN_S = 300
SETTLED_WITHIN_S = 60
POLL_S = 0.02
FETCH_BYTES = 8 * 1024 * 1024
IN_TRANSACTIONS: Final = {"antipode.sharing.enabled": "true", "antipode.target.transactions": "true"}
EXACTLY_ONCE: Final = {"exactly.once.source.support": "enabled", "A->B.consumer.isolation.level": "read_committed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A source, a target, and the processes that mirror between them, which are not running yet."""

    side: Side
    source: str
    target_broker: MeasuredBroker
    children: Sequence[Child]
    prefix: str

    @property
    def target(self) -> str:
        """The target's address."""
        return self.target_broker.bootstrap_servers


def measure(plan: Plan) -> None:
    """Measure the pairs one after the other, each anew for each repeat, and record the samples in
    the plan.
    """
    for repeat in range(plan.repeats):
        for side in plan.sides:
            directory = plan.directory / f"mirror-transactions-{side}-{repeat}"
            with antipode_pair(directory) if side is Side.ANTIPODE else kafka_pair(directory) as pair:
                _measure_pair(plan, pair)


@contextmanager
def antipode_pair(directory: Path) -> Iterator[Pair]:
    """Two sites of ours without a link between them, and the daemons of one translate link."""
    with antipode.sites(directory, "--sites", "a,b", "--no-link", "--no-proxy") as environment:
        source, target = (environment.sites[name].bootstrap_servers for name in ("a", "b"))
        yield Pair(
            side=Side.ANTIPODE,
            source=source,
            target_broker=antipode.broker_of(environment, "b"),
            children=[
                antipode.translate_daemon(
                    directory / f"mirror-{number}", source, target, [TOPIC], source_alias="A", settings=IN_TRANSACTIONS
                )
                for number in range(DAEMONS)
            ],
            prefix="A.",
        )


@contextmanager
def kafka_pair(directory: Path) -> Iterator[Pair]:
    """Two Apache Kafkas and MirrorMaker 2 with exactly-once on."""
    with ExitStack() as running:
        source, target = (
            running.enter_context(apache_kafka.lone_broker(directory / name, name=f"kafka-{name}"))
            for name in ("a", "b")
        )
        ends = (source.bootstrap_servers, target.bootstrap_servers)
        child = mirror_maker.child(directory / "mirror-maker", *ends, [TOPIC], EXACTLY_ONCE)
        yield Pair(
            side=Side.PEER,
            source=source.bootstrap_servers,
            target_broker=target,
            children=[child],
            prefix=mirror_maker.mirrored_topic(""),
        )


def _measure_pair(plan: Plan, pair: Pair) -> None:
    count = plan.scaled(DRAIN_BYTES / RECORD_BYTES, least=2_000)
    plan.say(f"writing {count:,} records of 1 KB to the source of {pair.children[0].name}")
    create_topic(pair.source, TOPIC)
    librdkafka.produce(pair.source, TOPIC, payloads(RECORD_BYTES), count, librdkafka.EVENLY)
    check_complete(pair.source, TOPIC, count)
    touch_free_memory(count * RECORD_BYTES)
    plan.say(f"starting {', '.join(child.name for child in pair.children)}")
    try:
        pids = [child.start() for child in pair.children]
        with metered(pids[0]) as usage:
            values = asyncio.run(_drain(pair, pids, count))
        values["peak_mb"] = sum(memory(pid).peak_bytes for pid in pids) / 1e6
        asyncio.run(_check_once(pair, count))
    finally:
        for child in pair.children:
            child.stop(timeout_ms=STOP_TIMEOUT_MS)
    plan.record("mirror-transactions", f"drain, 1 KB, {DAEMONS} daemons", pair.side, usage, **values)


class _Look(NamedTuple):
    at_s: float
    come: int
    mirror_cpu_s: float
    target_cpu_s: float


async def _drain(pair: Pair, pids: Sequence[int], count: int) -> dict[str, float]:
    """Wait until a read-committed reader has everything. Raises OperationalFailure if a mirror ends
    or all are too slow.
    """
    began = time.monotonic()
    first: _Look | None = None
    async with KafkaClient(pair.target, site_local=True, retry_budget_ms=1) as client:
        while (look := await _look(client, pair, pids)).come < count:
            if look.come and first is None:
                first = look
            if any(child.pid() is None for child in pair.children) or look.at_s - began > DRAIN_WITHIN_S:
                raise OperationalFailure(f"mirrored {look.come} of {count}: {pair.children[0].log_tail()}")
            await asyncio.sleep(POLL_S)
    first = first or look
    drained, took_s = (count - first.come) * RECORD_BYTES, max(look.at_s - first.at_s, POLL_S)
    return {
        "mb_per_s": drained / 1e6 / took_s,
        "cpu_s_per_gb": (look.mirror_cpu_s - first.mirror_cpu_s) / (max(drained, RECORD_BYTES) / 1e9),
        "target_cores": (look.target_cpu_s - first.target_cpu_s) / took_s,
    }


async def _look(client: KafkaClient, pair: Pair, pids: Sequence[int]) -> _Look:
    try:
        places = [(pair.prefix + topic, partition) for topic, partition in PLACES]
        come = sum((await client.offsets_at(places, LATEST_TIMESTAMP, isolation_level=READ_COMMITTED)).values())
    except (BrokerError, Unreachable):
        come = 0  # the mirror has not created the topic
    return _Look(time.monotonic(), come, sum(cpu_s(pid) for pid in pids), cpu_s(pair.target_broker.pid))


async def _check_once(pair: Pair, count: int) -> None:
    """Raises OperationalFailure unless a read-committed reader gets each record exactly once, when
    all transactions have ended.
    """
    deadline = time.monotonic() + SETTLED_WITHIN_S
    async with KafkaClient(pair.target, site_local=True) as client:
        while (found := sum([await _committed(client, pair.prefix + TOPIC, place) for _, place in PLACES])) != count:
            if time.monotonic() > deadline:
                raise OperationalFailure(f"{count} records were sent, a read-committed reader gets {found}")
            await asyncio.sleep(1)


async def _committed(client: KafkaClient, topic: str, partition: int) -> int:
    place, offset, found = (topic, partition), 0, 0
    end = (await client.offsets_at([place], LATEST_TIMESTAMP, isolation_level=READ_COMMITTED))[place]
    while offset < end:
        fetched = await fetch_at_leader(
            client, place, offset, max_bytes=FETCH_BYTES, max_wait_ms=100, isolation_level=READ_COMMITTED
        )
        records = records_of(fetched)
        skipped = skipped_batches(
            records, aborted=[(one.producer_id, one.first_offset) for one in fetched.aborted_transactions or ()]
        )
        for _, header in iterate_headers(records, may_end_in_partial=True):
            if offset <= header.base_offset < end and header.base_offset not in skipped:
                found += header.record_count
            offset = max(offset, header.next_offset)
    return found
