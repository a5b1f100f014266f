"""`antipode produce`: lines of a file or of standard input as records, through the project's own
producer.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.clients.input_lines import lines_of, size_bytes
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, client_of, settings
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, progress_bar
from runtime.addresses import HostPort, parse_host_port
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from clients.core.partitioners import Partitioner
    from clients.producer.producer import Producer
    from clients.producer.producer_options import ProducerOptions, ProducerRecord
    from clients.producer.producer_pool import ProducerPool

SKEW_REPORTED_FROM = 2.0
"""A warning is printed when the fullest partition has this many times its fair share, since one
consumer gets all its work.
"""
COMPLAINTS_SHOWN = 5

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

Topic = Annotated[str, typer.Argument(help="The topic for the records.")]
InputFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="A file with a record a line; standard input when left out.")
]
KeySeparator = Annotated[
    str | None, typer.Option(help="The separator of key and value in a line; without it there are no keys.")
]
Header = Annotated[list[str] | None, typer.Option(help="name=value for every record; may be given again.")]
OnePartition = Annotated[int | None, typer.Option(help="One partition for all records.", min=0)]
PartitionerName = Annotated[
    str,
    typer.Option(
        help="murmur2 (Java's default), classic, classic-bytes, random, round-robin, or module:Class of your own."
    ),
]
Acks = Annotated[
    str, typer.Option(help="The replicas that must have a record: all in-sync replicas, 1 (the leader), or 0.")
]
Idempotence = Annotated[
    bool, typer.Option("--idempotence/--no-idempotence", help="Retries make no duplicates; needs acks=all.")
]
Codec = Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")]
LingerMs = Annotated[float, typer.Option(help="How long a batch waits for more records.", min=0)]
BatchBytes = Annotated[int, typer.Option(help="A batch is full at this size.", min=1)]
QueueRecords = Annotated[int, typer.Option(help="Maximum number of records without acknowledgement.", min=1)]
EnqueueTimeoutMs = Annotated[
    int,
    typer.Option(
        help="If that many wait: -1 waits for room, 0 drops the record, a larger value waits that long and then drops it.",
        min=-1,
    ),
]
DeliveryTimeoutMs = Annotated[
    float, typer.Option(help="A record that is not acknowledged within this time has failed.", min=1)
]
Producers = Annotated[int, typer.Option(help="Number of producers; each partition is served by one of them.", min=1)]
AbortOnFailure = Annotated[
    bool, typer.Option("--abort-on-failure", help="Stop writing after the first record that fails.")
]
MetricsListener = Annotated[
    str | None, typer.Option(help="host:port that serves the depth of the queue and the outcomes of records.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the partition to which each record would go.")]


def produce(
    topic: Topic,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    file: InputFile = None,
    key_separator: KeySeparator = None,
    header: Header = None,
    partition: OnePartition = None,
    partitioner: PartitionerName = "murmur2",
    acks: Acks = "all",
    is_idempotent: Idempotence = True,
    compression: Codec = "none",
    linger_ms: LingerMs = 5,
    batch_bytes: BatchBytes = 128 * 1024,
    queue_records: QueueRecords = 100_000,
    enqueue_timeout_ms: EnqueueTimeoutMs = -1,
    delivery_timeout_ms: DeliveryTimeoutMs = 120_000,
    producers: Producers = 1,
    is_aborting: AbortOnFailure = False,
    metrics_listener: MetricsListener = None,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Send every line as a record and wait until all are acknowledged. Exit code 1 when a record
    failed or was dropped.

    Lines go to partitions as Java's producer would send them; `--dry-run` shows it without sending.
    The summary counts records by partition and warns when one has far more than its part; a run
    that ends early reports the outcome of every line that it read. See docs/clients.md.

    Example: antipode produce orders --file orders.txt --key-separator : --compression lz4
    """
    from clients.producer.producer_options import ProducerOptions
    from wire.batches.record_batch import Compression

    if compression.upper() not in Compression.__members__:
        raise usage_error(f"--compression {compression!r} is not usable: accepted are none, gzip, snappy, lz4, zstd")
    if acks not in ACKS:
        raise usage_error(f"--acks {acks!r} is not usable: accepted are all, 1 and 0")
    headers = tuple((name, value.encode()) for name, value in settings(header, "--header").items())
    try:
        options = ProducerOptions(
            acks=ACKS[acks],
            is_idempotent=is_idempotent,
            compression=Compression[compression.upper()],
            linger_ms=linger_ms,
            batch_bytes_max=batch_bytes,
            queue_records_max=queue_records,
            enqueue_timeout_ms=enqueue_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            is_creating_topics=not is_dry_run,
            is_aborting_on_failure=is_aborting,
            partitioner=_partitioner(partitioner),
        )
    except ValueError as error:
        raise usage_error(f"--acks {acks}: {error}; or give --no-idempotence") from error
    record_of = _line_reader(topic, key_separator, headers, partition)
    is_spread_by_keys = bool(key_separator) and partition is None
    run = Run(topic, record_of, options, file=file, is_dry_run=is_dry_run, is_spread_by_keys=is_spread_by_keys)
    with failures_as_messages():
        try:
            asyncio.run(run.all(bootstrap_server, producers, _listener(metrics_listener)))
        finally:
            # However the run ended, the report accounts for every line.
            if run.is_complete or run.lines_read:
                if output is OutputFormat.JSON:
                    print_json(run.document())
                else:
                    run.report()
    if run.failed or run.dropped:
        raise typer.Exit(1)


