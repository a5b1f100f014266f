"""Quotas at work: clients really slow down to their rate and get the throttle time, other clients
are not delayed, changes apply immediately.

Times are lower bounds: a client may not be quicker than its quota allows. A busy machine only makes
it slower.
"""

from __future__ import annotations

import time
import urllib.request
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kio.schema.errors import ErrorCode

from tests.support.clients.quota_calls import Limited, alter, client_id, create
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.produce_codec import parse_produce_response
from wire.protocol.streams.frames import response_body_position

pytestmark = pytest.mark.integration

RATE = 300_000
WINDOWS = 2
RECORD = b"q" * 10_000
RECORDS = 100
"""A megabyte: at RATE the first window's worth may go at once, the rest takes two seconds and
more.
"""
LEAST_S = (RECORDS * len(RECORD) - (WINDOWS - 1) * RATE) / RATE * 0.8
BIG = batch([b"v" * 100_000], timestamp_ms=1_700_000_000_000)


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    directory = tmp_path_factory.mktemp("quotas")
    settings = {"quota_window_num": str(WINDOWS), "group_initial_rebalance_delay_ms": "0"}
    return LoneBroker(session_processes, directory, **settings)


@pytest.fixture
def topic(broker: LoneBroker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        assert create(client, name).error_code is ErrorCode.none
    return name


class Throttles(list[float]):
    """librdkafka's report of throttling, in ms."""

    def __call__(self, event: Any) -> None:
        self.append(event.throttle_time * 1000)


def produce_all(broker: LoneBroker, topic: str, client: str) -> tuple[float, Throttles]:
    """Send a megabyte in requests of two records; returns the seconds that it took, and the
    reported throttle times.
    """
    throttles = Throttles()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client,
            "batch.size": 2 * len(RECORD) + 200,
            "linger.ms": 0,
            "throttle_cb": throttles,
        }
    )
    started = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(topic, RECORD)
    assert producer.flush(120) == 0
    return time.monotonic() - started, throttles


def consume_all(broker: LoneBroker, topic: str, client: str) -> tuple[float, Throttles]:
    throttles = Throttles()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client,
            "group.id": client,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 40_000,
            "throttle_cb": throttles,
        }
    )
    assigned: list[float] = []  # no fetch before this: the client would fetch in its own threads, without a reader
    consumer.subscribe([topic], on_assign=lambda *_: assigned.append(time.monotonic()))
    count = 0
    while count < RECORDS:
        found = consumer.consume(RECORDS - count, timeout=0.5)
        count += sum(message.error() is None for message in found)
    took_s = time.monotonic() - assigned[0]
    consumer.poll(0.1)
    consumer.close()
    return took_s, throttles


def test_a_producer_is_throttled_to_its_rate_and_others_are_not(broker: LoneBroker, topic: str) -> None:
    limited = client_id()
    alter(broker, {"client-id": limited}, producer_byte_rate=RATE)
    took_s, throttles = produce_all(broker, topic, limited)
    assert took_s >= LEAST_S
    assert max(throttles, default=0) > 0
    _, other_throttles = produce_all(broker, topic, client_id())
    assert not other_throttles


def test_a_consumer_is_throttled_to_its_rate_and_others_are_not(broker: LoneBroker, topic: str) -> None:
    produce_all(broker, topic, client_id())
    limited = client_id()
    alter(broker, {"client-id": limited}, consumer_byte_rate=RATE)
    took_s, throttles = consume_all(broker, topic, limited)
    assert took_s >= LEAST_S
    assert max(throttles, default=0) > 0
    _, other_throttles = consume_all(broker, topic, client_id())
    assert not other_throttles


def _raw_produce(client: RawClient, topic: str, records: bytes, *, acks: int = -1) -> int:
    client.send_produce(topic, records, acks=acks)
    frame = client.read_frame()
    response = parse_produce_response(frame, response_body_position(frame, 0, 9), 9)
    assert response.topics[0].partitions[0].error_code == 0
    return int(response.throttle_time_ms)


@pytest.fixture
def limited(broker: LoneBroker) -> Limited:
    return Limited(broker)


def test_the_answer_is_sent_before_the_connection_is_throttled(
    broker: LoneBroker, topic: str, limited: Limited
) -> None:
    limited.limit(producer_byte_rate=40_000)
    with limited.connect() as client, limited.connect() as other:
        began = time.monotonic()
        throttle_ms = _raw_produce(client, topic, BIG)
        assert throttle_ms > 1000
        client.call(18, 0, {})
        assert time.monotonic() - began >= throttle_ms / 1000
        limited.limit(producer_byte_rate=20)
        assert _raw_produce(client, topic, BIG) > 1_000_000, (
            "a client that waits for a response is not throttled for that time"
        )
        # the broker does not hold back another connection of the same client
        other.call(18, 0, {})


def test_requests_without_acks_make_the_connection_rest_too(broker: LoneBroker, topic: str, limited: Limited) -> None:
    limited.limit(producer_byte_rate=60_000)
    with limited.connect() as client:
        began = time.monotonic()
        for _ in range(2):
            client.send_produce(topic, BIG, acks=0)
        client.call(18, 0, {})
        assert time.monotonic() - began >= 1


def _want(topic: str, offset: int = 0) -> list[TopicToFetch]:
    return [TopicToFetch(topic, None, [PartitionToFetch(0, offset, 1 << 20)])]


def _fetch(topic: str, **fields: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=_want(topic), **fields)


