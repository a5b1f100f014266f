"""Fetch sessions (KIP-227) frame by frame against a broker process."""

from __future__ import annotations

import uuid

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.records.fetch_reading import FAILURES_MAX
from tests.integration.broker.test_requests import create, records, want
from tests.support.clients.raw_client import RawClient
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import MIRROR

pytestmark = pytest.mark.integration


def test_an_incremental_fetch_carries_news_only(lone_broker: LoneBroker) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(lone_broker.port) as client:
        create(client, topic)
        first = client.fetch(FetchRequest([want(topic)], max_wait_ms=0, session_epoch=0))
        assert first.session_id != 0
        quiet = client.fetch(FetchRequest([], max_wait_ms=0, session_id=first.session_id, session_epoch=1))
        assert quiet.topics == []
        client.produce(topic, records())
        news = client.fetch(FetchRequest([], max_wait_ms=500, session_id=first.session_id, session_epoch=2))
        assert news.topics[0].partitions[0].high_watermark == 1
        wrong = client.fetch(FetchRequest([], max_wait_ms=0, session_id=first.session_id, session_epoch=9))
        assert wrong.error_code == ErrorCode.invalid_fetch_session_epoch


def test_many_partitions_that_fail_at_once_are_reported_in_turn(lone_broker: LoneBroker) -> None:
    count = FAILURES_MAX + 50
    name = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(lone_broker.port) as client:
        create(client, name, count)

        def fetch(offset: int | None, *, session_id: int, session_epoch: int) -> tuple[int, list[tuple[int, int]]]:
            """The session and the answered partitions, after a request for all of them at an
            offset, or for none.
            """
            asked = [] if offset is None else [PartitionToFetch(index, offset, 1 << 20) for index in range(count)]
            response = client.fetch(
                FetchRequest(
                    [TopicToFetch(name, None, asked)] if asked else [],
                    max_wait_ms=0,
                    replica_id=MIRROR,
                    session_id=session_id,
                    session_epoch=session_epoch,
                )
            )
            answered = [(one.partition_index, one.error_code) for topic in response.topics for one in topic.partitions]
            return response.session_id, answered

        session_id, answered = fetch(0, session_id=0, session_epoch=0)
        assert len(answered) == count
        failed = ErrorCode.offset_out_of_range
        _, first = fetch(99, session_id=session_id, session_epoch=1)
        assert first == [(index, failed) for index in range(FAILURES_MAX)]
        _, second = fetch(None, session_id=session_id, session_epoch=2)
        # the others come first, so that none is left out for ever
        assert second[:50] == [(index, failed) for index in range(FAILURES_MAX, count)]
        assert len(second) == FAILURES_MAX
