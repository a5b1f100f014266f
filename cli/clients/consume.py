"""`antipode consume`: records to standard output, through the project's own consumers: in a group,
by partition, or as the classic one.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, client_of
from cli.shared.output import Output, OutputFormat, error_console, progress_bar
from cli.shared.record_output import Printed, shown_as
from cli.shared.topic_calls import parse_at
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from clients.classic.streams import Stream
    from clients.consumer.consumer import Consumer
    from clients.reader.core.positions import ResetPolicy
    from clients.reader.core.readings import Start
    from wire.batches.records import Record
    from wire.protocol.ids import PartitionKey

POLL_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The user's request."""

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


Topics = Annotated[list[str] | None, typer.Argument(help="The topics to read; or give --whitelist or --blacklist.")]
Group = Annotated[
    str | None, typer.Option(help="Share the partitions with the group's other members, and commit offsets.")
]
OnePartition = Annotated[int | None, typer.Option(help="One partition, without sharing.", min=0)]
Offset = Annotated[int | None, typer.Option(help="The offset in --partition at which to begin.", min=0)]
FromTime = Annotated[
    str | None,
    typer.Option("--from", help="Without a position: earliest, latest (default), Unix ms, or 2026-01-31T12:00:00Z."),
]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="As --from earliest.")]
Whitelist = Annotated[
    str | None, typer.Option(help="All topics whose whole name matches this regular expression (a comma means or).")
]
Blacklist = Annotated[str | None, typer.Option(help="All topics except those whose whole name matches.")]
Reset = Annotated[
    str | None,
    typer.Option(help="Where the log has no such offset: earliest, latest, nearest or fail; by default as --from."),
]
MaxMessages = Annotated[int | None, typer.Option(help="End after this many records.", min=1)]
TimeoutMs = Annotated[int | None, typer.Option(help="End when no record has arrived for this long.", min=1)]
Isolation = Annotated[str, typer.Option(help="read_uncommitted, or read_committed to leave out aborted records.")]
Zookeeper = Annotated[
    str | None,
    typer.Option(
        help="host:port, with a chroot if need be: be a classic consumer, whose group coordinates itself in ZooKeeper."
    ),
]
Strategy = Annotated[str, typer.Option(help="With --zookeeper: range or roundrobin.")]
OffsetsStorage = Annotated[str, typer.Option(help="With --zookeeper: where offsets are kept, zookeeper or kafka.")]
DualCommit = Annotated[
    bool,
    typer.Option("--dual-commit/--no-dual-commit", help="With --offsets-storage kafka: keep them in ZooKeeper too."),
]
SessionTimeoutMs = Annotated[
    int, typer.Option(help="A member without a heartbeat for this long loses its partitions.", min=1000)
]
Fetchers = Annotated[int, typer.Option(help="Maximum number of connections to each broker for fetches.", min=1)]
CommitOffsets = Annotated[bool, typer.Option("--commit/--no-commit", help="Whether a group's offsets move.")]
WithKeys = Annotated[bool, typer.Option("--keys", help="Print `key<TAB>value`.")]
WithPlaces = Annotated[bool, typer.Option("--offsets", help="Print topic, partition and offset in front.")]


