"""A producer that librdkafka has given up is replaced, and requests notice nothing that lasts."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from prometheus_client import CollectorRegistry

from bridge.metrics import BridgeMetrics
from bridge.producing import Delivered, OutgoingRecord, RecordProducer, Room, Undelivered
from tests.support.embedded.http_bridge import BridgeClient

pytestmark = pytest.mark.integration

FATAL = KafkaError(KafkaError._FATAL, "fenced", True)


@pytest.mark.parametrize("is_idempotent", ["true", "false"])
async def test_records_after_a_fatal_error_go_through_a_new_producer(
    bridge: BridgeClient, bootstrap: str, is_idempotent: str
) -> None:
    topic = bridge.new_topic()
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": is_idempotent}
    producer = RecordProducer(settings, BridgeMetrics(CollectorRegistry()), room=Room(1_000_000), block_ms_max=1000)
    producer.start()
    try:
        for number in range(3):
            (outcome,) = await producer.send_all(topic, [OutgoingRecord(key=None, value=b"%d" % number)])
            assert isinstance(outcome, Delivered)
            assert outcome.offset == number
            producer.on_error(FATAL)
    finally:
        assert await producer.stop(within_ms=60_000) == 0
    assert producer.room.used_bytes == 0


def test_a_fatal_error_is_one_that_may_not_come_again() -> None:
    assert Undelivered(error=FATAL).is_retriable
    assert not Undelivered(error=KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)).is_retriable