def _line_reader(
    topic: str, key_separator: str | None, headers: tuple[tuple[str, bytes], ...], partition: int | None
) -> Callable[[int, bytes], ProducerRecord]:
    """The function that makes a record of a line. It raises OperationalFailure for a line without
    the separator. A topic without a name is a usage error.
    """
    if not topic:
        raise usage_error("TOPIC '' is not usable: accepted is the name of a topic")
    from clients.producer.producer_options import ProducerRecord

    def record_of(number: int, line: bytes) -> ProducerRecord:
        key, value = None, line
        if key_separator:
            key, found, value = line.partition(key_separator.encode())
            if not found:
                raise OperationalFailure(f"line {number}, {line[:80]!r}, has no key separator {key_separator!r}")
        return ProducerRecord(topic=topic, key=key, value=value, headers=headers, partition=partition)

    return record_of


def _listener(text: str | None) -> HostPort | None:
    """An address to bind. A usage error says what is accepted."""
    try:
        return None if text is None else parse_host_port(text)
    except ValueError as error:
        raise usage_error(f"--metrics-listener {error}") from error


@contextmanager
def _serving_metrics(listener: HostPort | None, producers: Sequence[Producer]) -> Iterator[None]:
    """Serve the figures of these producers. OperationalFailure: the address is taken."""
    if listener is None:
        yield
        return
    from clients.producer.producer_metrics import ProducerMetrics
    from runtime.metrics import MetricsServer, new_registry

    registry = new_registry()
    registry.register(ProducerMetrics(producers))
    server = MetricsServer(registry, host=listener.host, port=listener.port)
    try:
        server.start()
    except OSError as error:
        raise OperationalFailure(f"--metrics-listener {listener} cannot be bound: {error.strerror}") from error
    try:
        yield
    finally:
        server.stop()


def _partitioner(name: str) -> Callable[[], Partitioner]:
    """Return a partitioner of the project by its name, or by `module:Class`. A usage error says
    what is accepted.
    """
    from clients.core.partitioners import PARTITIONERS

    if name in PARTITIONERS:
        return PARTITIONERS[name]
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    # TypeError: the name of a relative module.
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        accepted = ", ".join(PARTITIONERS)
        raise usage_error(
            f"--partitioner {name!r} is not usable ({error}): accepted are {accepted}, or module:Class"
        ) from error
    missing = [method for method in ("choose", "rotate", "refreshed") if not hasattr(found, method)]
    if missing:
        raise usage_error(f"--partitioner {name!r} is no partitioner: it lacks {', '.join(missing)}")
    made: Callable[[], Partitioner] = found
    return made


