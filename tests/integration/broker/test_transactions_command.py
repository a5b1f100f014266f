"""`antipode transactions` against a broker: list, describe, abort by id, find what hangs and abort
it in its partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.transactional_clients import WITHIN_S, flat, read_values, transactional_producer
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.fork_server import run_antipode
from wire.batches.record_batch import TRANSACTIONAL_BIT
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

pytestmark = pytest.mark.integration


REFUSALS = (ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_id_mapping, ErrorCode.not_enough_replicas)


@pytest.fixture
async def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    running = start_broker(transaction_state_log_num_partitions="2", transaction_max_timeout_ms="3600000")
    async with KafkaClient(running.bootstrap) as client:
        await client.create_topics([NewTopic(name="t", partition_count=1)])
    return running


def command(broker: LoneBroker, *arguments: str, code: int = 0) -> Any:
    ended = run_antipode("transactions", *arguments, "-b", broker.bootstrap, "--output", "json")
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout) if not code else ended.stderr


def left_open(broker: LoneBroker, name: str) -> Any:
    # no transaction times out while commands are run, however long each of them takes
    producer = transactional_producer(broker.bootstrap, name, transaction_timeout_ms=600_000)
    producer.begin_transaction()
    producer.produce("t", name.encode(), partition=0)
    producer.flush(WITHIN_S)
    return producer


@pytest.mark.long
async def test_an_open_transaction_is_listed_described_and_aborted(broker: LoneBroker) -> None:
    from confluent_kafka import KafkaException

    producer = left_open(broker, "pay")
    assert [(row["transactional_id"], row["state"]) for row in command(broker, "list")] == [("pay", "Ongoing")]
    described = command(broker, "describe", "pay")
    assert described["partitions"] == [{"topic": "t", "partition": 0}]
    assert command(broker, "find-hanging", "--topic", "t", "--minutes", "0") == []  # its coordinator knows it
    command(broker, "abort", "pay", "--yes")
    assert command(broker, "describe", "pay")["state"] == "Empty"
    with pytest.raises(KafkaException):
        producer.commit_transaction(WITHIN_S)
    assert flat(read_values(broker.bootstrap, "t", 1)) == []
    assert "no open transaction" in command(broker, "abort", "pay", "--yes", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in command(broker, "describe", "other", code=1)
    assert "name a transactional id" in command(broker, "abort", "--yes", code=2)


async def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(broker: LoneBroker) -> None:
    """The log of an older broker may have such a transaction. Here the coordinator loses the
    transactional id while the record is in the log.
    """
    left_open(broker, "pay")
    (row,) = command(broker, "list")
    _empty_coordinators_log(broker)
    broker.process.kill()
    broker.restart()
    assert command(broker, "list") == []
    (hanging,) = command(broker, "find-hanging", "--topic", "t", "--minutes", "0")
    assert (hanging["producer_id"], hanging["first_offset"]) == (row["producer_id"], 0)
    assert "no transaction" in command(broker, "abort", "--topic", "t", "--first-offset", "7", "--yes", code=1)
    command(broker, "abort", "--topic", "t", "--partition", "0", "--first-offset", "0", "--yes")
    assert command(broker, "find-hanging", "--topic", "t", "--minutes", "0") == []
    assert flat(read_values(broker.bootstrap, "t", 1)) == []


def _empty_coordinators_log(broker: LoneBroker) -> None:
    for segment in sorted(broker.data.glob("__transaction_state-*/*.log")):
        segment.write_bytes(b"")
    for index in sorted(broker.data.glob("__transaction_state-*/*index")):
        index.write_bytes(b"")


async def test_records_of_a_transaction_that_was_never_begun_are_refused(broker: LoneBroker) -> None:
    batch = encode_batch(
        [Record(None, b"x", 1_000_000_000_000)],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL_BIT,
    )
    async with KafkaClient(broker.bootstrap) as client:
        await client.metadata(["t"])
        node = await client.leader("t", 0)
        for transactional_id in (None, "missing"):
            topics = [TopicRecords("t", None, [PartitionRecords(0, batch)])]
            response = await client.produce_to(node, ProduceRequest(transactional_id, -1, 5000, topics))
            assert response is not None
            assert response.topics[0].partitions[0].error_code in REFUSALS
    assert flat(read_values(broker.bootstrap, "t", 1, isolation="read_uncommitted")) == []
