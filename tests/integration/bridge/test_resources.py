"""API v3 of the cluster and its groups, and the daemon's own life: restart, stop, health."""

from __future__ import annotations

import concurrent.futures
import json
import uuid
from collections.abc import Callable

import pytest

from tests.support.embedded.http_bridge import BridgeClient, HttpBridge
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def test_a_topic_is_made_grown_described_and_deleted(bridge: BridgeClient) -> None:
    name = bridge.new_topic(partitions=2, cleanup_policy="compact")
    path = f"{bridge.cluster}/topics/{name}"
    topic = bridge.http.get(path).json()
    assert (topic["kind"], topic["partitions_count"], topic["is_internal"]) == ("KafkaTopic", 2, False)
    assert topic["metadata"]["self"] == f"{bridge.url}{path}"
    assert topic["metadata"]["resource_name"].endswith(f"/topic={name}")
    assert bridge.http.get(topic["partitions"]["related"]).json()["data"][1]["partition_id"] == 1
    assert bridge.http.patch(path, json={"partitions_count": 3}).json()["partitions_count"] == 3

    def is_led() -> bool:
        replicas = bridge.http.get(f"{path}/partitions/2/replicas").json()["data"]
        return [(item["broker_id"], item["is_leader"], item["is_in_sync"]) for item in replicas] == [(1, True, True)]

    eventually_sync(is_led)
    again = bridge.http.post(f"{bridge.cluster}/topics", json={"topic_name": name})
    assert (again.status_code, again.json()["error_code"]) == (400, 40002)
    assert bridge.http.delete(path).status_code == 204
    eventually_sync(lambda: bridge.http.get(path).status_code == 404)
    assert bridge.http.get(path).json()["error_code"] == 40403


def test_a_topic_that_is_only_validated_is_not_made(bridge: BridgeClient) -> None:
    name = f"t-{uuid.uuid4().hex}"
    wanted = {"topic_name": name, "partitions_count": 1, "validate_only": True}
    assert bridge.http.post(f"{bridge.cluster}/topics", json=wanted).status_code == 200
    assert name not in bridge.http.get("/topics").json()


def test_a_name_that_librdkafka_would_shorten_is_refused(bridge: BridgeClient) -> None:
    name = bridge.new_topic()
    refused = bridge.http.delete(f"{bridge.cluster}/topics/{name}%00more")
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    assert name in bridge.http.get("/topics").json()


def test_configs_are_read_set_reset_and_changed_together(bridge: BridgeClient) -> None:
    configs = f"{bridge.cluster}/topics/{bridge.new_topic()}/configs"

    def value(name: str) -> tuple[str, str]:
        found = bridge.http.get(f"{configs}/{name}").json()
        return found["value"], found["source"]

    assert value("cleanup.policy") == ("delete", "DEFAULT_CONFIG")
    assert bridge.http.put(f"{configs}/cleanup.policy", json={"value": "compact"}).status_code == 204
    eventually_sync(lambda: value("cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG"))
    changes = {"data": [{"name": "cleanup.policy", "operation": "DELETE"}, {"name": "retention.ms", "value": "5000"}]}
    assert bridge.http.post(f"{configs}:alter", json=changes).status_code == 204
    eventually_sync(lambda: value("retention.ms") == ("5000", "DYNAMIC_TOPIC_CONFIG"))
    assert value("cleanup.policy") == ("delete", "DEFAULT_CONFIG")
    assert bridge.http.delete(f"{configs}/retention.ms").status_code == 204
    eventually_sync(lambda: value("retention.ms")[1] == "DEFAULT_CONFIG")
    refused = bridge.http.put(f"{configs}/cleanup.policy", json={"value": "burn"})
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    assert bridge.http.get(f"{configs}/nothing").status_code == 404
    assert bridge.http.get(f"{bridge.cluster}/brokers/1/configs").json()["kind"] == "KafkaBrokerConfigList"


