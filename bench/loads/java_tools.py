"""Runs Apache Kafka's own load programs, ProducerPerformance and ConsumerPerformance, and parses
their output.

Each run is a separate JVM with the options of the upstream launcher. The producer's figures exclude
its warm-up records; the consumer's cover fetching without joining a group.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.apache_kafka import SERVER_JVM, program
from runtime.process import OperationalFailure

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
JVM = ("-Xms512m", "-Xmx512m", *SERVER_JVM)
WARM_UP_SHARE = 5
"""One in this many records of the producer is warm-up."""
MIB = 1024 * 1024
RUN_WITHIN_S = 300
LINES_SHOWN = 10

_SUMMARY = re.compile(
    r"(\d+)(?P<steady> steady state)? records sent, (?P<records_per_s>[\d.]+) records/sec \((?P<mib_per_s>[\d.]+) MB/sec\), "
    r"(?P<average>[\d.]+) ms avg latency, (?P<highest>[\d.]+) ms max latency, "
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th"
)


class Produced(NamedTuple):
    """The figures of ProducerPerformance; latency includes its queue."""

    records_per_s: float
    p50_ms: float
    p99_ms: float


class Consumed(NamedTuple):
    """The figures of ConsumerPerformance: fetching alone, and with the joining of its group."""

    fetch_mb_per_s: float
    whole_mb_per_s: float
    record_count: int


def produce(
    bootstrap_servers: str, topic: str, payload_file: Path, count: int, settings: Mapping[str, str]
) -> Produced:
    """Send `count` records as fast as possible; each is a random line of the file. Raises
    OperationalFailure with the program's output.
    """
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(count)]
    arguments += ["--throughput", "-1", "--payload-file", str(payload_file)]
    arguments += ["--warmup-records", str(count // WARM_UP_SHARE), "--command-property"]
    arguments += [f"{key}={value}" for key, value in settings.items()]
    return parse_produced(_run(PRODUCER, arguments))


def consume(bootstrap_servers: str, topic: str, count: int) -> Consumed:
    """Read `count` records from the beginning in a group of its own. Raises OperationalFailure with
    the program's output.
    """
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(count)]
    consumed = parse_consumed(_run(CONSUMER, [*arguments, "--timeout", "30000", "--hide-header"]))
    if consumed.record_count < count:
        raise OperationalFailure(f"{CONSUMER} read {consumed.record_count} of {count} records of {topic}")
    return consumed


def parse_produced(output: str) -> Produced:
    """The steady-state line, or the last whole-run line where there is none. OperationalFailure
    without either.
    """
    found = list(_SUMMARY.finditer(output))
    if not found:
        raise OperationalFailure(f"{PRODUCER} printed no summary:\n{_tail(output)}")
    chosen = next((match for match in reversed(found) if match["steady"]), found[-1])
    return Produced(float(chosen["records_per_s"]), float(chosen["p50"]), float(chosen["p99"]))


def parse_consumed(output: str) -> Consumed:
    """The line of comma-separated numbers: start, end, MiB, MiB/s, records, records/s, joining ms,
    fetch ms, fetch MiB/s, records/s.
    """
    for line in reversed(output.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        try:
            numbers = [float(field) for field in fields[2:]]
        except ValueError:
            continue
        if len(numbers) == 8:
            return Consumed(numbers[6] * MIB / 1e6, numbers[1] * MIB / 1e6, int(numbers[2]))
    raise OperationalFailure(f"{CONSUMER} printed no figures:\n{_tail(output)}")


def _run(main_class: str, arguments: list[str]) -> str:
    command = program(main_class, *arguments, jvm=JVM)
    try:
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=RUN_WITHIN_S
        )
    except subprocess.TimeoutExpired as expired:
        reported = (
            expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else expired.stdout or ""
        )
        raise OperationalFailure(f"{main_class} does not end within {RUN_WITHIN_S} s:\n{_tail(reported)}") from expired
    if ended.returncode != 0:
        raise OperationalFailure(f"{main_class} ended with {ended.returncode}:\n{_tail(ended.stdout)}")
    return ended.stdout


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-LINES_SHOWN:])
