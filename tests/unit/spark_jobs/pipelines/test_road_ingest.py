"""When the ingest of the road pipeline writes."""

from __future__ import annotations

from spark_jobs.connector.core.options import Use, parse_read
from spark_jobs.connector.core.trigger_delay import TriggerDelay
from spark_jobs.pipelines.road_ingest import limits, parser

REQUIRED = ("--bootstrap-server", "127.0.0.1:9092", "--to", "tables", "--checkpoint", "checkpoint")
SUBSCRIBED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "road-data"}


def test_either_limit_alone_begins_a_write() -> None:
    given = parser().parse_args([*REQUIRED, "--records-min", "100", "--wait-max-ms", "5000"])
    options = parse_read(SUBSCRIBED | limits(given), Use.READ_STREAM, ())
    delay = TriggerDelay(offsets_min=options.offsets_per_trigger_min, delay_ms_max=options.trigger_delay_ms_max)
    start, few, many = {("road-data", 0): 0}, {("road-data", 0): 99}, {("road-data", 0): 100}
    assert not delay.is_waiting(start, few, now_ms=0)  # the first batch of a driver
    assert delay.is_waiting(start, few, now_ms=4_999)
    assert not delay.is_waiting(start, many, now_ms=4_999)
    assert delay.is_waiting(start, few, now_ms=9_998)
    assert not delay.is_waiting(start, few, now_ms=9_999)


def test_a_run_that_ends_by_itself_writes_what_is_there() -> None:
    assert limits(parser().parse_args([*REQUIRED, "--once", "--records-min", "100"])) == {}
