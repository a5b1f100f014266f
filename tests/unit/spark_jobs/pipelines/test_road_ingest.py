"""When the ingest of the road pipeline writes."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--records-min", "20", "--records-max", "10"), "--records-min 20 is above --records-max 10"),
        (("--records-min", "10001"), "--records-min 10001 is above --records-max 10000"),
        (("--records-min", "0"), "argument --records-min: accepted: a number from 1 on, not '0'"),
        (("--records-max", "ten"), "argument --records-max: accepted: a number from 1 on, not 'ten'"),
        (("--wait-max-ms", "-1"), "argument --wait-max-ms: accepted: a number from 1 on, not '-1'"),
        (("--trigger-ms", "0"), "argument --trigger-ms: accepted: a number from 1 on, not '0'"),
    ],
)
def test_limits_that_cannot_hold_are_refused_by_the_names_of_the_options(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*REQUIRED, *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_run_that_ends_by_itself_writes_what_is_there() -> None:
    assert limits(parser().parse_args([*REQUIRED, "--once", "--records-min", "100"])) == {}
