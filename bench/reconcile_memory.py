"""`python -m bench.reconcile_memory`: seconds and memory of `antipode reconcile` by the size of the
logs and by the number of partitions, with Spark and by digests (`--quick`).

Two sites of one broker each. One partition is written; the files of all others, at both sites, are
links to its segment, so that the logs take the disk of one partition. Memory is the highest
resident memory: of the command, of Java, and of all Python workers together. Pages of the log that
the system caches do not count.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import psutil
import typer
from kio.schema.errors import ErrorCode

from bench.peers import antipode
from bench.peers.systems import STOP_TIMEOUT_MS, MeasuredBroker, create_topic, wait_until
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import print_table, report_progress
from runtime.compiled import ROOT
from runtime.process import OperationalFailure
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient, call_client
from wire.protocol.ids import DEBUGGING_CONSUMER, LATEST_TIMESTAMP

TOPIC: Final = "compared"
RESULTS: Final = Path("out/bench")
RECORD_BYTES: Final = 1_000
BATCH_RECORDS: Final = 64
SEGMENT: Final = "00000000000000000000.log"
CREATED_AT_ONCE: Final = 1_000
STALE: Final = ("*.index", "*.timeindex", "range-digests", SEGMENT)
SERVING_WITHIN_S: Final = 300
SAMPLE_S: Final = 0.1
RUN_WITHIN_S: Final = 3_600
MODES: Final = {"spark": ("--records-only", "--process-offsets", "0"), "quick": ("--quick",)}
COLUMNS: Final = ("GB", "partitions", "mode", "seconds", "command, MB", "Java, MB", "workers, MB")

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One comparison of two equal sites."""

    gigabytes: float
    partitions: int
    mode: str
    seconds: float
    command_mb: float
    java_mb: float
    workers_mb: float


@app.command()
def curve(
    gigabytes: Annotated[str, typer.Option(help="Sizes of one site's logs, comma-separated.")] = "1,5,20",
    partitions: Annotated[str, typer.Option(help="Numbers of partitions, comma-separated.")] = "100,1000,10000",
    results: Annotated[Path, typer.Option(help="Where the JSON and, while it runs, the sites' data go.")] = RESULTS,
) -> None:
    """Print a row for each size, number of partitions and mode; a JSON file keeps them."""
    try:
        sizes = [float(size) for size in gigabytes.split(",")]
        counts = [int(count) for count in partitions.split(",")]
    except ValueError as error:
        raise usage_error(f"--gigabytes and --partitions take numbers, separated by commas: {error}") from error
    results.mkdir(parents=True, exist_ok=True)
    points: list[Point] = []
    with failures_as_messages():
        for count, size in product(counts, sizes):
            with tempfile.TemporaryDirectory(prefix="run-", dir=results.resolve()) as directory:
                points += _measured(Path(directory), size, count)
    file = results / f"reconcile-memory-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    file.write_text(json.dumps([asdict(one) for one in points], indent=2) + "\n", encoding="utf-8")
    print_table(
        "",
        COLUMNS,
        [[f"{value:,.4g}" if isinstance(value, float) else value for value in asdict(one).values()] for one in points],
    )
    report_progress(f"all rows: {file}")


def _measured(directory: Path, gigabytes: float, partitions: int) -> list[Point]:
    report_progress(f"{gigabytes:g} GB in {partitions:,} partitions at each site")
    with ExitStack() as running:
        first, second = (running.enter_context(antipode.lone_broker(directory / name)) for name in "ab")
        for broker in (first, second):
            _create(broker, partitions)
        records = _fill(first, round(gigabytes * 1e9 / partitions))
        kept = directory / "kept.log"
        for broker in (first, second):
            broker.child.stop(timeout_ms=STOP_TIMEOUT_MS)
            if not kept.exists():
                os.link(_log(broker, 0) / SEGMENT, kept)
            for number in range(partitions):
                _share(_log(broker, number), kept)
            broker.child.start()
        for broker in (first, second):
            _await_records(broker, partitions, records)
        return [_compared(directory, (first, second), gigabytes, partitions, mode=mode) for mode in MODES]


def _create(broker: MeasuredBroker, partitions: int) -> None:
    """Create the topic step by step: on a busy machine, one request for all of 10,000 partitions
    takes longer than its timeout.
    """
    create_topic(broker.bootstrap_servers, TOPIC, partition_count=min(partitions, CREATED_AT_ONCE))

    async def grow(client: KafkaClient) -> None:
        for reached in range(CREATED_AT_ONCE, partitions, CREATED_AT_ONCE):
            outcome = await client.grow_topic(TOPIC, min(reached + CREATED_AT_ONCE, partitions))
            # A request that was repeated after its answer was late finds the partitions there.
            if outcome.error_code not in (ErrorCode.none, ErrorCode.invalid_partitions):
                raise OperationalFailure(f"topic {TOPIC} cannot get more partitions: {outcome.error_code.name}")
        await client.offsets_at([(TOPIC, number) for number in range(partitions)], LATEST_TIMESTAMP)

    call_client(broker.bootstrap_servers, grow)


