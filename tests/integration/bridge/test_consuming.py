"""Groups over HTTP: instances, reads, offsets and positions, beside native members of the same
groups.
"""

from __future__ import annotations

import base64
import concurrent.futures
import select
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from bridge.consumer_instance import IDLE_S
from bridge.consumers import TEND_PAUSE_S
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.embedded.http_bridge import BINARY_V2, JSON_V2, BridgeClient, HttpBridge, Instance
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def values(records: list[dict[str, Any]]) -> list[Any]:
    return [record["value"] for record in records]


def produced(bridge: BridgeClient, topic: str, count: int, *, first: int = 0) -> list[int]:
    numbers = list(range(first, first + count))
    bridge.produce(topic, [{"value": number} for number in numbers])
    return numbers


def place(topic: str, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, **more}


def committed(instance: Instance, topic: str) -> list[int]:
    return [item["offset"] for item in instance.ask("offsets", {"partitions": [place(topic)]})["offsets"]]


def test_a_member_reads_what_native_producers_wrote(bridge: BridgeClient, bootstrap: str, group: str) -> None:
    topic = bridge.new_topic()
    librdkafka_produce(bootstrap, topic, [Record(b'{"n": 1.10e400}', b"1"), Record(None, b'"k"')])
    instance = bridge.instance(group).subscribed(topic)
    answer = eventually_sync(lambda: (found := instance.get("records")).text != "[]" and found)
    assert answer.headers["content-type"] == JSON_V2
    head = f'"topic":"{topic}",'
    assert answer.text == (
        f'[{{{head}"key":1,"value":{{"n": 1.10e400}},"partition":0,"offset":0}},'
        f'{{{head}"key":"k","value":null,"partition":0,"offset":1}}]'
    )
    instance.delete()


def test_binary_records_are_read_as_base64(bridge: BridgeClient, bootstrap: str, group: str) -> None:
    topic = bridge.new_topic()
    librdkafka_produce(bootstrap, topic, [Record(bytes(range(256)), b"\xff"), Record(None)])
    instance = bridge.instance(group, format="binary").subscribed(topic)
    first, second = instance.read_until(2)
    assert (base64.b64decode(first["value"]), base64.b64decode(first["key"])) == (bytes(range(256)), b"\xff")
    assert (second["value"], second["key"]) == (None, None)
    assert instance.get("records").headers["content-type"] == BINARY_V2


def test_a_native_member_goes_on_where_an_instance_has_committed(
    bridge: BridgeClient, bootstrap: str, group: str
) -> None:
    topic = bridge.new_topic()
    produced(bridge, topic, 20)
    instance = bridge.instance(group, auto_commit_enable="false").subscribed(topic)
    assert values(instance.read_until(20)) == list(range(20))
    assert committed(instance, topic) == []
    instance.done("offsets", {"offsets": [place(topic, offset=11)]})
    assert committed(instance, topic) == [12]  # behind the record that was named
    instance.delete()
    received = librdkafka_consume(bootstrap, topic, 8, group=group)
    assert [record.value for record in received] == [b"%d" % number for number in range(12, 20)]


def test_only_delivered_records_are_committed(bridge: BridgeClient, group: str) -> None:
    topic = bridge.new_topic()
    produced(bridge, topic, 20)
    instance = bridge.instance(group, auto_commit_enable=False).subscribed(topic)
    read: list[int] = []
    eventually_sync(lambda: read.extend(values(instance.read(max_bytes=5))) or read)
    assert read == [0, 1, 2, 3, 4]
    instance.bridge.http.post(f"{instance.path}/offsets")
    assert committed(instance, topic) == [5]
    assert values(instance.read_until(15)) == list(range(5, 20))
    instance.delete()
    next_instance = bridge.instance(group).subscribed(topic)
    assert values(next_instance.read_until(15)) == list(range(5, 20))


def test_an_instance_commits_by_itself_when_it_leaves(bridge: BridgeClient, group: str) -> None:
    topic = bridge.new_topic()
    produced(bridge, topic, 5)
    instance = bridge.instance(group).subscribed(topic)
    instance.read_until(5)
    instance.delete()
    produced(bridge, topic, 1, first=5)
    assert values(bridge.instance(group).subscribed(topic).read_until(1)) == [5]


def test_an_instance_shares_a_group_with_a_native_member_that_comes_and_goes(
    bridge: BridgeClient, bootstrap: str, group: str
) -> None:
    from confluent_kafka import Consumer

    topic = bridge.new_topic(partitions=2)
    instance = bridge.instance(group).subscribed(topic)

    def held() -> int:
        instance.read(timeout=0)
        return len(instance.get("assignments").json()["partitions"])

    eventually_sync(lambda: held() == 2)
    native = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000})
    native.subscribe([topic])
    eventually_sync(lambda: (native.poll(0.05), len(native.assignment()))[1] == 1 and held() == 1)
    native.close()
    eventually_sync(lambda: held() == 2)
    members = bridge.http.get(f"{bridge.cluster}/consumer-groups/{group}/consumers").json()["data"]
    assert [member["client_id"] for member in members] == [instance.path.rpartition("/")[2]]


