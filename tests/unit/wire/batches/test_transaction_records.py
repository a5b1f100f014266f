"""Records of `__transaction_state` and markers: there and back, and as Apache Kafka's own bytes."""

from __future__ import annotations

import pytest

from broker.log.core.producer_values import Marker
from broker.log.markers import read_marker
from wire.batches.record_batch import read_header, verify_crc
from wire.batches.transaction_records import (
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_marker,
    encode_transaction_key,
    encode_transaction_value,
)
from wire.protocol.byte_reader import Malformed

OPEN = TransactionValue(7, 3, 60_000, 1, {"orders": (0, 2), "p": (1,)}, 1_000, 900, client_version=2)


@pytest.mark.parametrize(
    "value",
    [
        OPEN,
        OPEN._replace(previous_producer_id=5, next_producer_id=9),
        TransactionValue(7, 0, 60_000, 0, None, 1_000, -1),
        TransactionValue(7, 0, 60_000, 4, {}, 1_000, 900),
    ],
)
def test_a_value_comes_back_as_it_was(value: TransactionValue) -> None:
    assert decode_transaction_value(encode_transaction_value(value)) == value


def test_a_value_of_the_first_version_is_read() -> None:
    # version 0: producer 7, epoch 1, timeout 1000, status 1, one topic "t" with partition 4, last
    # update 5, start 6
    raw = bytes.fromhex(
        "0000" + "0000000000000007" + "0001" + "000003e8" + "01" + "00000001" + "000174" + "00000001" + "00000004"
    ) + bytes.fromhex("0000000000000005" + "0000000000000006")
    assert decode_transaction_value(raw) == TransactionValue(7, 1, 1000, 1, {"t": (4,)}, 5, 6)


def test_a_value_of_an_unknown_version_is_malformed() -> None:
    with pytest.raises(Malformed, match="version 2"):
        decode_transaction_value(b"\0\2")


def test_a_key_names_the_transactional_id() -> None:
    assert encode_transaction_key("pay") == bytes.fromhex("00000003") + b"pay"
    assert decode_transaction_key(encode_transaction_key("pay")) == "pay"
    assert decode_transaction_key(b"\0\1\0\0") is None


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_a_control_batch_that_the_log_reads(is_commit: bool) -> None:
    raw = encode_marker(producer_id=7, producer_epoch=3, is_commit=is_commit, coordinator_epoch=12, now_ms=1_000)
    header = read_header(raw)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert header.is_control
    assert header.is_transactional
    assert verify_crc(raw, 0, header)
    assert read_marker(raw, 0, header) == Marker(is_commit, 12)
