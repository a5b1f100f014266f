"""The bridge's pure decisions: media types, documents, instance settings, record documents,
resources, rates.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from starlette.requests import Request

from bridge.core.documents import UnusableDocument, embedded_json, read, read_texts, write
from bridge.core.instance_settings import InstanceRequest, instance_settings
from bridge.core.media_types import (
    GENERAL,
    JSON,
    V2,
    EmbeddedFormat,
    check_v2_content,
    embedded_format_of,
    negotiate,
    negotiate_records,
)
from bridge.core.rates import Rate
from bridge.core.refusals import Refused
from bridge.core.v2_documents import PlaceOffsets, Places, Produced, ProducedRecord, Subscription, read_records
from bridge.core.v3_records import data_bytes, read_record, timestamp_ms, timestamp_text
from bridge.core.v3_resources import Lag, Resources
from bridge.parts import number_in_path
from bridge.v3_cluster import ConfigChanges, TopicRequest

MAKE = Resources(address="http://h", cluster_id="c", quoted=lambda text: text)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, V2),
        ("", V2),
        ("*/*", V2),
        ("application/*", V2),
        (JSON, JSON),
        ("application/json; q=0.5, application/vnd.kafka.v2+json", V2),
        ("text/html, application/json;q=0.1", JSON),
        ("APPLICATION/JSON", JSON),
    ],
)
def test_the_answer_has_the_most_wanted_type_that_is_on_offer(accept: str | None, chosen: str) -> None:
    assert negotiate(accept, GENERAL) == chosen


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "application/json;q=x", ";"])
def test_an_unexpected_answer_is_refused(accept: str) -> None:
    with pytest.raises(Refused) as refused:
        negotiate(accept, GENERAL)
    assert refused.value.status == 406


def test_records_are_answered_in_the_format_of_their_instance() -> None:
    binary, json = EmbeddedFormat.BINARY, EmbeddedFormat.JSON
    assert negotiate_records("*/*", json) == json.media_type
    assert negotiate_records(f"{binary.media_type}, {json.media_type};q=0.1", json) == json.media_type
    with pytest.raises(Refused) as refused:
        negotiate_records(binary.media_type, json)
    assert (refused.value.status, refused.value.error_code) == (406, 40601)


def test_the_content_type_says_how_records_stand_in_a_body() -> None:
    assert embedded_format_of("application/vnd.kafka.json.v2+json; charset=utf-8") is EmbeddedFormat.JSON
    assert embedded_format_of("Application/vnd.kafka.BINARY.v2+json") is EmbeddedFormat.BINARY
    for foreign in (None, JSON, V2, "application/vnd.kafka.avro.v2+json"):
        with pytest.raises(Refused):
            embedded_format_of(foreign)
    check_v2_content(None)
    with pytest.raises(Refused):
        check_v2_content("text/plain")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES, JSON_VALUES)
def test_json_goes_through_unchanged(key: Any, value: Any) -> None:
    import json

    texts = [json.dumps(part, ensure_ascii=False).encode("utf-8", "replace") for part in (key, value)]
    body = b'{"records": [{"key": %b, "value": %b}]}' % (texts[0], texts[1])
    ((stored_key, stored_value, _),) = read_records(body, EmbeddedFormat.JSON)
    assert [stored_key, stored_value] == [None if text == b"null" else text for text in texts]
    assert bytes(embedded_json(stored_value)) == texts[1]
    assert write([embedded_json(stored_value)]) == b"[" + texts[1] + b"]"


@given(st.binary())
def test_bytes_of_a_log_are_embedded_only_when_they_are_json(data: bytes) -> None:
    import json

    try:
        embedded = embedded_json(data)
    except UnusableDocument:
        return
    json.loads(bytes(embedded))


def test_a_number_keeps_every_digit() -> None:
    (record,) = read_records(b'{"records":[{"value": 12345678901234567890.10e400}]}', EmbeddedFormat.JSON)
    assert record == (None, b"12345678901234567890.10e400", None)


def test_an_error_of_a_record_stands_in_its_place() -> None:
    answer = Produced([ProducedRecord(partition=1, offset=2), ProducedRecord(error_code=50003, error="later")])
    assert write(answer) == (
        b'{"offsets":[{"partition":1,"offset":2,"error_code":null,"error":null},'
        b'{"partition":null,"offset":null,"error_code":50003,"error":"later"}],"key_schema_id":null,"value_schema_id":null}'
    )


def test_settings_of_an_instance_may_be_strings_or_what_they_are() -> None:
    texts = read(b'{"auto.commit.enable":"False","fetch.min.bytes":"5","auto.offset.reset":"none"}', InstanceRequest)
    values = read(b'{"auto.commit.enable":false,"fetch.min.bytes":5,"auto.offset.reset":"none"}', InstanceRequest)
    assert instance_settings(texts) == instance_settings(values)
    found = instance_settings(values)
    assert (found.is_committing, found.fetch_min_bytes, found.reset_policy) == (False, 5, "error")
    assert instance_settings(InstanceRequest()).embedded is EmbeddedFormat.BINARY
    assert instance_settings(InstanceRequest(id="old")).name == "old"


@pytest.mark.parametrize("name", ["", "a/b"])
def test_an_instance_s_name_has_a_place_in_a_path(name: str) -> None:
    with pytest.raises(Refused):
        instance_settings(InstanceRequest(name=name))


def test_times_are_read_with_their_zone_and_written_in_utc() -> None:
    moment = read_record(b'{"timestamp":"2021-02-05T20:14:42.5+01:00"}').timestamp
    assert timestamp_text(timestamp_ms(moment)) == "2021-02-05T19:14:42.500Z"
    assert timestamp_ms(None) == 0
    assert timestamp_ms(datetime(2021, 2, 5)) == timestamp_ms(datetime(2021, 2, 5, tzinfo=UTC))
    with pytest.raises(Refused):
        timestamp_ms(datetime(1970, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("document", "stored"),
    [
        (b'{"value":{"type":"JSON","data":{"a": 1.0}}}', b'{"a": 1.0}'),
        (b'{"value":{"type":"STRING","data":"\\u00fc"}}', "ü".encode()),
        (b'{"value":{"type":"binary","data":"AAE="}}', b"\x00\x01"),
        (b'{"value":{"data":"AAE="}}', b"\x00\x01"),
        (b'{"value":{"type":"JSON","data":null}}', None),
        (b'{"value":{"type":"JSON"}}', None),
        (b'{"value":null}', None),
        (b"{}", None),
    ],
)
def test_a_value_is_stored_as_its_type_says(document: bytes, stored: bytes | None) -> None:
    assert data_bytes(read_record(document).value, what="value") == stored


def test_a_name_of_a_header_that_librdkafka_would_shorten_is_refused() -> None:
    with pytest.raises(Refused, match=r"must not contain the character U\+0000"):
        read_record(b'{"headers":[{"name":"a\\u0000b"}]}')


def test_a_type_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(Refused, match="BINARY, JSON and STRING"):
        data_bytes(read_record(b'{"key":{"type":"XML","data":"x"}}').key, what="key")


def test_a_resource_is_named_by_where_it_is() -> None:
    assert MAKE.partition("t", 3, leader=1)["metadata"] == {
        "self": "http://h/v3/clusters/c/topics/t/partitions/3",
        "resource_name": "crn:///kafka=c/topic=t/partition=3",
    }
    assert "leader" not in MAKE.partition("t", 3, leader=None)


def test_a_sensitive_config_is_not_shown() -> None:
    entry = SimpleNamespace(
        name="k", value="secret", is_read_only=True, is_sensitive=True, source=SimpleNamespace(value=4), synonyms={}
    )
    found = MAKE.config(("brokers", 1), {"broker_id": 1}, entry)
    assert (found["value"], found["source"], found["kind"]) == (None, "STATIC_BROKER_CONFIG", "KafkaBrokerConfig")


def test_the_summary_names_the_partition_that_is_furthest_behind() -> None:
    lags = [
        Lag(topic="t", partition=0, current_offset=5, log_end_offset=9),
        Lag(topic="t", partition=1, current_offset=0, log_end_offset=7, member="m", client="i"),
        Lag(topic="t", partition=2, current_offset=9, log_end_offset=3),
    ]
    found = MAKE.lag_summary("g", lags)
    assert (found["max_lag_partition_id"], found["max_lag"], found["total_lag"]) == (1, 7, 11)


def test_a_rate_is_overdrawn_once_and_earned_back() -> None:
    rate = Rate(100)
    assert rate.wait_ms(0) == 0
    rate.take(250)
    assert rate.wait_ms(0) == 1501
    assert rate.wait_ms(1000) == 501
    assert rate.wait_ms(1501) == 0
    assert rate.wait_ms(60_000) == 0
    rate.take(99)
    assert rate.wait_ms(60_000) == 0
    assert Rate(0).wait_ms(0) == 0


def test_raw_null_is_a_tombstone() -> None:
    assert embedded_json(None) == Raw(b"null")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Subscription, b'{"topics":["orders\\u0000more"]}'),
        (Subscription, b'{"topic_pattern":"orders\\u0000more"}'),
        (Places, b'{"partitions":[{"topic":"orders\\u0000more","partition":0}]}'),
        (PlaceOffsets, b'{"offsets":[{"topic":"orders","partition":0,"offset":1,"metadata":"a\\u0000b"}]}'),
        (TopicRequest, b'{"topic_name":"orders\\u0000more"}'),
        (ConfigChanges, b'{"data":[{"name":"cleanup.policy","value":"compact\\u0000more"}]}'),
    ],
)
def test_a_text_that_librdkafka_would_shorten_is_refused(kind: type[Any], body: bytes) -> None:
    with pytest.raises(Refused, match=r"U\+0000"):
        read_texts(body, kind)
    read_texts(body.replace(b"\\u0000", b""), kind)


@pytest.mark.parametrize("text", ["9" * 5000, "4294967296", "-1", "x", "\u0664"])
def test_a_number_in_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a number"):
        number_in_path(Request({"type": "http", "path_params": {"partition": text}}), "partition")


def test_half_of_a_surrogate_pair_is_named() -> None:
    with pytest.raises(Refused, match="half of a surrogate pair"):
        read(b'{"records": ["\\ud83dx"]}', dict)
    with pytest.raises(Refused, match="truncated"):
        read(b'{"records": ["\\ud83d', dict)
    assert read(b'{"records": "\\ud83d\\ude00"}', dict) == {"records": "\U0001f600"}