def test_an_idle_instance_does_not_hold_up_its_group(bridge: BridgeClient, bootstrap: str, group: str) -> None:
    topic = bridge.new_topic(partitions=2)
    produced(bridge, topic, 4)
    bridge.instance(group).subscribed(topic)  # never reads: it has half of the partitions, and lets go of the other
    busy = bridge.instance(group).subscribed(topic)
    eventually_sync(lambda: (busy.read(), len(busy.get("assignments").json()["partitions"]))[1] == 1)


def test_partitions_paused_while_the_consumer_was_idle_continue_after_resume(bridge: BridgeClient, group: str) -> None:
    topic = bridge.new_topic()
    produced(bridge, topic, 3)
    instance = bridge.instance(group).subscribed(topic)
    instance.read_until(3)
    idle_since = time.monotonic()
    eventually_sync(lambda: time.monotonic() - idle_since > 2 * (IDLE_S + TEND_PAUSE_S))
    assert bridge.http.delete(f"{instance.path}/subscription").status_code == 204
    instance.subscribed(topic)
    instance.read(timeout=0)  # has no partitions yet, so it cannot resume any
    produced(bridge, topic, 3, first=3)
    assert values(instance.read_until(3))[-1] == 5


def test_positions_are_moved_and_commits_follow_them(bridge: BridgeClient, group: str) -> None:
    topic = bridge.new_topic()
    produced(bridge, topic, 10)
    instance = bridge.instance(group, auto_commit_enable=False)
    instance.done("assignments", {"partitions": [place(topic)]})
    instance.done("positions", {"offsets": [place(topic, offset=7)]})
    assert values(instance.read_until(3)) == [7, 8, 9]
    instance.done("positions/beginning", {"partitions": [place(topic)]})
    assert values(instance.read_until(10)) == list(range(10))
    instance.done("positions", {"offsets": [place(topic, offset=4)]})
    instance.bridge.http.post(f"{instance.path}/offsets")
    assert committed(instance, topic) == [4]
    instance.done("positions/end", {"partitions": [place(topic)]})
    produced(bridge, topic, 1, first=10)
    assert values(instance.read_until(1)) == [10]
    assert instance.post("positions", {"offsets": [place(topic, 5, offset=0)]}).json()["error_code"] == 40903


def test_kinds_of_subscription_exclude_each_other_until_it_is_given_up(bridge: BridgeClient, group: str) -> None:
    topic = bridge.new_topic()
    produced(bridge, topic, 1)
    instance = bridge.instance(group)
    assert instance.get("records").json()["error_code"] == 40903
    instance.done("assignments", {"partitions": [place(topic)]})
    assert instance.post("subscription", {"topics": [topic]}).json()["error_code"] == 40903
    assert bridge.http.delete(f"{instance.path}/subscription").status_code == 204
    assert instance.get("assignments").json() == {"partitions": []}
    instance.done("subscription", {"topic_pattern": f"{topic[:-1]}."})
    assert values(instance.read_until(1)) == [0]
    assert instance.get("subscription").json() == {"topics": [topic]}
    assert instance.post("subscription", {"topics": [topic]}).json()["error_code"] == 40903
    assert instance.post("subscription", {}).status_code == 422


def test_a_record_that_is_no_json_is_named_and_can_be_passed(bridge: BridgeClient, bootstrap: str, group: str) -> None:
    topic = bridge.new_topic()
    librdkafka_produce(bootstrap, topic, [Record(b"1"), Record(b"\xff{"), Record(b"3")])
    instance = bridge.instance(group).subscribed(topic)
    assert values(instance.read_until(1)) == [1]
    for _ in range(2):
        answer = instance.get("records")
        assert (answer.status_code, answer.json()["error_code"]) == (500, 50002)
        assert f"{topic}-0 at offset 1" in answer.json()["message"]
    instance.done("positions", {"offsets": [place(topic, offset=2)]})
    assert values(instance.read_until(1)) == [3]


def test_a_read_returns_after_its_timeout_and_within_its_size(bridge: BridgeClient, group: str) -> None:
    topic = bridge.new_topic()
    bridge.produce(topic, [{"value": "x" * 998} for _ in range(5)])
    instance = bridge.instance(group, fetch_min_bytes=-1).subscribed(topic)
    eventually_sync(lambda: instance.read(timeout=50, max_bytes=1))  # one, though larger than asked for
    eventually_sync(lambda: len(instance.read(timeout=50, max_bytes=2500)) == 2)
    assert len(instance.read(timeout=50)) == 2
    assert instance.read(timeout=0) == []


def test_a_second_request_is_refused_while_a_read_waits_and_deleting_ends_it(
    start_bridge: Callable[..., HttpBridge], group: str
) -> None:
    bridge = start_bridge(consumer_request_timeout_ms="60000")
    topic = bridge.new_topic()
    instance = bridge.instance(group, fetch_min_bytes=-1).subscribed(topic)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        reading = thread.submit(_first_not_refused, lambda: instance.get("records"))
        eventually_sync(lambda: instance.get("assignments").status_code == 409)
        assert instance.get("assignments").json()["error_code"] == 40903
        instance.delete()
        assert (reading.result().status_code, reading.result().json()) == (200, [])
    assert instance.get("assignments").json()["error_code"] == 40403


