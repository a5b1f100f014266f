"""Settings of transactions and producers, each set by its own name and seen to act."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.histories.transaction_table import OWN, Asker, Producer, make_coordinators
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.batches.record_batch import TRANSACTIONAL_BIT

pytestmark = pytest.mark.integration

CREATE_TOPICS, ALTER_CONFIGS, DESCRIBE_PRODUCERS = 19, 44, 61
VERIFICATION = "transaction.partition.verification.enable"
BROKER_RESOURCE, SET = 4, 0
OLDER_PRODUCE = 9
"""Of producers that add partitions themselves."""
FEW = {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}


def create(client: RawClient) -> None:
    topic = {
        "name": OWN,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    asked = {"topics": (topic,), "timeout": dt.timedelta(seconds=10), "validate_only": False}
    (created,) = client.call(CREATE_TOPICS, 7, asked).topics
    assert not created.error_code


def test_transaction_max_timeout_ms(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(**FEW, transaction_max_timeout_ms="5000")
    make_coordinators(broker.port)
    with RawClient(broker.port) as client:
        asker = Asker(client)
        assert asker.init("id", timeout_ms=5000).error_code is ErrorCode.none
        assert asker.init("id", timeout_ms=5001).error_code is ErrorCode.invalid_transaction_timeout


def test_transactional_id_expiration_ms_and_the_interval_in_which_it_is_looked_for(
    start_broker: Callable[..., LoneBroker],
) -> None:
    """By default an id stays for a week, and the broker looks for expired ids once an hour."""
    settings = {
        "transactional_id_expiration_ms": "1",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "50",
    }
    broker = start_broker(**FEW, **settings)
    make_coordinators(broker.port)
    with RawClient(broker.port) as client:
        asker = Asker(client)
        first = asker.init("id").producer_id
        assert first >= 0
        eventually_sync(lambda: asker.state("id")[0] == "unknown")
        assert asker.init("id").producer_id != first


def test_an_expired_transactional_id_stays_until_it_is_looked_for(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(**FEW, transactional_id_expiration_ms="1")
    make_coordinators(broker.port)
    with RawClient(broker.port) as client:
        asker = Asker(client)
        first, again = asker.init("id"), asker.init("id")
        assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


def test_producer_id_expiration_ms(start_broker: Callable[..., LoneBroker]) -> None:
    """The broker removes expired producers when it looks for old segments."""
    broker = start_broker(
        **FEW, producer_id_expiration_ms="1", log_retention_check_interval_ms="50", log_initial_task_delay_ms="1"
    )
    with RawClient(broker.port) as client:
        create(client)
        content = batch([b"r"], producer_id=7, producer_epoch=0, sequence=0)
        assert client.produce(OWN, content).error_code == 0

        def known() -> tuple[object, ...]:
            asked = {"topics": [{"name": OWN, "partition_indexes": [0]}]}
            found: tuple[object, ...] = (
                client.call(DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers
            )
            return found

        eventually_sync(lambda: not known())
        # a producer that is not known may begin anywhere
        later = batch([b"r"], producer_id=7, producer_epoch=0, sequence=5)
        assert client.produce(OWN, later).error_code == 0


def write_without_adding(client: RawClient) -> ErrorCode:
    """The first record of a transaction of the older protocol, whose coordinator does not know of
    the partition.
    """
    name = f"id-{uuid.uuid4().hex[:8]}"
    made = Asker(client).init(name)
    content = batch(
        [b"r"],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        sequence=0,
        attributes=TRANSACTIONAL_BIT,
    )
    return ErrorCode(client.produce(OWN, content, version=OLDER_PRODUCE, transactional_id=name).error_code)


def commit_without_adding(client: RawClient) -> str:
    """Commit a group's offsets without adding the group to the transaction."""
    name = f"id-{uuid.uuid4().hex[:8]}"
    made = Asker(client).init(name)
    return Asker(client).commit_offsets(Producer(name, made.producer_id, made.producer_epoch), version=3)


def alter_for_all(client: RawClient, value: str) -> None:
    changed = {"name": VERIFICATION, "config_operation": SET, "value": value}
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "", "configs": (changed,)}
    (answer,) = client.call(ALTER_CONFIGS, 1, {"resources": (resource,), "validate_only": False}).responses
    assert answer.error_code is ErrorCode.none, answer


def test_transaction_partition_verification_enable(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(**FEW, transaction_partition_verification_enable="false")
    make_coordinators(broker.port)
    with RawClient(broker.port) as client:
        create(client)
        assert write_without_adding(client) is ErrorCode.none
        assert commit_without_adding(client) == "none"
        alter_for_all(client, "true")
        eventually_sync(lambda: write_without_adding(client) is ErrorCode.invalid_txn_state)
        assert commit_without_adding(client) == "invalid_txn_state"
