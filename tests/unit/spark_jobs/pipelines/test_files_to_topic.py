"""A task of files-to-topic, with librdkafka's producer and no brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row

from runtime.process import OperationalFailure
from spark_jobs.pipelines import files_to_topic
from spark_jobs.session import _cause


def test_a_line_that_no_batch_can_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_to_topic, "idempotent_producer", lambda _: Producer({"message.max.bytes": 1_000}))
    rows = [Row(value=b"x" * 2_000)]
    with pytest.raises(OperationalFailure, match=r"a line of 2,000 bytes cannot go to t: .*too large") as raised:
        list(files_to_topic._write("none:1", "t", 1 << 20, 100, rows))
    # of a worker's error Spark gives the whole text, of which people see the line with the reason
    text = f"Job aborted due to stage failure\nTraceback\nruntime.process.OperationalFailure: {raised.value}\n"
    assert "a line of 2,000 bytes" in _cause(text)
