"""Records of road checkpoints: valid ones, rejected ones with the reason, and commands in order."""

from __future__ import annotations

import json

import pytest

from spark_jobs.pipelines.core.road_records import (
    SERVER,
    UNREADABLE,
    Command,
    command_of,
    rejection,
    road_record,
    road_records,
    time_ms,
    time_text,
    watched_since,
)
from spark_jobs.pipelines.data_contracts import own_contract

NOW_MS = 1_700_000_000_000
SIGHTING = own_contract("road").schemas["sighting"]


def test_generated_records_of_both_routes_are_valid_and_bad_ones_are_rejected() -> None:
    for route in ("device", SERVER):
        values = list(road_records(20, at_ms=NOW_MS - 30_000, route=route, first=7, bad_every=5))
        assert [rejection(value, NOW_MS, SIGHTING) for value in values].count("plate could not be read") == 4
        assert sum(rejection(value, NOW_MS, SIGHTING) is None for value in values) == 16
        servers = {json.loads(value)["server_address"] for value in values}
        assert servers == ({"10.0.1.1"} if route == SERVER else {""})
    assert set(road_record(1, at_ms=NOW_MS)) == {field.name for field in SIGHTING.fields}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"plate": UNREADABLE}, "plate could not be read"),
        ({"brand": UNREADABLE}, None),
        ({"checkpoint_id": ""}, "checkpoint_id could not be read"),
        ({"capture_time": UNREADABLE}, "capture_time could not be read"),
        ({"capture_time": "yesterday"}, r"capture_time does not match \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
        ({"capture_time": "2023-13-01 00:00:00"}, "capture_time is no time"),
        ({"capture_time": time_text(NOW_MS + 61_000)}, "capture_time is in the future"),
        ({"capture_time": time_text(NOW_MS + 50_000)}, None),
        ({"series": 7}, "series is not of type string"),
        ({"series": None}, "the record lacks the field series"),
        ({"a_field_of_a_newer_producer": 7}, None),
    ],
)
def test_a_record_is_rejected_with_a_reason(change: dict[str, object], reason: str | None) -> None:
    record = {**road_record(1, at_ms=NOW_MS), **change}
    assert rejection(json.dumps(record).encode(), NOW_MS, SIGHTING) == reason


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"text",
        b"[" * 100_000,
        # Spark, which makes the columns, reads UTF-8 alone
        pytest.param(json.dumps(road_record(1, at_ms=NOW_MS)).encode("utf-16"), id="UTF-16"),
        pytest.param(json.dumps(road_record(1, at_ms=NOW_MS)).encode("utf-8-sig"), id="byte order mark"),
    ],
)
def test_values_that_are_no_json_are_rejected(value: bytes | None) -> None:
    assert rejection(value, NOW_MS, SIGHTING) == "the value is not JSON"
    assert rejection(b"[]", NOW_MS, SIGHTING) == "the value is not a JSON object"


def test_times_go_there_and_back() -> None:
    assert time_ms(time_text(NOW_MS)) == NOW_MS


def test_commands_are_read_and_the_later_one_wins() -> None:
    def command(text: str, since_ms: int) -> Command:
        found = command_of(text.encode(), since_ms=since_ms, id=f"c-{since_ms}")
        assert found is not None
        return found

    first = command('{"command": "watch", "plate": "A1"}', 5)
    again = command('{"command": "watch", "plate": "A1"}', 9)
    other = command('{"command": "watch", "plate": "B2"}', 6)
    ended = command('{"command": "unwatch", "plate": "B2"}', 7)
    assert watched_since([ended, again, other, first]) == {"A1": 5}
    no_text = rb'{"command": "watch", "plate": "\ud800"}'
    for text in (b"", b"[]", b'{"command": "dance"}', b'{"command": "watch"}', no_text, b"[" * 100_000, None):
        assert command_of(text, since_ms=0, id="c") is None


def test_commands_of_one_millisecond_count_in_their_order() -> None:
    watch, unwatch = (
        Command(name, "A1", 5, f"road-control-0-{offset}") for name, offset in (("watch", 9), ("unwatch", 10))
    )
    assert watched_since([watch, unwatch]) == {}
    assert watched_since([unwatch, watch]) == {"A1": 5}
