"""Hostile clients of a bridge send too much, too slowly or nonsense, or do not read their
responses. The other clients notice nothing.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable

import pytest

from tests.support.embedded.http_bridge import BINARY_V2, JSON_V2, V2, BridgeClient, HttpBridge
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def answer_of(connection: socket.socket) -> bytes:
    """Everything until the bridge ends the connection."""
    received = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not piece:
            return received
        received += piece


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", JSON_V2, 400),
        (b"{", JSON_V2, 400),
        (b'{"records":[{"value":\xff}]}', JSON_V2, 400),
        (b'{"records":[{"value":"\xff"}]}', JSON_V2, 400),
        (b'{"records":[{"value":01}]}', JSON_V2, 400),
        (b'{"records":[{"value":' + b"[" * 100_000, JSON_V2, 400),
        (b'{"records":[]}', JSON_V2, 422),
        (b'{"records":{}}', JSON_V2, 422),
        (b'{"records":[{"value":1,"header":2}]}', JSON_V2, 422),
        (b'{"records":[{"value":1,"partition":-1}]}', JSON_V2, 422),
        (b'{"records":[{"value":1,"partition":99999999999}]}', JSON_V2, 422),
        (b'{"records":[{"value":1,"partition":5}]}', JSON_V2, 404),
        (b'{"records":[{"value":"?"}]}', BINARY_V2, 422),
        (b'{"records":[{"value":1}]}', "application/json", 415),
        (b'{"records":[{"value":1}]}', "application/vnd.kafka.avro.v2+json", 415),
        (b'{"records":[{"value":1}]}', V2, 415),
    ],
)
def test_a_body_that_is_none_is_refused_and_nothing_is_written(
    bridge: BridgeClient, body: bytes, content_type: str, status: int
) -> None:
    topic = bridge.new_topic()
    answer = bridge.http.post(f"/topics/{topic}", content=body, headers={"content-type": content_type})
    assert answer.status_code == status, answer.text
    assert answer.json()["error_code"] // 100 == status or answer.json()["error_code"] == status
    assert bridge.http.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/topics/nowhere", 404),
        ("POST", "/topics/nowhere", 415),
        ("GET", "/topics/%00", 400),
        ("GET", "/nowhere", 404),
        ("PUT", "/topics", 405),
        ("GET", "/v3/clusters/other/topics", 404),
        ("GET", "/consumers/g/instances/i/records", 404),
        ("GET", "/topics/t/partitions/99999999999999999999", 400),
        ("GET", "/topics/t/partitions/x", 400),
    ],
)
def test_a_path_that_leads_nowhere_is_answered_by_an_error(
    bridge: BridgeClient, method: str, path: str, status: int
) -> None:
    answer = bridge.http.request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.json()["error_code"]


def test_bodies_are_bounded_one_by_one_and_together(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(antipode_request_max_bytes="20000", antipode_requests_max_bytes="30000")
    topic = bridge.new_topic()
    large = json.dumps({"records": [{"value": "x" * 20_000}]}).encode()
    headers = {"content-type": JSON_V2}
    assert bridge.http.post(f"/topics/{topic}", content=large, headers=headers).status_code == 413
    chunked = (large[at : at + 1000] for at in range(0, len(large), 1000))
    assert bridge.http.post(f"/topics/{topic}", content=chunked, headers=headers).status_code == 413
    fitting = json.dumps({"records": [{"value": "x" * 15_000}]}).encode()
    with bridge.connect() as slow:
        slow.sendall(
            f"POST /topics/{topic} HTTP/1.1\r\nhost: b\r\ncontent-type: {JSON_V2}\r\n"
            f"content-length: {len(fitting)}\r\n\r\n".encode()
        )
        slow.sendall(fitting[:-1])
        eventually_sync(lambda: bridge.figure("bodies_bytes") == len(fitting) - 1)
        refused = bridge.http.post(f"/topics/{topic}", content=fitting, headers=headers)
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42901)
        assert bridge.produce(topic, [{"value": 1}])[0]["offset"] == 0
        slow.sendall(fitting[-1:])
        assert slow.recv(65536).startswith(b"HTTP/1.1 200")
    assert bridge.figure("bodies_bytes") == 0


def test_a_record_of_a_stream_is_bounded(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(antipode_record_max_bytes="2000")
    topic = bridge.new_topic()
    small = json.dumps({"value": {"type": "STRING", "data": "x" * 100}}).encode()
    endless = b'{"value":{"type":"STRING","data":"' + b"x" * 3000
    lines = bridge.stream(topic, [small, endless, small])
    assert [line["error_code"] for line in lines] == [200, 413]
    assert bridge.figure("bodies_bytes") == 0


def test_clients_that_dawdle_are_cut_off_and_the_others_are_served(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(antipode_client_timeout_ms="1500")
    topic = bridge.new_topic()
    begun = {
        "nothing": b"",
        "half a head": b"GET /topics HTTP/1.1\r\nhost: b\r\nx-slow: 1",
        "half a body": f"POST /topics/{topic} HTTP/1.1\r\nhost: b\r\ncontent-type: {JSON_V2}\r\ncontent-length: 99\r\n\r\n{{".encode(),
    }
    connections = {name: bridge.connect() for name in begun}
    for name, connection in connections.items():
        connection.sendall(begun[name])
    for _ in range(5):
        bridge.produce(topic, [{"value": 1}])
    answers = {name: answer_of(connection) for name, connection in connections.items()}
    for connection in connections.values():
        connection.close()
    assert answers["nothing"] == answers["half a head"] == b""
    assert answers["half a body"].startswith(b"HTTP/1.1 408") or answers["half a body"] == b""
    assert bridge.http.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 5


def test_a_client_that_does_not_take_its_answer_is_cut_off(
    start_bridge: Callable[..., HttpBridge], bridge: BridgeClient
) -> None:
    topic = bridge.new_topic()
    bridge.produce(topic, [{"value": "x" * 500_000} for _ in range(20)])  # by the other one: this may take a second
    bridge = start_bridge(antipode_client_timeout_ms="1000", consumer_request_timeout_ms="60000")
    instance = bridge.instance(f"g-{uuid.uuid4().hex}", fetch_min_bytes=8_000_000).subscribed(topic)
    eventually_sync(lambda: instance.read(max_bytes=1))
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(bridge.address)
        deaf.sendall(f"GET {instance.path}/records?max_bytes=9000000 HTTP/1.1\r\nhost: b\r\n\r\n".encode())
        eventually_sync(lambda: bridge.figure("dropped_connections_total") == 1)
    assert bridge.produce(topic, [{"value": 1}])[0]["offset"] == 20


def test_a_head_without_end_is_cut_off(bridge: BridgeClient) -> None:
    with bridge.connect() as connection:
        connection.sendall(b"GET /topics HTTP/1.1\r\nhost: b\r\nx-long: ")
        try:
            for _ in range(200):
                connection.sendall(b"x" * 4096)
        except OSError:
            return
        assert not answer_of(connection).startswith(b"HTTP/1.1 200")


def test_connections_beyond_the_bound_get_an_error(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(antipode_connections_max="3")
    bridge.http.close()
    eventually_sync(lambda: bridge.figure("connections") == 0)
    held = [bridge.connect() for _ in range(3)]
    eventually_sync(lambda: bridge.figure("connections") == 3)
    with bridge.connect() as refused:
        assert answer_of(refused).startswith(b"HTTP/1.1 503")
    for connection in held:
        connection.close()
    eventually_sync(lambda: bridge.figure("connections") == 0)
    with bridge.connect() as served:
        served.sendall(b"GET /topics HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n")
        assert answer_of(served).startswith(b"HTTP/1.1 200")


def test_bytes_that_are_no_http_end_their_connection_alone(bridge: BridgeClient) -> None:
    with bridge.connect() as connection:
        connection.sendall(b"\x00\x00\x00\x10\x00\x03\x00\x01 kafka?")
        assert b"HTTP/1.1 200" not in answer_of(connection)
    assert bridge.http.get("/health").status_code == 200