def test_a_throttled_fetch_is_empty_and_its_session_goes_on_as_if_nothing_was_read(
    broker: LoneBroker, topic: str, limited: Limited
) -> None:
    with limited.connect() as client:
        for _ in range(4):
            _raw_produce(client, topic, BIG)
        first = client.fetch(_fetch(topic, session_id=0, session_epoch=0))
        assert first.session_id
        limited.limit(consumer_byte_rate=50_000)
        answers = []
        for epoch in range(1, 4):
            request = _fetch(topic, session_id=first.session_id, session_epoch=epoch)
            answers.append(client.fetch(request))
        throttled = [answer for answer in answers if answer.throttle_time_ms]
        assert throttled
        assert all(not answer.topics and answer.session_id == first.session_id for answer in throttled)
        new = client.fetch(_fetch(topic, session_id=0, session_epoch=0))
        while not new.throttle_time_ms:
            new = client.fetch(_fetch(topic, session_id=0, session_epoch=0))
        assert (new.session_id, list(new.topics)) == (0, [])


def test_a_followers_fetch_is_never_throttled(broker: LoneBroker, topic: str, limited: Limited) -> None:
    limited.limit(consumer_byte_rate=1, request_percentage=0.0001)
    with limited.connect() as client:
        for _ in range(3):
            answer = client.fetch(_fetch(topic, replica_id=7, session_id=0, session_epoch=-1))
            assert answer.throttle_time_ms == 0


def test_request_time_is_a_quota_of_every_request(broker: LoneBroker, limited: Limited) -> None:
    limited.limit(request_percentage=0.0001)
    with limited.connect() as client:
        throttles = [
            client.call(16, 4, {"states_filter": []}).throttle_time.total_seconds(),
            client.metadata().throttle_time.total_seconds(),
        ]
    assert all(0 < throttle_s <= 1 for throttle_s in throttles)


def test_a_changed_quota_holds_with_the_next_request(broker: LoneBroker, topic: str, limited: Limited) -> None:
    with limited.connect() as first, limited.connect() as second:
        limited.limit(producer_byte_rate=1_000_000_000)
        assert _raw_produce(first, topic, BIG) == 0
        limited.limit(producer_byte_rate=20_000)
        assert _raw_produce(first, topic, BIG) > 0
        limited.limit(producer_byte_rate=1_000_000_000)
        assert _raw_produce(second, topic, BIG) == 0


def test_a_throttled_client_that_disconnects_harms_no_other(broker: LoneBroker, topic: str, limited: Limited) -> None:
    limited.limit(producer_byte_rate=1000)
    for _ in range(3):
        with limited.connect() as client:
            _raw_produce(client, topic, BIG)
    with limited.connect() as client:
        assert client.metadata(topic).topics[0].error_code is ErrorCode.none


def test_quotas_are_described_as_they_are_filtered(broker: LoneBroker) -> None:
    user, client = f"u-{uuid.uuid4().hex[:8]}", client_id()
    alter(broker, {"user": user}, producer_byte_rate=1, request_percentage=2.5)
    alter(broker, {"user": user, "client-id": client}, consumer_byte_rate=3)
    alter(broker, {"user": None}, producer_byte_rate=4_000_000_000_000)

    def described(parts: list[tuple[str, int, str | None]], *, strict: bool = False) -> Any:
        components = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in parts]
        with RawClient(broker.port) as asker:
            return asker.call(48, 1, {"components": components, "strict": strict})

    def entities(answer: Any) -> list[dict[str, str | None]]:
        return [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries]

    of_user = described([("user", 0, user)])
    assert sorted(map(len, entities(of_user))) == [1, 2]
    assert entities(described([("user", 0, user)], strict=True)) == [{"user": user}]
    assert entities(described([("user", 1, None)])) == [{"user": None}]
    assert {"user": user, "client-id": client} in entities(described([("client-id", 2, None), ("user", 2, None)]))
    assert described([("team", 0, "x")]).error_code is ErrorCode.unsupported_version
    assert described([("ip", 2, None), ("user", 2, None)]).error_code is ErrorCode.invalid_request
    assert described([("user", 9, None)]).error_code is ErrorCode.invalid_request
    alter(broker, {"user": None}, producer_byte_rate=None)
    assert entities(described([("user", 1, None)])) == []


def test_the_metrics_name_who_is_throttled(broker: LoneBroker, topic: str, limited: Limited) -> None:
    limited.limit(producer_byte_rate=60_000)
    url = f"http://127.0.0.1:{broker.facts['metrics']}/metrics"

    def are_told() -> bool:
        """True if the page has both figures. They cover the last two seconds, which may be over
        before the page is read.
        """
        with limited.connect() as client:
            _raw_produce(client, topic, BIG)
        with urllib.request.urlopen(url, timeout=30) as answer:
            rows = answer.read().decode().splitlines()
        for name in ("kafka_server_produce_byte_rate", "kafka_server_produce_throttle_time"):
            of_client = [row for row in rows if row.startswith(name + '{client_id="' + limited.client_id + '"')]
            assert len(of_client) == 1
            assert float(of_client[0].split()[-1]) > 0
        return True

    eventually_sync(are_told)


def test_a_delayed_answer_is_still_decoded_after_the_throttle_time(
    broker: LoneBroker, topic: str, limited: Limited
) -> None:
    """Pipelined requests behind a throttled one are answered in order afterwards."""
    limited.limit(producer_byte_rate=60_000)
    with limited.connect() as client:
        for _ in range(3):
            client.send_produce(topic, BIG)
        offsets = []
        for _ in range(3):
            frame = client.read_frame()
            response = parse_produce_response(frame, response_body_position(frame, 0, 9), 9)
            offsets.append(response.topics[0].partitions[0].base_offset)
        assert offsets == sorted(offsets)
        entity = client.call(18, 0, {})
        assert entity.error_code is ErrorCode.none