def _first_not_refused(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """Ask until no other request of the instance is under way (409)."""
    return eventually_sync(lambda: None if (answer := ask()).status_code == 409 else [answer])[0]


def test_records_read_for_a_client_that_has_gone_wait_for_the_next_read(
    start_bridge: Callable[..., HttpBridge], group: str
) -> None:
    bridge = start_bridge(consumer_request_timeout_ms="60000")
    topic = bridge.new_topic()
    instance = bridge.instance(group, fetch_min_bytes=-1).subscribed(topic)
    eventually_sync(lambda: (instance.read(timeout=50), instance.get("assignments").json()["partitions"])[1])
    with bridge.connect() as connection:
        question = f"GET {instance.path}/records HTTP/1.1\r\nhost: bridge\r\n\r\n".encode()
        connection.sendall(question)

        def is_reading() -> bool:
            if select.select([connection], [], [], 0)[0]:  # it met a look at the assignments and was refused itself
                assert b" 409 " in connection.recv(65_536)
                connection.sendall(question)
            return bool(instance.get("assignments").status_code == 409)

        eventually_sync(is_reading)
        produced(bridge, topic, 3)
        ends = eventually_sync(lambda: instance.get("subscription").status_code == 409)
        assert ends
    eventually_sync(lambda: instance.get("subscription").status_code == 200)
    read: list[int] = []
    eventually_sync(lambda: read.extend(values(instance.read(timeout=100))) or len(read) == 3)
    assert read == [0, 1, 2]


def test_an_unused_instance_leaves_its_group(start_bridge: Callable[..., HttpBridge], group: str) -> None:
    bridge = start_bridge(consumer_instance_timeout_ms="700")
    topic = bridge.new_topic()
    read: list[int] = []

    def read_all(count: int) -> Instance:
        """Read by as many instances as needed: on a busy machine an instance can expire between two
        of these requests.
        """
        while True:
            instance = bridge.instance(group)
            answer = instance.post("subscription", {"topics": [topic]})
            while answer.status_code != 404:
                assert answer.is_success, answer.text
                if len(read) >= count:
                    return instance
                answer = instance.get("records")
                if answer.status_code == 200:
                    read.extend(values(answer.json()))

    produced(bridge, topic, 2)
    instance = read_all(2)
    eventually_sync(lambda: bridge.figure("consumer_instances") == 0)
    assert bridge.figure("expired_instances_total") >= 1
    assert instance.get("records").json()["error_code"] == 40403
    eventually_sync(lambda: bridge.http.get(f"{bridge.cluster}/consumer-groups/{group}").json()["state"] == "EMPTY")
    produced(bridge, topic, 1, first=2)
    read_all(3)
    assert read == [0, 1, 2]


def test_there_are_only_as_many_instances_as_are_allowed(start_bridge: Callable[..., HttpBridge], group: str) -> None:
    bridge = start_bridge(antipode_consumer_instances_max="2")
    first, _ = bridge.instance(group), bridge.instance(group)
    refused = bridge.post(f"/consumers/{group}", {})
    assert (refused.status_code, refused.json()["error_code"]) == (429, 42901)
    first.delete()
    eventually_sync(lambda: bridge.post(f"/consumers/{group}", {}).status_code == 200)


@pytest.mark.parametrize(
    ("settings", "error_code"),
    [
        ({"format": "avro"}, 42204),
        ({"auto.offset.reset": "newest"}, 42204),
        ({"auto.commit.enable": "yes"}, 42204),
        ({"fetch.min.bytes": "20000000"}, 40001),
        ({"fetch.min.bytes": "many"}, 42204),
        ({"session.timeout": 1}, 422),
        ([], 422),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    bridge: BridgeClient, group: str, settings: dict[str, Any], error_code: int
) -> None:
    answer = bridge.post(f"/consumers/{group}", settings)
    assert (answer.status_code, answer.json()["error_code"]) == (422, error_code)


def test_two_instances_of_one_name_do_not_exist(bridge: BridgeClient, group: str) -> None:
    instance = bridge.instance(group, name="i")
    assert instance.path == f"/consumers/{group}/instances/i"
    assert bridge.post(f"/consumers/{group}", {"name": "i"}).json()["error_code"] == 40902
    instance.delete()
    assert bridge.http.delete(instance.path).json()["error_code"] == 40403
    bridge.instance(group, name="i").delete()


def test_another_embedded_format_than_the_instance_s_is_refused(bridge: BridgeClient, group: str) -> None:
    instance = bridge.instance(group, name="i", format="json")
    answer = bridge.http.get(f"{instance.path}/records", headers={"accept": BINARY_V2})
    assert (answer.status_code, answer.json()["error_code"]) == (406, 40601)
    answer = bridge.http.get(f"{instance.path}/records", headers={"accept": "text/html"})
    assert (answer.status_code, answer.json()["error_code"]) == (406, 406)
