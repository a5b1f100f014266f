"""`antipode consume`: records to standard output, through the project's own consumers: in a group,
by partition, or as the classic one.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.clients.consumed_records import Found, Wanted, classic_records, modern_records
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer
from cli.shared.output import Output, OutputFormat, error_console, progress_bar
from cli.shared.record_output import shown_as
from cli.shared.topic_calls import parse_at
from runtime.process import OperationalFailure
from wire.rules.topic_config_kinds import INT_MAX, LONG_MAX

if TYPE_CHECKING:
    from wire.batches.records import Record
    from wire.protocol.ids import PartitionKey

FETCHERS_MAX = 100

Topics = Annotated[list[str] | None, typer.Argument(help="The topics to read; or give --whitelist or --blacklist.")]
Group = Annotated[
    str | None, typer.Option(help="Share the partitions with the group's other members, and commit offsets.")
]
OnePartition = Annotated[int | None, typer.Option(help="One partition, without sharing.", min=0)]
Offset = Annotated[int | None, typer.Option(help="The offset in --partition at which to begin.", min=0, max=LONG_MAX)]
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
TimeoutMs = Annotated[
    int | None,
    typer.Option(
        help="End when no record has arrived for this long, counted from the assignment of partitions.", min=1
    ),
]
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
    int, typer.Option(help="A member without a heartbeat for this long loses its partitions.", min=1000, max=INT_MAX)
]
Fetchers = Annotated[
    int, typer.Option(help="Maximum number of connections to each broker for fetches.", min=1, max=FETCHERS_MAX)
]
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
        at=parse_at("--from", "earliest" if is_from_beginning else (from_ or "latest")),
        whitelist=whitelist,
        blacklist=blacklist,
        count_max=max_messages,
        timeout_ms=timeout_ms,
        isolation=isolation,
        session_timeout_ms=session_timeout_ms,
        is_committing=is_committing,
        fetchers=fetchers,
    )
    if is_from_beginning and from_ not in (None, "earliest"):
        raise usage_error(f"--from {from_!r} contradicts --from-beginning: give one of the two")
    _check(wanted, zookeeper)
    _check_classic(zookeeper, strategy, offsets_storage, is_dual_commit=is_dual_commit)
    show = shown_as(output, has_keys=has_keys, shows_offsets=shows_offsets)
    with failures_as_messages():
        if zookeeper is None:
            counted = asyncio.run(_run(wanted, show, lambda stack: modern_records(wanted, bootstrap_server, stack)))
        else:
            classic = (zookeeper, strategy, offsets_storage, is_dual_commit)
            counted = asyncio.run(_run(wanted, show, lambda stack: classic_records(wanted, classic, stack)))
    if output is OutputFormat.TEXT:
        error_console.print(f"{counted:,} records", markup=False)


def _check(wanted: Wanted, zookeeper: str | None) -> None:
    given = {"--whitelist": wanted.whitelist, "--blacklist": wanted.blacklist}
    filters = {option: text for option, text in given.items() if text is not None}
    if len(filters) + bool(wanted.topics) != 1:
        raise usage_error("name topics, or give one of --whitelist and --blacklist")
    if wanted.partition is not None and (wanted.group is not None or len(wanted.topics) != 1):
        raise usage_error("--partition needs exactly one topic and cannot be combined with --group")
    if wanted.offset is not None and wanted.partition is None:
        raise usage_error("--offset goes with --partition")
    if zookeeper is not None and wanted.group is None:
        raise usage_error("--zookeeper goes with --group")
    if zookeeper is not None and wanted.at not in ("earliest", "latest"):
        raise usage_error(
            f"--from {wanted.at} is not usable with --zookeeper: accepted are earliest, latest (a classic consumer has no times)"
        )
    if wanted.isolation not in ("read_uncommitted", "read_committed"):
        raise usage_error(
            f"--isolation {wanted.isolation!r} is not usable: accepted are read_uncommitted, read_committed"
        )
    for option, text in filters.items():
        try:
            re.compile(text)
        except re.error as error:
            raise usage_error(f"{option} {text!r} is not usable ({error}): accepted is a regular expression") from error


def _check_classic(zookeeper: str | None, strategy: str, offsets_storage: str, *, is_dual_commit: bool) -> None:
    """A usage error for a value of a classic consumer's options that is not usable, or that has no
    effect without --zookeeper.
    """
    from clients.classic.classic_settings import OFFSETS_STORAGES
    from clients.classic.core.classic_group import STRATEGIES

    for option, value, accepted in (
        ("--strategy", strategy, tuple(STRATEGIES)),
        ("--offsets-storage", offsets_storage, OFFSETS_STORAGES),
    ):
        if value not in accepted:
            raise usage_error(f"{option} {value!r} is not usable: accepted are {', '.join(accepted)}")
        if zookeeper is None and value != accepted[0]:
            raise usage_error(f"{option} {value} goes with --zookeeper")
    if zookeeper is None and not is_dual_commit:
        raise usage_error("--no-dual-commit goes with --zookeeper")


async def _run(
    wanted: Wanted,
    show: Callable[[PartitionKey, Record], None],
    begin: Callable[[AsyncExitStack], Awaitable[Found]],
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
            found = await begin(stack)
            records = await stack.enter_async_context(aclosing(found.records))
            with progress_bar(wanted.count_max, of_bytes=False) as advance, _until_signal(asyncio.current_task()):
                async for place, record in records:
                    try:
                        show(place, record)
                    except BaseException:
                        found.put_back(place, record)
                        raise
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