def _log(broker: MeasuredBroker, partition: int) -> Path:
    return broker.child.directory / "data" / f"{TOPIC}-{partition}"


def _fill(broker: MeasuredBroker, size_bytes: int) -> int:
    """Write this many bytes to partition 0; the number of records."""
    chance, now_ms = random.Random(18), time.time_ns() // 1_000_000
    content = [
        Record(key=None, value=chance.randbytes(RECORD_BYTES), timestamp_ms=now_ms) for _ in range(BATCH_RECORDS)
    ]
    sealed = bytes(encode_batch(content))
    batches = max(1, size_bytes // len(sealed))

    async def run(client: KafkaClient) -> None:
        for _ in range(batches):
            await client.produce(TOPIC, 0, sealed)

    call_client(broker.bootstrap_servers, run)
    return batches * BATCH_RECORDS


def _share(log: Path, kept: Path) -> None:
    """Make the segment of a log a link to this one; the broker is stopped."""
    for stale in (one for pattern in STALE for one in log.glob(pattern)):
        stale.unlink()
    os.link(kept, log / SEGMENT)


def _await_records(broker: MeasuredBroker, partitions: int, records: int) -> None:
    """Wait until the broker serves the records of every partition."""
    keys = [(TOPIC, number) for number in range(partitions)]

    async def ask(client: KafkaClient) -> bool:
        ends = await client.offsets_at(keys, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
        return all(end == records for end in ends.values())

    def is_serving() -> bool:
        try:
            return call_client(broker.bootstrap_servers, ask)
        except KafkaClientError:
            return False

    wait_until(is_serving, within_s=SERVING_WITHIN_S, what=f"{broker.child.name} with its logs", child=broker.child)


def _compared(
    directory: Path, sites: Sequence[MeasuredBroker], gigabytes: float, partitions: int, *, mode: str
) -> Point:
    out = directory / mode
    command = [sys.executable, "-m", "cli.main", "reconcile", *MODES[mode], "--settle-timeout-ms", "0"]
    command += ["--source", sites[0].bootstrap_servers, "--target", sites[1].bootstrap_servers]
    began = time.monotonic()
    with (directory / f"{mode}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--whitelist", TOPIC, "--out", str(out), "--output", "json"], cwd=ROOT, stdout=log, stderr=log
        )
        with _memory_of(process.pid) as peaks:
            try:
                code = process.wait(RUN_WITHIN_S)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise OperationalFailure(f"reconcile has not ended within {RUN_WITHIN_S} s") from error
    if code:
        raise OperationalFailure(f"reconcile ended with {code}: {(directory / f'{mode}.log').read_text()[-2000:]}")
    shutil.rmtree(out)
    point = Point(
        gigabytes=gigabytes,
        partitions=partitions,
        mode=mode,
        seconds=time.monotonic() - began,
        command_mb=peaks["command"] / 1e6,
        java_mb=peaks["java"] / 1e6,
        workers_mb=peaks["workers"] / 1e6,
    )
    report_progress(
        f"  {mode}: {point.seconds:.1f} s, command {point.command_mb:.0f} MB, Java {point.java_mb:.0f} MB, "
        f"workers {point.workers_mb:.0f} MB"
    )
    return point


@contextmanager
def _memory_of(pid: int) -> Iterator[dict[str, int]]:
    """The highest resident bytes of a process and its descendants during the block, by kind."""
    peaks = {"command": 0, "java": 0, "workers": 0}
    is_over = threading.Event()

    def watch() -> None:
        command = psutil.Process(pid)
        while not is_over.wait(SAMPLE_S):
            used = dict.fromkeys(peaks, 0)
            try:
                for one in (command, *command.children(recursive=True)):
                    kind = "command" if one.pid == pid else "java" if one.name() == "java" else "workers"
                    used[kind] += one.memory_info().rss
            except psutil.Error:
                continue  # a process ended between both questions
            for kind, size_bytes in used.items():
                peaks[kind] = max(peaks[kind], size_bytes)

    thread = threading.Thread(target=watch, name="memory")
    thread.start()
    try:
        yield peaks
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    app(prog_name="python -m bench.reconcile_memory")
