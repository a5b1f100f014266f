"""The output of Apache Kafka's load programs."""

from __future__ import annotations

import pytest

from bench.loads.java_tools import parse_consumed, parse_produced
from runtime.process import OperationalFailure

WHOLE = (
    "4000000 records sent, 612000.1 records/sec (58.37 MB/sec), 5.12 ms avg latency, 301.00 ms max latency, "
    "2 ms 50th, 20 ms 95th, 81 ms 99th, 120 ms 99.9th.\n"
)
STEADY = (
    "3200000 steady state records sent, 849257.0 records/sec (80.99 MB/sec), 3.00 ms avg latency, 101.00 ms max latency, "
    "1 ms 50th, 9 ms 95th, 44 ms 99th, 90 ms 99.9th.\n"
)
CONSUMED = "2025-01-01 10:00:00:000, 2025-01-01 10:00:04:000, 953.6743, 238.4186, 1000000, 250000.0, 1000, 3000, 317.8914, 333333.3\n"


def test_the_producer_s_steady_state_counts_where_it_is_printed() -> None:
    assert parse_produced(WHOLE + STEADY) == (849257.0, 1, 44)


def test_the_last_whole_run_counts_where_no_steady_state_is_printed() -> None:
    assert parse_produced("1 records sent, 1.0 records/sec (0.00 MB/sec), 1 ms avg latency\n" + WHOLE) == (
        612000.1,
        2,
        81,
    )


def test_a_producer_without_a_summary_is_an_error_that_shows_what_it_said() -> None:
    with pytest.raises(OperationalFailure, match="KafkaException: no"):
        parse_produced("org.apache.kafka.common.KafkaException: no\n")


def test_the_consumer_s_mebibytes_become_megabytes() -> None:
    consumed = parse_consumed("WARN something, else\n" + CONSUMED)
    assert consumed.record_count == 1_000_000
    assert consumed.fetch_mb_per_s == pytest.approx(333.33, abs=0.01)
    assert consumed.whole_mb_per_s == pytest.approx(250.0, abs=0.01)


def test_a_consumer_without_figures_is_an_error_that_shows_what_it_said() -> None:
    with pytest.raises(OperationalFailure, match="Exiting before consuming"):
        parse_consumed("WARNING: Exiting before consuming the expected number of records\n")
