"""A read that an error of Kafka ends keeps the records that it had collected."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from bridge.consumer_instance import ConsumerInstance, ReadLimits
from bridge.core.media_types import EmbeddedFormat
from bridge.core.refusals import Refused

LIMITS = ReadLimits(timeout_ms=60_000, bytes_max=1024, bytes_min=3)


class Arrived:
    """A record of one byte, or an error."""

    def __init__(self, offset: int = -1, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"


class ConsumerOfTurns:
    """A consumer whose every poll brings the next turn."""

    def __init__(self, *turns: list[Arrived]) -> None:
        self._turns = deque(turns)

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    def poll(self, timeout_s: float) -> Arrived | None:
        return self._turns[0].pop(0) if self._turns else None

    def consume(self, count: int, timeout_s: float) -> list[Arrived]:
        return self._turns.popleft()


DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([[Arrived(0)], [Arrived(error=DENIED)], [Arrived(1), Arrived(2)]], id="in a later turn"),
        pytest.param([[Arrived(0), Arrived(error=DENIED), Arrived(1)], [Arrived(2)]], id="between records"),
    ],
)
async def test_records_around_an_error_are_read_next(turns: list[list[Arrived]]) -> None:
    consumer: Any = ConsumerOfTurns(*turns)
    with ThreadPoolExecutor(1) as executor:
        instance = ConsumerInstance(
            group="g",
            name="i",
            embedded=EmbeddedFormat.BINARY,
            consumer=consumer,
            executor=executor,
            read_timeout_ms=0,
            fetch_min_bytes=1,
        )
        instance._mode = "topics"
        with pytest.raises(Refused):
            await instance.read(LIMITS)
        assert [message.offset() for message in await instance.read(LIMITS)] == [0, 1, 2]
