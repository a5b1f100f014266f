"""The stored layout: Kafka's bytes are read, ours are Kafka's, and rubbish is named by path and
field.
"""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import BrokerEndpoint, BrokerRegistration, decode_broker, encode_broker
from wire.znodes.cluster_znodes import (
    ControllerRegistration,
    ProducerIdBlock,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_producer_id_block,
    encode_cluster_id,
    encode_controller,
    encode_controller_epoch,
    encode_producer_id_block,
)
from wire.znodes.config_znodes import (
    decode_config_change,
    decode_topic_config,
    encode_config_change,
    encode_topic_config,
)
from wire.znodes.documents import MalformedZnode
from wire.znodes.link_znodes import decode_link, encode_link
from wire.znodes.topic_znodes import (
    StoredPartitionState,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    encode_partition_state,
    encode_topic,
)

TOPIC_ID = bytes(range(16))


def test_broker_registration_comes_back_whole() -> None:
    registration = BrokerRegistration(
        node_id=1001,
        endpoints=(
            BrokerEndpoint(listener="CLIENT", host="h1", port=9092),
            BrokerEndpoint(listener="LINK", host="::1", port=9093, security_protocol="SSL"),
        ),
        grpc_address="h1:7001",
        rack="r1",
        timestamp_ms=1700000000000,
    )
    assert decode_broker(1001, encode_broker(registration)) == registration


def test_a_registration_written_by_kafka_is_read() -> None:
    payload = (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://localhost:9092"],'
        b'"jmx_port":-1,"features":{},"host":"localhost","timestamp":"1588925944886","port":9092,"version":5,"rack":null}'
    )
    broker = decode_broker(0, payload)
    assert broker.endpoints == (BrokerEndpoint(listener="PLAINTEXT", host="localhost", port=9092),)
    assert (broker.grpc_address, broker.rack, broker.timestamp_ms) == ("", "", 1588925944886)
    assert not broker.knows_epoch_raises


def test_controller_registration_has_kafkas_three_fields() -> None:
    payload = encode_controller(ControllerRegistration(controller_id=3, timestamp_ms=42, grpc_address="h:1"))
    document = json.loads(payload)
    assert (document["version"], document["brokerid"], document["timestamp"]) == (1, 3, "42")
    assert decode_controller(payload).grpc_address == "h:1"


def test_topic_assignment_is_version_3_and_comes_back_whole() -> None:
    assignment = TopicAssignment(
        topic_id=TOPIC_ID, partitions={0: (1, 2), 10: (2, 1)}, adding_replicas={10: (3,)}, removing_replicas={10: (1,)}
    )
    payload = encode_topic(assignment)
    assert b"antipode" not in payload  # as Kafka's controllers write it
    assert json.loads(payload)["version"] == 3
    assert json.loads(payload)["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert decode_topic("t", payload) == assignment
    removed = replace(assignment, removed_while_away={10: {3: 1 << 40, 12: 7}})
    assert decode_topic("t", encode_topic(removed)) == removed


def test_partition_state_config_block_and_cluster_id_come_back_whole() -> None:
    state = StoredPartitionState(leader=-1, leader_epoch=7, isr=(2, 3), controller_epoch=4, registrations_zxid=1 << 40)
    assert decode_partition_state("t", 0, encode_partition_state(state)) == state
    overrides = {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert decode_topic_config("t", encode_topic_config(overrides)) == overrides
    block = ProducerIdBlock(broker_id=1, first_producer_id=1 << 40, last_producer_id=(1 << 40) + 999)
    assert decode_producer_id_block(encode_producer_id_block(block)) == block
    assert decode_cluster_id(encode_cluster_id("abc")) == "abc"
    assert decode_controller_epoch(encode_controller_epoch(12)) == 12
    notice = encode_config_change("topics/t")
    assert decode_config_change(znodes.config_change_path(7), notice) == "topics/t"
    older = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert decode_config_change(znodes.config_change_path(6), older) == "topics/t"
    assert znodes.config_change_path(7) == "/config/changes/config_change_0000000007"


def test_link_record_comes_back_whole_and_ignores_fields_of_a_newer_writer() -> None:
    link = LinkRecord(
        name="a-b", epoch=3, active_site="a", phase=LinkPhase.FENCED, topic_whitelist=["orders.*"], is_routed=True
    )
    link.sites["a"].CopyFrom(LinkSite(bootstrap_servers="h:1", agents=["h:2"]))
    document = json.loads(encode_link(link))
    document["invented_later"] = {"x": 1}
    assert decode_link("a-b", json.dumps(document).encode()) == link


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "a JSON object is needed"),
        (b"{}", "'leader' is missing"),
        (b'{"leader":"x","leader_epoch":0,"isr":[1],"controller_epoch":1}', "'leader' is 'x'"),
        (b'{"leader":true,"leader_epoch":0,"isr":[1],"controller_epoch":1}', "'leader' is True"),
        (b'{"leader":1,"leader_epoch":0,"isr":"1","controller_epoch":1}', "not a list"),
        (b'{"leader":1,"leader_epoch":0,"isr":[1.5],"controller_epoch":1}', "not a whole number"),
        (b'{"leader":2147483648,"leader_epoch":0,"isr":[1],"controller_epoch":1}', "not a whole number of 32 bits"),
    ],
)
def test_a_malformed_state_is_named_by_path_and_field(payload: bytes, problem: str) -> None:
    with pytest.raises(MalformedZnode, match="znode /brokers/topics/t/partitions/5/state") as raised:
        decode_partition_state("t", 5, payload)
    assert problem in raised.value.problem


@pytest.mark.parametrize(
    "payload",
    [
        b'{"version":1,"partitions":{"0":[1]}}',
        b'{"version":3,"topic_id":"AAAA","partitions":{"0":[1]}}',
        b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"zero":[1]}}',
        b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":[[1]]}',
        b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{},"antipode_removed_while_away":{"0":{"x":1}}}',
        b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{},"antipode_removed_while_away":{"0":[1]}}',
    ],
)
def test_a_malformed_assignment_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedZnode):
        decode_topic("t", payload)


@pytest.mark.parametrize(
    "payload", [b'{"name":"other"}', b'{"name":"a-b","epoch":"many"}', b'{"name":"a-b","sites":3}']
)
def test_a_malformed_link_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedZnode):
        decode_link("a-b", payload)


@pytest.mark.parametrize("endpoint", ["localhost:9092", "CLIENT://localhost", "CLIENT://localhost:x", "://:"])
def test_a_malformed_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(MalformedZnode, match="endpoint"):
        decode_broker(1, json.dumps({"endpoints": [endpoint]}).encode())


def test_names_that_no_broker_can_have_are_left_out() -> None:
    """A broker id is 31 bits wide in every message to brokers and clients."""
    largest = 2**31 - 1
    names = ["1", str(largest), str(largest + 1), "0", "007", "-1", "\u0661", "9" * 5000, "1 ", "seqid", ""]
    assert znodes.broker_ids(names) == [1, largest, 0]
