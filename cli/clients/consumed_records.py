"""The records that `antipode consume` prints: through a consumer in a group, of partitions without
a group, or through the classic consumer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.shared.failures import missing_topic, usage_error
from cli.shared.kafka_admin import client_of
from cli.shared.record_output import Printed
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from clients.classic.streams import Stream
    from clients.consumer.consumer import Consumer
    from clients.reader.core.positions import ResetPolicy
    from clients.reader.core.readings import Start
    from wire.batches.records import Record
    from wire.protocol.ids import PartitionKey

POLL_MS = 500
Records = AsyncGenerator[tuple["PartitionKey", "Record"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Records to print. Each counts as printed when it is taken; `put_back` takes this back for the
    record that was taken last, so that its offset is not committed.
    """

    records: Records
    put_back: Callable[[PartitionKey, Record], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request of a user of `antipode consume`."""

    topics: list[str]
    group: str | None
    partition: int | None
    offset: int | None
    at: str | int
    reset: str | None
    whitelist: str | None
    blacklist: str | None
    count_max: int | None
    timeout_ms: int | None
    isolation: str
    session_timeout_ms: int
    is_committing: bool
    fetchers: int


async def modern_records(wanted: Wanted, bootstrap_server: str, stack: AsyncExitStack) -> Found:
    """Consume in a group of the classic protocol, or partitions without a group."""
    from clients.consumer.consumer import Consumer
    from clients.consumer.consumer_options import ConsumerOptions
    from clients.reader.reader_options import ReaderOptions
    from wire.protocol.ids import READ_COMMITTED

    policy = _policy(wanted)
    options = ConsumerOptions(
        group_id=wanted.group,
        is_auto_commit=False,
        session_timeout_ms=wanted.session_timeout_ms,
        heartbeat_interval_ms=wanted.session_timeout_ms / 6,
        reader=ReaderOptions(
            policy=policy,
            isolation_level=READ_COMMITTED if wanted.isolation == "read_committed" else 0,
            metadata_max_age_ms=5_000,
            fetchers=wanted.fetchers,
        ),
    )
    consumer = await stack.enter_async_context(Consumer(lambda: client_of(bootstrap_server), options))
    printed = Printed(consumer)
    if wanted.group is None:
        consumer.assign(await _starts(wanted, bootstrap_server))
    elif wanted.is_committing:
        consumer.subscribe(_pattern(wanted) or wanted.topics, printed)
        stack.push_async_callback(printed.commit)
    else:
        consumer.subscribe(_pattern(wanted) or wanted.topics)
    return Found(records=_records_of_consumer(consumer, printed, wanted), put_back=printed.put_back)


def _policy(wanted: Wanted) -> ResetPolicy:
    """A usage error says what is accepted."""
    from clients.reader.core.positions import ResetPolicy, parse_reset_policy

    if wanted.reset is None:
        return ResetPolicy.EARLIEST if wanted.at == "earliest" else ResetPolicy.LATEST
    try:
        return parse_reset_policy(wanted.reset)
    except ValueError as error:
        raise usage_error(f"--reset {error}") from error


def _pattern(wanted: Wanted) -> re.Pattern[str] | None:
    if wanted.whitelist is not None:
        return re.compile(wanted.whitelist.replace(",", "|"))
    if wanted.blacklist is not None:
        return re.compile(f"(?!(?:{wanted.blacklist.replace(',', '|')})$).*")
    return None


async def _starts(wanted: Wanted, bootstrap_server: str) -> dict[PartitionKey, Start]:
    """The requested partitions and their start positions. OperationalFailure if there are none."""
    from clients.reader.core.positions import Position
    from clients.reader.core.readings import Start
    from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    pattern = _pattern(wanted)
    async with client_of(bootstrap_server) as client:
        reported = (await client.metadata(None if pattern is not None else wanted.topics)).topics
    found = {
        name: topic
        for name, topic in reported.items()
        if not topic.error_code and (pattern is None or (not topic.is_internal and pattern.fullmatch(name)))
    }
    missing = [name for name in wanted.topics if name not in found]
    if missing or not found:
        raise missing_topic(*missing)
    places = [(name, index) for name, topic in sorted(found.items()) for index in sorted(topic.partitions)]
    if wanted.partition is not None:
        places = [place for place in places if place[1] == wanted.partition]
        if not places:
            raise OperationalFailure(f"{wanted.topics[0]} has no partition {wanted.partition}")
    special = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
    timestamp = special[wanted.at] if isinstance(wanted.at, str) else wanted.at
    start = Start(Position(wanted.offset)) if wanted.offset is not None else Start(timestamp=timestamp)
    return dict.fromkeys(places, start)


async def _records_of_consumer(consumer: Consumer, printed: Printed, wanted: Wanted) -> Records:
    from clients.reader.core.positions import Position

    loop = asyncio.get_running_loop()
    began_s = came_s = loop.time()
    is_assigned = False
    while True:
        for chunk in await consumer.poll(POLL_MS):
            for record in consumer.opened(chunk):
                printed.next_positions[chunk.place] = Position(record.offset + 1)
                yield chunk.place, record
                came_s = loop.time()
        if wanted.is_committing and wanted.group is not None:
            printed.commit_if_due()
        if not is_assigned:
            # the first rebalance of a group takes its time, but a coordinator may stay away
            is_assigned = consumer.is_assigned or (loop.time() - began_s) * 1000 >= wanted.session_timeout_ms
            came_s = loop.time()
            continue
        if wanted.timeout_ms is not None and (loop.time() - came_s) * 1000 >= wanted.timeout_ms:
            return


async def classic_records(wanted: Wanted, classic: tuple[str, str, str, bool], stack: AsyncExitStack) -> Found:
    """A high-level consumer as in Kafka 0.8."""
    from clients.classic.classic_settings import ZooKeeperConsumerOptions
    from clients.classic.zookeeper_consumer import ZooKeeperConsumer
    from clients.reader.reader_options import ReaderOptions
    from runtime.zookeeper.client import ZooKeeper
    from wire.znodes.consumer_znodes import BLACK_LIST, STATIC, WHITE_LIST

    connect, strategy, storage, is_dual_commit = classic
    policy = _policy(wanted)
    try:
        options = ZooKeeperConsumerOptions(
            group_id=wanted.group or "",
            strategy=strategy,
            offsets_storage=storage,
            is_dual_commit=is_dual_commit,
            is_auto_commit=wanted.is_committing,
            auto_commit_interval_ms=5_000,
            session_timeout_ms=wanted.session_timeout_ms,
            consumer_timeout_ms=-1 if wanted.timeout_ms is None else wanted.timeout_ms,
            rebalance_attempts_max=20,
            rebalance_backoff_ms=wanted.session_timeout_ms / 6,
            reader=ReaderOptions(policy=policy, max_wait_ms=100, fetchers=wanted.fetchers),
        )
    except ValueError as error:
        raise usage_error(str(error)) from error
    zookeeper = ZooKeeper(connect, session_timeout_ms=wanted.session_timeout_ms)
    await zookeeper.start()
    consumer = await stack.enter_async_context(ZooKeeperConsumer(zookeeper, options, client_of))
    # looked for here, because registering would create a chroot that is misspelt
    if await zookeeper.exists("/") is None:
        raise OperationalFailure(
            f"--zookeeper {connect!r} is not usable: accepted is host:port and a chroot that exists"
        )
    expression = wanted.whitelist if wanted.whitelist is not None else wanted.blacklist
    if expression is None:
        subscription, pattern = dict.fromkeys(wanted.topics, 1), STATIC
    else:
        subscription, pattern = {expression: 1}, WHITE_LIST if wanted.whitelist is not None else BLACK_LIST
    (stream,) = await consumer.create_streams(subscription, pattern=pattern)
    return Found(records=_records_of_stream(stream), put_back=lambda _place, _record: stream.put_back())


async def _records_of_stream(stream: Stream) -> Records:
    from clients.classic.streams import ConsumerTimeout

    try:
        async for found in stream.records():
            yield found
    except ConsumerTimeout:
        return
