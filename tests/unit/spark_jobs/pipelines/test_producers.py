"""A job's producer waits for room in its queue, and reports records that are not written."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from runtime.process import OperationalFailure
from spark_jobs.pipelines.producers import send_all

RECORDS = [(b"key", b"%d" % number) for number in range(200)]


QUEUE = {"queue.buffering.max.messages": 10}


def test_more_records_than_the_queue_holds_are_written() -> None:
    # librdkafka's own mock broker
    sender = Producer({"test.mock.num.brokers": 1, **QUEUE})
    send_all(sender, "lines", RECORDS)
    assert len(sender) == 0


def test_records_that_are_not_written_are_an_error() -> None:
    sender = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 10, "log_level": 0, **QUEUE})
    with pytest.raises(OperationalFailure, match="200 records were not written to lines"):
        send_all(sender, "lines", RECORDS)