def consume(
    topics: Topics = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    group: Group = None,
    partition: OnePartition = None,
    offset: Offset = None,
    from_: FromTime = None,
    is_from_beginning: FromBeginning = False,
    reset: Reset = None,
    whitelist: Whitelist = None,
    blacklist: Blacklist = None,
    max_messages: MaxMessages = None,
    timeout_ms: TimeoutMs = None,
    isolation: Isolation = "read_uncommitted",
    zookeeper: Zookeeper = None,
    strategy: Strategy = "range",
    offsets_storage: OffsetsStorage = "zookeeper",
    is_dual_commit: DualCommit = True,
    session_timeout_ms: SessionTimeoutMs = 10_000,
    is_committing: CommitOffsets = True,
    fetchers: Fetchers = 1,
    has_keys: WithKeys = False,
    shows_offsets: WithPlaces = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print records as they come: values alone or, with `--output json`, one JSON document a line
    with everything.

    With --group the partitions are shared out and offsets are committed; with --partition one is
    read on its own. With --zookeeper the command is a classic high-level consumer: it registers,
    claims partitions and keeps offsets where consumers of Kafka 0.8 did. Ctrl-C ends in good order.
    See docs/clients.md.

    Example: antipode consume orders --from-beginning --max-messages 10 --output json
    """
    wanted = Wanted(
        topics=list(topics or ()),
        group=group,
        partition=partition,
        offset=offset,
        reset=reset,
        at=parse_at("earliest" if is_from_beginning else (from_ or "latest")),
        whitelist=whitelist,
        blacklist=blacklist,
        count_max=max_messages,
        timeout_ms=timeout_ms,
        isolation=isolation,
        session_timeout_ms=session_timeout_ms,
        is_committing=is_committing,
        fetchers=fetchers,
    )
    _check(wanted, zookeeper)
    show = shown_as(output, has_keys=has_keys, shows_offsets=shows_offsets)
    with failures_as_messages():
        if zookeeper is None:
            counted = asyncio.run(_run(wanted, show, lambda stack: _modern(wanted, bootstrap_server, stack)))
        else:
            classic = (zookeeper, strategy, offsets_storage, is_dual_commit)
            counted = asyncio.run(_run(wanted, show, lambda stack: _classic(wanted, classic, stack)))
    if output is OutputFormat.TEXT:
        error_console.print(f"{counted:,} records")


def _check(wanted: Wanted, zookeeper: str | None) -> None:
    filters = [text for text in (wanted.whitelist, wanted.blacklist) if text is not None]
    if len(filters) + bool(wanted.topics) != 1:
        raise usage_error("name topics, or give one of --whitelist and --blacklist")
    if wanted.partition is not None and (wanted.group is not None or len(wanted.topics) != 1):
        raise usage_error("--partition needs exactly one topic and cannot be combined with --group")
    if wanted.offset is not None and wanted.partition is None:
        raise usage_error("--offset goes with --partition")
    if zookeeper is not None and wanted.group is None:
        raise usage_error("--zookeeper goes with --group")
    if zookeeper is not None and wanted.at not in ("earliest", "latest"):
        raise usage_error("--zookeeper begins at earliest or latest: those are what classic consumers know")
    if wanted.isolation not in ("read_uncommitted", "read_committed"):
        raise usage_error(
            f"--isolation {wanted.isolation!r} is not usable: accepted are read_uncommitted, read_committed"
        )
    for text in filters:
        try:
            re.compile(text)
        except re.error as error:
            raise usage_error(f"{text!r} is no regular expression: {error}") from error


Found = AsyncGenerator[tuple["PartitionKey", "Record"], None]


async def _run(
    wanted: Wanted, show: Callable[[PartitionKey, Record], None], begin: Callable[[AsyncExitStack], Any]
) -> int:
    """Print records until the maximum is reached, no record arrives for the timeout, or a signal
    ends it; returns their number.
    """
    from clients.classic.core.classic_group import UnequalSubscriptions
    from clients.classic.zookeeper_consumer import RebalanceFailed
    from clients.consumer.consumer_options import CommitRefused
    from clients.reader.core.positions import PositionLost
    from clients.reader.reader_options import DamagedLog
    from wire.batches.record_batch import InvalidBatch
    from wire.client.client_errors import KafkaClientError

    count = 0
    failures = (
        KafkaClientError,
        CommitRefused,
        PositionLost,
        DamagedLog,
        RebalanceFailed,
        UnequalSubscriptions,
        InvalidBatch,
    )
    try:
        async with AsyncExitStack() as stack:
            found = await stack.enter_async_context(aclosing(await begin(stack)))
            with progress_bar(wanted.count_max, of_bytes=False) as advance, _until_signal(asyncio.current_task()):
                async for place, record in found:
                    show(place, record)
                    advance(1)
                    count += 1
                    if count == wanted.count_max:
                        break
    except failures as error:
        raise OperationalFailure(str(error)) from error
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe.
        sys.stdout = None
    return count


@contextmanager
def _until_signal(task: asyncio.Task[Any] | None) -> Any:
    """SIGINT and SIGTERM end the block, and everything that was opened around it is closed in good
    order.
    """
    loop = asyncio.get_running_loop()
    is_asked = False

    def ask() -> None:
        nonlocal is_asked
        is_asked = True
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    try:
        with suppress(asyncio.CancelledError):
            yield
        if is_asked and task is not None:
            task.uncancel()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _modern(wanted: Wanted, bootstrap_server: str, stack: AsyncExitStack) -> Found:
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
    return _records_of_consumer(consumer, printed, wanted)


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
        raise OperationalFailure(
            f"not there: {', '.join(missing) or 'any topic that fits'}; `antipode topics list` shows all"
        )
    places = [(name, index) for name, topic in sorted(found.items()) for index in sorted(topic.partitions)]
    if wanted.partition is not None:
        places = [place for place in places if place[1] == wanted.partition]
        if not places:
            raise OperationalFailure(f"{wanted.topics[0]} has no partition {wanted.partition}")
    special = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
    timestamp = special[wanted.at] if isinstance(wanted.at, str) else wanted.at
    start = Start(Position(wanted.offset)) if wanted.offset is not None else Start(timestamp=timestamp)
    return dict.fromkeys(places, start)


async def _records_of_consumer(consumer: Consumer, printed: Printed, wanted: Wanted) -> Found:
    from clients.reader.core.positions import Position

    loop = asyncio.get_running_loop()
    came_s = loop.time()
    while True:
        for chunk in await consumer.poll(POLL_MS):
            for record in consumer.opened(chunk):
                printed.next_positions[chunk.place] = Position(record.offset + 1)
                yield chunk.place, record
                came_s = loop.time()
        if wanted.is_committing and wanted.group is not None:
            printed.commit_if_due()
        if wanted.timeout_ms is not None and (loop.time() - came_s) * 1000 >= wanted.timeout_ms:
            return


async def _classic(wanted: Wanted, classic: tuple[str, str, str, bool], stack: AsyncExitStack) -> Found:
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
    expression = wanted.whitelist if wanted.whitelist is not None else wanted.blacklist
    if expression is None:
        subscription, pattern = dict.fromkeys(wanted.topics, 1), STATIC
    else:
        subscription, pattern = {expression: 1}, WHITE_LIST if wanted.whitelist is not None else BLACK_LIST
    (stream,) = await consumer.create_streams(subscription, pattern=pattern)
    return _records_of_stream(stream)


async def _records_of_stream(stream: Stream) -> Found:
    from clients.classic.streams import ConsumerTimeout

    try:
        async for found in stream.records():
            yield found
    except ConsumerTimeout:
        return
