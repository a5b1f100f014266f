"""Records of the transaction machine as records of `__transaction_state`, and back. Pure.

Between `core/transaction_messages.py` (what the machine says) and
`wire/batches/transaction_records.py` (how the log holds it). States that only exist in a
coordinator's memory (and in logs that other programs wrote) are read as what a coordinator would
make of them.
"""

from __future__ import annotations

from broker.transactions.core.transaction_messages import TransactionRecord, TransactionRemoved, TransactionStored
from broker.transactions.core.transaction_states import Transaction, TransactionState
from wire.batches.transaction_records import (
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from wire.protocol.byte_reader import Malformed
from wire.protocol.ids import TopicPartition

KeyValue = tuple[bytes, bytes | None]


def encode(record: TransactionRecord) -> KeyValue:
    """Key and value in the log."""
    match record:
        case TransactionStored(transaction=transaction):
            return encode_transaction_key(transaction.transactional_id), encode_transaction_value(_value(transaction))
        case TransactionRemoved(transactional_id=transactional_id):
            return encode_transaction_key(transactional_id), None


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None for a kind that is not kept. Raises Malformed."""
    transactional_id = decode_transaction_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return TransactionRemoved(transactional_id=transactional_id)
    return TransactionStored(transaction=_stored(transactional_id, decode_transaction_value(value)))


def _value(transaction: Transaction) -> TransactionValue:
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    is_empty = transaction.state is TransactionState.EMPTY
    return TransactionValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        status=transaction.state.value,
        partitions=None if is_empty else {topic: tuple(indexes) for topic, indexes in by_topic.items()},
        last_update_ms=transaction.updated_ms,
        start_ms=transaction.started_ms,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_version=transaction.client_version,
        is_carried=transaction.is_carried,
    )


def _stored(transactional_id: str, value: TransactionValue) -> Transaction:
    try:
        state = TransactionState(value.status)
    except ValueError as error:
        raise Malformed(f"transaction status {value.status}") from error
    partitions = frozenset(
        TopicPartition(topic, index) for topic, indexes in (value.partitions or {}).items() for index in indexes
    )
    if state is TransactionState.PREPARE_EPOCH_FENCE:
        state = TransactionState.PREPARE_ABORT
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        state=state,
        partitions=partitions,
        started_ms=value.start_ms,
        updated_ms=value.last_update_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_version,
        is_carried=value.is_carried,
    )
