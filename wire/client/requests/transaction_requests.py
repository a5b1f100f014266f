"""Requests of a transactional producer to its coordinator, as clients of the first transaction
protocol send them (KIP-98).

One attempt each. Versions stay below those of KIP-890's second protocol, in which each end of a
transaction changes the epoch: all brokers serve the first protocol. Produce requests that carry a
transactional id are held back likewise (`broker_requests.request_produce`).
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.client_errors import error_code
from wire.client.connection import Connection
from wire.client.requests.answer_checks import check_code
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import PartitionKey

INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

_HIGHEST: Final = {
    INIT_PRODUCER_ID: 5,
    ADD_PARTITIONS_TO_TXN: 3,
    ADD_OFFSETS_TO_TXN: 3,
    END_TXN: 4,
    TXN_OFFSET_COMMIT: 3,
}


class ProducerIdentity(NamedTuple):
    """The identity of a transactional producer; a higher epoch fences it."""

    producer_id: int
    producer_epoch: int


async def request_identity(connection: Connection, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
    """InitProducerId: fences the id's earlier producers, and has their open transaction aborted.
    BrokerError, transient while that goes on.
    """
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": dt.timedelta(milliseconds=timeout_ms),
        "producer_id": -1,
        "producer_epoch": -1,
    }
    response = await _call(connection, INIT_PRODUCER_ID, values)
    check_code(response.error_code, connection, INIT_PRODUCER_ID)
    return ProducerIdentity(int(response.producer_id), int(response.producer_epoch))


async def request_partitions(
    connection: Connection, transactional_id: str, identity: ProducerIdentity, places: Iterable[PartitionKey]
) -> None:
    """AddPartitionsToTxn: all of them or none. BrokerError."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    topics = [{"name": name, "partitions": tuple(partitions)} for name, partitions in by_topic.items()]
    named = {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "topics": topics,
    }
    values = {f"v3_and_below_{name}": value for name, value in named.items()}
    response = await _call(connection, ADD_PARTITIONS_TO_TXN, values)
    codes = [
        error_code(partition.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    # Of a refused request only some partitions have the cause, the others the error that they were
    # not attempted.
    for code in sorted(codes, key=lambda code: code is ErrorCode.operation_not_attempted):
        check_code(code, connection, ADD_PARTITIONS_TO_TXN)


async def request_group(
    connection: Connection, transactional_id: str, identity: ProducerIdentity, group_id: str
) -> None:
    """AddOffsetsToTxn: the group's offsets become part of the transaction. BrokerError."""
    values = {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "group_id": group_id,
    }
    response = await _call(connection, ADD_OFFSETS_TO_TXN, values)
    check_code(response.error_code, connection, ADD_OFFSETS_TO_TXN)


async def request_group_offsets(
    connection: Connection,
    transactional_id: str,
    identity: ProducerIdentity,
    group_id: str,
    offsets: Mapping[PartitionKey, CommittedOffset],
) -> None:
    """TxnOffsetCommit, of the group's coordinator: the offsets are the group's once the transaction
    is committed. BrokerError.
    """
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "committed_metadata": offset.metadata,
            }
        )
    values = {
        "transactional_id": transactional_id,
        "group_id": group_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()],
    }
    response = await _call(connection, TXN_OFFSET_COMMIT, values)
    for topic in response.topics:
        for partition in topic.partitions:
            check_code(partition.error_code, connection, TXN_OFFSET_COMMIT)


async def request_end(
    connection: Connection, transactional_id: str, identity: ProducerIdentity, *, is_commit: bool
) -> None:
    """EndTxn; may be sent again until it is answered. BrokerError."""
    values = {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "committed": is_commit,
    }
    response = await _call(connection, END_TXN, values)
    check_code(response.error_code, connection, END_TXN)


async def _call(connection: Connection, api_key: int, values: Mapping[str, Any]) -> Any:
    version = connection.version_for(api_key, highest=_HIGHEST[api_key])
    return await connection.call(api_key, values, version=version)