def test_the_cluster_names_its_brokers_and_has_no_acls(bridge: BridgeClient) -> None:
    (cluster,) = bridge.http.get("/v3/clusters").json()["data"]
    (broker,) = bridge.http.get(cluster["brokers"]["related"]).json()["data"]
    assert bridge.http.get(broker["metadata"]["self"]).json() == broker
    assert bridge.http.get("/brokers").json() == {"brokers": [broker["broker_id"]]}
    acls = bridge.http.get(cluster["acls"]["related"])
    assert (acls.status_code, acls.json()["message"]) == (400, "No Authorizer is configured.")


def test_a_groups_members_and_lags_are_shown(bridge: BridgeClient) -> None:
    topic, group = bridge.new_topic(), f"g-{uuid.uuid4().hex}"
    bridge.produce(topic, [{"value": number} for number in range(10)])
    instance = bridge.instance(group, auto_commit_enable=False).subscribed(topic)
    instance.read_until(10)
    instance.done("offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 3}]})
    path = f"{bridge.cluster}/consumer-groups/{group}"
    found = bridge.http.get(path).json()
    assert (found["state"], found["is_simple"]) == ("STABLE", False)
    (member,) = bridge.http.get(found["consumers"]["related"]).json()["data"]
    (held,) = bridge.http.get(member["assignments"]["related"]).json()["data"]
    lag = bridge.http.get(held["lag"]["related"]).json()
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (4, 10, 6)
    assert lag["consumer_id"] == member["consumer_id"]
    summary = bridge.http.get(found["lag_summary"]["related"]).json()
    assert (summary["total_lag"], summary["max_lag_topic_name"]) == (6, topic)
    assert group in {item["consumer_group_id"] for item in bridge.http.get(path.rpartition("/")[0]).json()["data"]}
    assert bridge.http.get(f"{path}-not").status_code == 404


def test_a_stopped_bridge_answers_the_requests_that_it_has_taken(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge(consumer_request_timeout_ms="60000")
    topic, group = bridge.new_topic(), f"g-{uuid.uuid4().hex}"
    bridge.produce(topic, [{"value": 1}])
    instance = bridge.instance(group).subscribed(topic)
    instance.read_until(1)
    # in a group of its own: it would take the partition over, and then be the one that reads what
    # comes next
    waiting = bridge.instance(f"{group}-waiting", fetch_min_bytes=-1).subscribed(topic)
    with concurrent.futures.ThreadPoolExecutor(1) as thread, bridge.connect() as streaming:
        head = f"POST {bridge.cluster}/topics/{topic}/records HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\n"
        record = json.dumps({"value": {"type": "JSON", "data": 2}}).encode()
        chunk = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(record), record)
        streaming.sendall(head.encode() + chunk)
        received = b""
        while b'"offset":1' not in received:
            received += streaming.recv(65536)
        reading = thread.submit(waiting.get, "records")

        def is_reading() -> bool:
            nonlocal reading
            if reading.done():  # one look at the instance was there first, and the read was refused
                reading = thread.submit(waiting.get, "records")
            return waiting.get("assignments").status_code == 409

        eventually_sync(is_reading)
        bridge.process.stop()
        assert reading.result().status_code == 200
        while piece := streaming.recv(65536):
            received += piece
    assert received.endswith(b"0\r\n\r\n")
    assert bridge.process.exit_code == 0
    bridge.process.start()
    bridge.wait_ready()
    assert instance.get("records").json()["error_code"] == 40403
    again = bridge.instance(group).subscribed(topic)
    assert [record["value"] for record in again.read_until(1)] == [2]


def test_a_killed_bridge_loses_nothing_that_it_acknowledged(start_bridge: Callable[..., HttpBridge]) -> None:
    bridge = start_bridge()
    topic, group = bridge.new_topic(), f"g-{uuid.uuid4().hex}"
    places = [bridge.produce(topic, [{"value": number}])[0]["offset"] for number in range(20)]
    bridge.process.kill()
    bridge.process.start()
    bridge.wait_ready()
    read = bridge.instance(group).subscribed(topic).read_until(20)
    assert {record["offset"]: record["value"] for record in read} == {place: n for n, place in enumerate(places)}
