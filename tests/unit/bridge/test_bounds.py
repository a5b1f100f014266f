"""Room for records and bodies, and the settings of a bridge."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bridge.bodies import BodyRoom
from bridge.config import load_bridge_settings
from bridge.core.refusals import Refused
from bridge.metrics import BridgeMetrics
from bridge.producing import Delivered, OutgoingRecord, RecordProducer, Room
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError
from tests.support.eventually import eventually
from tests.support.processes.ports import LOOPBACK, free_port

NEEDED = {"bootstrap.servers": "PLAINTEXT://a:1,b:2"}


async def test_a_taker_that_finds_no_room_waits_in_line() -> None:
    room = Room(10)
    await room.take(8, within_ms=0)
    order: list[int] = []

    async def take(amount: int) -> None:
        await room.take(amount, within_ms=60_000)
        order.append(amount)

    tasks = [asyncio.create_task(take(amount)) for amount in (5, 1)]
    await asyncio.sleep(0)
    assert order == []  # 1 would fit, but comes after 5
    room.give_back(8)
    await asyncio.gather(*tasks)
    assert (order, room.used_bytes) == ([5, 1], 6)


async def test_an_amount_larger_than_the_room_goes_alone() -> None:
    room = Room(10)
    await room.take(50, within_ms=0)
    waiting = asyncio.create_task(room.take(1, within_ms=60_000))
    await asyncio.sleep(0)
    assert not waiting.done()
    room.give_back(50)
    await waiting
    assert room.used_bytes == 1


async def test_a_request_that_waits_too_long_is_refused_and_delays_no_other() -> None:
    room = Room(10)
    await room.take(8, within_ms=0)
    with pytest.raises(Refused) as refused:
        await room.take(5, within_ms=0)
    assert refused.value.error_code == 50003
    await room.take(2, within_ms=0)
    assert room.used_bytes == 10


async def test_a_taker_that_leaves_the_line_leaves_no_trace() -> None:
    room = Room(10)
    await room.take(10, within_ms=0)
    waiting = asyncio.create_task(room.take(5, within_ms=60_000))
    await asyncio.sleep(0)
    waiting.cancel()
    room.give_back(10)
    await eventually(waiting.done)
    assert room.used_bytes == 0


async def test_a_cancelled_send_at_a_full_queue_returns_the_room_of_its_unsent_records() -> None:
    """DR-17."""
    settings = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}", "queue.buffering.max.messages": 1}
    producer = RecordProducer(settings, BridgeMetrics(CollectorRegistry()), room=Room(10_000), block_ms_max=1000)
    producer.start()
    records = [OutgoingRecord(key=None, value=b"v" * 100) for _ in range(5)]
    sending = asyncio.create_task(producer.submit("t", records))
    # one is handed over, and the second finds librdkafka's queue full
    await eventually(lambda: producer.room.used_bytes > 0 and len(producer._producer) == 1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert producer.room.used_bytes == records[0].size_bytes
    assert await producer.stop(within_ms=0) == 1


def test_bodies_beyond_their_room_are_refused_at_once() -> None:
    room = BodyRoom(10)
    room.take(8)
    with pytest.raises(Refused) as refused:
        room.take(3)
    assert (refused.value.status, room.used_bytes) == (429, 8)


def test_names_of_the_rest_proxy_and_of_java_are_understood() -> None:
    settings = load_bridge_settings(
        {
            **NEEDED,
            "listeners": "http://0.0.0.0:8082,http://[::1]:8083",
            "consumer.request.timeout.ms": "5",
            "producer.max.request.size": "100000",
            "producer.acks": "all",
            "client.security.protocol": "plaintext",
            "consumer.max.poll.records": "5",
            "schema.registry.url": "http://ignored",
        }
    )
    assert settings.bootstrap == "a:1,b:2"
    assert settings.listeners == (HostPort("0.0.0.0", 8082), HostPort("::1", 8083))
    assert settings.producer_properties == {
        "security.protocol": "plaintext",
        "message.max.bytes": "100000",
        "acks": "all",
    }
    assert settings.consumer_properties == {"security.protocol": "plaintext"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", "https://h:1,http://h:2"),
        ("listeners", "h:1"),
        ("bootstrap.servers", ""),
        ("consumer.instance.timeout.ms", "1"),
        ("antipode.requests.max.bytes", "2000"),
        ("producer.lingering", "1"),
        ("consumer.fetch.wait.max.ms", "x"),
        ("advertised.listeners", "h:1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_bridge_settings({**NEEDED, key: value})
    assert refused.value.key == key


class MoodyLibrary:
    """The part of librdkafka's producer that the bridge uses; `moods` are the errors of its next
    calls.
    """

    def __init__(self, **moods: list[Exception]) -> None:
        self.moods = moods
        self.reports: list[Any] = []

    def __len__(self) -> int:
        return len(self.reports)

    def produce(self, *arguments: Any) -> None:
        self._meet("produce")
        self.reports.append(arguments[4])

    def poll(self, timeout_s: float) -> None:
        threading.Event().wait(min(timeout_s, 0.001))  # as the library holds its thread
        self._meet("poll")
        while self.reports:
            self.reports.pop()(None, SimpleNamespace(partition=int, offset=int, timestamp=lambda: (0, 0)))

    def _meet(self, where: str) -> None:
        if self.moods.get(where):
            raise self.moods[where].pop()


@pytest.fixture
async def producer() -> AsyncIterator[RecordProducer]:
    metrics = BridgeMetrics(CollectorRegistry())
    made = RecordProducer({"bootstrap.servers": "127.0.0.1:1"}, metrics, room=Room(10), block_ms_max=60_000)
    yield made
    await made.stop(within_ms=0)


def start_on(producer: RecordProducer, library: MoodyLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.producing.Producer", lambda _: library)
    producer.start()


RECORD = OutgoingRecord(key=None, value=b"12345", partition=0, timestamp_ms=0, headers=())


async def test_acknowledgements_come_after_a_callback_of_the_library_has_failed(
    producer: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_on(producer, MoodyLibrary(poll=[ValueError("a defect")]), monkeypatch)
    outcomes = await asyncio.wait_for(producer.send_all("t", [RECORD]), 30)
    assert outcomes == [Delivered(partition=0, offset=0, timestamp_ms=0)]


async def test_records_that_the_library_does_not_take_leave_their_room_to_others(
    producer: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_on(producer, MoodyLibrary(produce=[TypeError("a header of another kind")]), monkeypatch)
    with pytest.raises(TypeError):
        await producer.send_all("t", [RECORD, RECORD])
    assert len(await asyncio.wait_for(producer.send_all("t", [RECORD, RECORD]), 30)) == 2
