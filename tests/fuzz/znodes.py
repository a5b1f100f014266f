"""Payloads of every kind of znode that a process decodes: decoding a wrong payload raises
MalformedZnode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from wire.znodes import admin_znodes, consumer_znodes, token_znodes
from wire.znodes.broker_znodes import decode_broker
from wire.znodes.cluster_znodes import (
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_producer_id_block,
)
from wire.znodes.config_znodes import decode_config_change, decode_topic_config, quotas_in
from wire.znodes.documents import MalformedZnode
from wire.znodes.link_znodes import decode_link
from wire.znodes.topic_znodes import decode_partition_state, decode_replicas, decode_topic

DECODERS: Final[Sequence[Callable[[bytes], Any]]] = (
    lambda payload: decode_broker(1, payload),
    decode_controller,
    decode_controller_epoch,
    lambda payload: decode_topic("t", payload),
    lambda payload: decode_replicas("t", payload),
    lambda payload: decode_partition_state("t", 0, payload),
    lambda payload: decode_topic_config("t", payload),
    lambda payload: quotas_in("/config/clients/c", payload),
    lambda payload: decode_config_change("/config/changes/1", payload),
    decode_cluster_id,
    decode_producer_id_block,
    lambda payload: decode_link("a-b", payload),
    lambda payload: token_znodes.decode_token("t", payload),
    admin_znodes.decode_reassignments,
    admin_znodes.decode_election,
    lambda payload: consumer_znodes.decode_registration("/consumers/g/ids/c", payload),
    lambda payload: consumer_znodes.decode_offset("/consumers/g/offsets/t/0", payload),
)


def run(data: bytes) -> None:
    """Every decoder is given the payload: few bytes decide which of them gets far."""
    for decode in DECODERS:
        try:
            decode(data)
        except MalformedZnode:
            continue


def seeds() -> Sequence[bytes]:
    """One payload of each kind."""
    return [
        (
            b'{"version":5,"host":"h","port":9,"endpoints":["CLIENT://h:9"],"listener_security_protocol_map":{"CLIENT":"PLAINTEXT"},'
            b'"grpc_address":"h:1","rack":"r","timestamp":"17","jmx_port":-1}'
        ),
        b'{"version":1,"brokerid":1,"timestamp":"17","grpc_address":"h:1"}',
        b"42",
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}',
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}',
        b'{"version":1,"config":{"cleanup.policy":"compact","producer_byte_rate":"1000.0"}}',
        b'{"version":2,"entity_path":"topics/orders"}',
        b'{"version":1,"entity_type":"topics","entity_name":"orders"}',
        b'{"version":"1","id":"cluster"}',
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
        b'{"name":"a-b","active_site":"a","epoch":"3","whitelist":[".*"],"blacklist":["__.*"]}',
        (
            b'{"version":3,"owner":"User%3Aanna","tokenRequester":"User%3Abert","renewers":["User%3Acarl"],"issueTimestamp":1,'
            b'"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"t"}'
        ),
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
        b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"17"}',
    ]