class Run:
    """One run of the command, and the outcome of its records."""

    def __init__(
        self,
        topic: str,
        record_of: Callable[[int, bytes], ProducerRecord],
        options: ProducerOptions,
        *,
        file: Path | None,
        is_dry_run: bool,
        is_spread_by_keys: bool,
    ) -> None:
        """`is_spread_by_keys`: records have keys, and these choose the partitions."""
        self._is_spread_by_keys = is_spread_by_keys
        self._topic = topic
        self._record_of = record_of
        self._options = options
        self._file = file
        self._is_dry_run = is_dry_run
        self.partitions: Counter[int] = Counter()
        self.partition_count = 0
        self.lines_read = 0
        self.is_complete = False
        self.failed = 0
        self.dropped = 0
        self.unacknowledged = 0
        self.complaints: Counter[str] = Counter()

    async def all(self, bootstrap_server: str, producers: int, metrics_listener: HostPort | None) -> None:
        """Send everything, and serve metrics meanwhile. OperationalFailure when nothing can be sent
        at all.
        """
        from clients.core.partitioners import NoPartition, PartitionOutOfRange
        from clients.producer.producer import Producer
        from clients.producer.producer_options import ProducerClosed
        from clients.producer.producer_pool import ProducerPool
        from wire.client.client_errors import KafkaClientError

        made = [Producer(client_of(bootstrap_server), self._options) for _ in range(producers)]
        try:
            async with AsyncExitStack() as running:
                pool = await running.enter_async_context(ProducerPool(made))
                running.enter_context(_serving_metrics(metrics_listener, made))
                await self._send_lines(pool)
                await pool.flush()
                self.partition_count = await made[0].partition_count(self._topic)
            self.is_complete = True
        except (KafkaClientError, PartitionOutOfRange, NoPartition, ProducerClosed) as error:
            raise OperationalFailure(str(error)) from error

    async def _send_lines(self, pool: ProducerPool) -> None:
        from clients.budget import QueueFull

        with progress_bar(size_bytes(self._file), of_bytes=True) as advance:
            async for line in lines_of(self._file):
                advance(len(line) + 1)
                self.lines_read += 1
                record = self._record_of(self.lines_read, line)
                if self._is_dry_run:
                    self.partitions[await pool.producers[0].partition_of(record)] += 1
                    continue
                try:
                    outcome = await pool.send(record)
                except QueueFull:
                    self.dropped += 1
                    continue
                outcome.add_done_callback(self._note)

    def _note(self, outcome: asyncio.Future[Any]) -> None:
        from clients.producer.producer_options import ProducerClosed

        error = outcome.exception()
        if error is None:
            self.partitions[outcome.result().partition] += 1
        elif isinstance(error, ProducerClosed):
            self.unacknowledged += 1
        else:
            self.failed += 1
            self.complaints[str(error)] += 1

    @property
    def unsent(self) -> int:
        """Lines that were read and not queued: the line at which the run ended."""
        known = self.partitions.total() + self.failed + self.dropped + self.unacknowledged
        return self.lines_read - known

    @property
    def skew(self) -> float:
        """The size of the largest partition as a multiple of its fair share."""
        total = self.partitions.total()
        return max(self.partitions.values()) * self.partition_count / total if total else 1.0

    def document(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "topic": self._topic,
            "is_dry_run": self._is_dry_run,
            "is_complete": self.is_complete,
            "lines_read": self.lines_read,
            "delivered": self.partitions.total(),
            "failed": self.failed,
            "dropped": self.dropped,
            "unacknowledged": self.unacknowledged,
            "unsent": self.unsent,
            "partitions": {str(index): count for index, count in sorted(self.partitions.items())},
            "skew": round(self.skew, 2),
            "errors": dict(self.complaints),
        }

    def report(self) -> None:
        """Print the result for people."""
        for complaint, count in self.complaints.most_common(COMPLAINTS_SHOWN):
            error_console.print(f"{count:,} records failed: {complaint}", markup=False)
        if self.dropped:
            error_console.print(f"{self.dropped:,} records dropped: the queue was full", markup=False)
        if not self.is_complete:
            error_console.print(
                f"ended early: of {self.lines_read:,} lines that were read {self.partitions.total():,} are placed, "
                f"{self.failed:,} failed, {self.dropped:,} were dropped, {self.unacknowledged:,} were not acknowledged "
                f"(those that were on their way may be written all the same) and {self.unsent:,} not sent; "
                "no line after these was read",
                soft_wrap=True,
            )
        verb = "would go" if self._is_dry_run else "are"
        placed = ", ".join(f"{index}: {count:,}" for index, count in sorted(self.partitions.items()))
        console.print(
            f"{self.partitions.total():,} records {verb} in {self._topic} (by partition {placed or 'none'})",
            markup=False,
        )
        if (
            self._is_spread_by_keys
            and self.skew >= SKEW_REPORTED_FROM
            and self.partitions.total() > self.partition_count
        ):
            console.print(
                f"skewed: the fullest partition has {self.skew:.1f} times its part; look at the keys", markup=False
            )
