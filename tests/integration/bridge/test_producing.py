"""Records over HTTP into Kafka: both API versions, as native clients find them."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clients.kafka_clients import Record as Sent
from tests.support.clients.kafka_clients import librdkafka_consume, librdkafka_produce
from tests.support.embedded.http_bridge import BINARY_V2, JSON_V2, BridgeClient, HttpBridge
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def found(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    received = librdkafka_consume(bootstrap, topic, count, group=f"g-{uuid.uuid4().hex}")
    return [(record.key, record.value) for record in sorted(received, key=lambda record: record.offset)]


def test_json_is_stored_as_it_was_sent(bridge: BridgeClient, bootstrap: str) -> None:
    topic = bridge.new_topic()
    body = (
        '{"records": [{"key": "a", "value": {"z": 1.10e400, "a": 12345678901234567890.10}},'
        ' {"value": "ü\\u00e9"}, {"key": null, "value": false}, {"key": [1], "value": null}, {}]}'
    )
    answer = bridge.http.post(f"/topics/{topic}", content=body.encode(), headers={"content-type": JSON_V2})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "offsets": [{"partition": 0, "offset": n, "error_code": None, "error": None} for n in range(5)],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    assert found(bootstrap, topic, 5) == [
        (b'"a"', b'{"z": 1.10e400, "a": 12345678901234567890.10}'),
        (None, '"ü\\u00e9"'.encode()),
        (None, b"false"),
        (b"[1]", None),
        (None, None),
    ]


def test_binary_records_are_the_bytes_that_were_meant(bridge: BridgeClient, bootstrap: str) -> None:
    topic = bridge.new_topic()
    every_byte = bytes(range(256))
    record = {"key": base64.b64encode(b"k").decode(), "value": base64.b64encode(every_byte).decode()}
    bridge.produce(topic, [record, {"key": "", "value": None}], content_type=BINARY_V2)
    assert found(bootstrap, topic, 2) == [(b"k", every_byte), (b"", None)]


def test_a_key_goes_where_java_s_clients_put_it(bridge: BridgeClient) -> None:
    topic = bridge.new_topic(partitions=16)
    encoded = [base64.b64encode(key.encode()).decode() for key in ("a", "order-1", "antipode", "ü")]
    places = bridge.produce(topic, [{"key": key, "value": ""} for key in encoded], content_type=BINARY_V2)
    again = bridge.produce(topic, [{"key": key, "value": ""} for key in encoded], content_type=BINARY_V2)
    assert [place["partition"] for place in places] == [place["partition"] for place in again]
    assert [place["partition"] for place in places] == [12, 6, 15, 10]  # murmur2 & 0x7fffffff, modulo 16


def test_a_partition_can_be_chosen_by_the_record_or_by_the_path(bridge: BridgeClient) -> None:
    topic = bridge.new_topic(partitions=3)
    places = bridge.produce(topic, [{"value": 1, "partition": 2}, {"value": 2, "partition": 0}])
    assert [place["partition"] for place in places] == [2, 0]
    answer = bridge.post(f"/topics/{topic}/partitions/1", {"records": [{"value": 3}]}, content_type=JSON_V2)
    assert answer.json()["offsets"][0] == {"partition": 1, "offset": 0, "error_code": None, "error": None}
    other = bridge.post(
        f"/topics/{topic}/partitions/1", {"records": [{"value": 3, "partition": 2}]}, content_type=JSON_V2
    )
    assert other.status_code == 422
    ends = [bridge.http.get(f"/topics/{topic}/partitions/{n}/offsets").json()["end_offset"] for n in range(3)]
    assert ends == [1, 1, 1]


def test_each_record_of_a_stream_has_its_line_in_order(bridge: BridgeClient, bootstrap: str) -> None:
    topic = bridge.new_topic(retention_ms="-1")
    records: list[dict[str, Any]] = [
        {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {"brace": "}"}}},
        {"value": {"type": "BINARY", "data": "AAE="}, "timestamp": "2021-02-05T19:14:42.123Z"},
        {"value": {"type": "BINARY", "data": "?"}},
        {"value": {"type": "AVRO", "data": 1}},
        {"partition_id": 7, "value": {"type": "JSON", "data": 1}},
        {"unknown": 1},
        {"key": {"type": "JSON", "data": None}, "headers": [{"name": "h", "value": "AAE="}, {"name": "n"}]},
    ]
    body = "\n ".join(json.dumps(record) for record in records).encode()
    lines = bridge.stream(topic, (body[at : at + 7] for at in range(0, len(body), 7)))
    assert [line["error_code"] for line in lines] == [200, 200, 40002, 40002, 404, 422, 200]
    assert lines[0]["key"] == {"type": "STRING", "size": 1}
    assert lines[0]["value"] == {"type": "JSON", "size": 14}
    assert lines[1]["timestamp"] == "2021-02-05T19:14:42.123Z"
    assert [line["offset"] for line in lines if "offset" in line] == [0, 1, 2]
    assert found(bootstrap, topic, 3) == [(b"k", b'{"brace": "}"}'), (None, b"\x00\x01"), (None, None)]


def test_a_stream_is_answered_while_it_is_still_open(bridge: BridgeClient) -> None:
    topic = bridge.new_topic()
    with bridge.connect() as connection:
        head = f"POST {bridge.cluster}/topics/{topic}/records HTTP/1.1\r\nhost: bridge\r\n"
        connection.sendall(f"{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        received = b""
        for number in range(3):
            record = b'{"value": {"type": "JSON", "data": %d}}' % number
            connection.sendall(b"%x\r\n%b" % (len(record), record[:9]))
            connection.sendall(record[9:] + b"\r\n")
            while b'"offset":%d' % number not in received:
                received += connection.recv(65536)
        connection.sendall(b"0\r\n\r\n")
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("record", "status", "error_code"),
    [
        ({"value": {"type": "BINARY", "data": "?"}}, 400, 40002),
        ({"partition_id": 4}, 404, 404),
        ({"partition_id": -1}, 422, 422),
        ({"timestamp": "yesterday"}, 422, 422),
        ({"value": {"type": "STRING", "data": 5}}, 400, 40002),
    ],
)
def test_a_single_record_has_the_status_of_its_error(
    bridge: BridgeClient, record: dict[str, Any], status: int, error_code: int
) -> None:
    topic = bridge.new_topic()
    answer = bridge.http.post(f"{bridge.cluster}/topics/{topic}/records", json=record)
    assert (answer.status_code, answer.json()["error_code"]) == (status, error_code)


def test_headers_and_timestamps_reach_native_readers(bridge: BridgeClient, bootstrap: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = bridge.new_topic(retention_ms="-1")
    record = {"headers": [{"name": "h", "value": "AAE="}, {"name": "n"}], "timestamp": "1999-12-31T23:59:59+01:00"}
    assert bridge.stream(topic, [json.dumps(record).encode()])[0]["error_code"] == 200
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "headers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = eventually_sync(lambda: consumer.consume(1, 0.5))
    consumer.close()
    assert message.headers() == [("h", b"\x00\x01"), ("n", None)]
    assert message.timestamp()[1] == 946_681_199_000


def test_a_record_that_is_too_large_fails_alone(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(producer_max_request_size="10000")
    topic = bridge.new_topic()
    answer = bridge.post(
        f"/topics/{topic}", {"records": [{"value": 1}, {"value": "x" * 20_000}, {"value": 2}]}, content_type=JSON_V2
    )
    assert answer.status_code == 200
    first, large, last = answer.json()["offsets"]
    assert (first["offset"], last["offset"]) == (0, 1)
    assert (large["error_code"], large["offset"]) == (50002, None)
    assert "too large" in large["error"].lower()


def test_many_streams_share_a_small_buffer_and_lose_nothing(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(producer_buffer_memory="4096", antipode_stream_max_records="10")
    topic = bridge.new_topic()
    line = json.dumps({"value": {"type": "STRING", "data": "x" * 500}}).encode()

    def send(_: int) -> list[int]:
        return [line["offset"] for line in bridge.stream(topic, (line + b"\n" for _ in range(100)))]

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        offsets = [offset for found in threads.map(send, range(4)) for offset in found]
    assert sorted(offsets) == list(range(400))
    assert bridge.figure("unacknowledged_bytes") == 0
    assert bridge.figure("produced_records_total") == 400


def test_producing_is_throttled_to_the_rate_that_is_set(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(**{"api.v3.produce.rate.limit.max.requests.per.sec": "20"})
    topic = bridge.new_topic()
    began_s = time.monotonic()
    for _ in range(4):
        bridge.produce(topic, [{"value": 1}] * 15)
    # 20 are saved up and the last 15 may be overdrawn: the other 25 are earned first, however long
    # the rest takes
    assert time.monotonic() - began_s > 1.2


def test_records_of_native_and_http_producers_stand_in_one_log(bridge: BridgeClient, bootstrap: str) -> None:
    topic = bridge.new_topic()
    bridge.produce(topic, [{"value": 1}])
    librdkafka_produce(bootstrap, topic, [Sent(b"2")])
    bridge.produce(topic, [{"value": 3}])
    assert [value for _, value in found(bootstrap, topic, 3)] == [b"1", b"2", b"3"]
