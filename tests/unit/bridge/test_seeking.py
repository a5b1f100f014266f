"""Positions in a partition that was assigned to an instance a moment ago."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from bridge.consumer_instance import MESSAGES_PER_TURN, ConsumerInstance
from bridge.core.media_types import EmbeddedFormat
from bridge.core.refusals import Refused

KNOWN_AFTER_S = 0.5


class Arrived:
    """A record of the other partition."""

    def error(self) -> None:
        return None


class BusyConsumer:
    """Partition 0 brings records without end; it takes a while until the first offset of partition
    1 is known.
    """

    def __init__(self, *, known_after_s: float) -> None:
        self.sought: list[int] = []
        self._known_at_s = time.monotonic() + known_after_s

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0), TopicPartition("t", 1)]

    def poll(self, timeout_s: float) -> Any:
        return Arrived()

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return [Arrived()] * count

    def seek(self, target: TopicPartition) -> None:
        if time.monotonic() < self._known_at_s:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append(target.offset)

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        """Stores the offsets for the next commit."""


def instance_of(consumer: Any, executor: ThreadPoolExecutor) -> ConsumerInstance:
    return ConsumerInstance(
        group="g",
        name="i",
        embedded=EmbeddedFormat.JSON,
        consumer=consumer,
        executor=executor,
        read_timeout_ms=0,
        fetch_min_bytes=1,
    )


def test_a_partition_of_which_nothing_is_known_yet_is_waited_for_while_another_one_is_busy() -> None:
    consumer = BusyConsumer(known_after_s=KNOWN_AFTER_S)
    with ThreadPoolExecutor(1) as executor:
        instance = instance_of(consumer, executor)
        instance._seek([(("t", 1), 7)])
        assert consumer.sought == [7]
        assert len(instance._pending) <= 2 * MESSAGES_PER_TURN + 1


async def test_no_client_waits_for_it_longer_than_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.consumer_instance.CALL_TIMEOUT_S", 0.01)
    with ThreadPoolExecutor(1) as executor:
        instance = instance_of(BusyConsumer(known_after_s=3600), executor)
        with pytest.raises(Refused):
            await instance.seek([(("t", 1), 7)])
