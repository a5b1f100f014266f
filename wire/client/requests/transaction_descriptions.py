"""DescribeTransactions and DescribeProducers as a client asks them. The answer of the former is
read by hand: kio refuses the start time -1 that every idle transactional id has.

Called by commands, the sink of Spark, and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.client_errors import error_code
from wire.client.connection import Connection
from wire.protocol import schemas
from wire.protocol.byte_reader import Buffer, ByteReader
from wire.protocol.entity_building import build_entity

DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
_VERSION: Final = 0


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator describes it; `start_ms` is -1 when nothing is open."""

    error_code: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: Sequence[tuple[str, int]]


async def describe_producers(connection: Connection, topic: str, partition: int) -> Any:
    """The partition as its leader, which the connection leads to, describes it: `active_producers`,
    unless `error_code` says why not.
    """
    asked = {"topics": [{"name": topic, "partition_indexes": (partition,)}]}
    (described,) = (await connection.call(DESCRIBE_PRODUCERS, asked)).topics[0].partitions
    return described


async def describe_transaction(connection: Connection, transactional_id: str) -> TransactionDescription:
    """Ask the coordinator, which the connection leads to."""
    request_type = schemas.request_type(DESCRIBE_TRANSACTIONS, _VERSION)
    body = schemas.encode(build_entity(request_type, {"transactional_ids": (transactional_id,)}))
    answer = await connection.request(DESCRIBE_TRANSACTIONS, _VERSION, [body], body_size=len(body))
    return parse_description(answer.frame, answer.body_position)


def parse_description(frame: Buffer, body_position: int) -> TransactionDescription:
    """The first transactional id of a response of version 0, whose body begins at this position."""
    reader = ByteReader(frame, body_position)
    reader.int32()  # throttle time
    reader.count(flexible=True, element_size_min=30)
    return _description(reader)


def _description(reader: ByteReader) -> TransactionDescription:
    error, name = error_code(reader.int16()), reader.string(flexible=True)
    state, timeout_ms, start_ms = reader.string(flexible=True), reader.int32(), reader.int64()
    producer_id, producer_epoch = reader.int64(), reader.int16()
    partitions = []
    for _ in range(reader.count(flexible=True, element_size_min=3)):
        topic = reader.string(flexible=True)
        count = reader.count(flexible=True, element_size_min=4)
        partitions += [(topic, reader.int32()) for _ in range(count)]
        reader.skip_tags()
    return TransactionDescription(
        error_code=error,
        transactional_id=name,
        state=state,
        timeout_ms=timeout_ms,
        start_ms=start_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=partitions,
    )
