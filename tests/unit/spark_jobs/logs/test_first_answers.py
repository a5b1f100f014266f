"""First answers for many pieces of logs, from brokers in memory that fill an answer up to the bytes
of a request. Promised: each piece gets records from its own first offset or nothing; small logs
share requests; a request names a log once; what a broker does not answer is left to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.first_answers import FirstAnswer, FirstAnswers
from wire.client.client_errors import KafkaClientError, Unreachable
from wire.client.requests.fetch_requests import FetchRequest
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched, TopicFetched

ROOM: Final = 100


class Brokers:
    """Logs of so many bytes by partition; the leader of a partition is its number modulo
    `leaders`.
    """

    def __init__(self, sizes: Sequence[int], *, leaders: int = 1) -> None:
        self.sizes, self.leaders = sizes, leaders
        self.cluster: Any = SimpleNamespace(topics={})
        self.requests: list[list[int]] = []
        self.failing: dict[int, int] = {}
        self.error: KafkaClientError | None = None

    async def leader(self, topic: str, partition: int) -> int:
        assert topic == "t"
        return partition % self.leaders

    async def fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        wanted = [one.partition_index for one in topic.partitions]
        assert len(set(wanted)) == len(wanted), "a log is named twice"
        assert {number % self.leaders for number in wanted} == {node}
        self.requests.append(wanted)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        left, found = request.max_bytes, []
        for one in topic.partitions:
            content = content_of(one.partition_index, one.fetch_offset, self.sizes)
            records = memoryview(content[:left])
            left -= len(records)
            code = self.failing.get(one.partition_index, 0)
            found.append(PartitionFetched(one.partition_index, code, records=None if code else records))
        return FetchResponse([TopicFetched("t", None, found)])


def content_of(partition: int, offset: int, sizes: Sequence[int]) -> bytes:
    """The bytes of a log from an offset on; an offset is a byte here."""
    return bytes([partition]) * max(0, sizes[partition] - offset)


def pieces(*firsts: tuple[int, int]) -> list[Split]:
    """Splits by partition and first offset."""
    return [
        Split(site="a", topic="t", partition=partition, first_offset=first, until_offset=1_000, is_first=first == 0)
        for partition, first in firsts
    ]


def taken(brokers: Brokers, splits: list[Split]) -> list[FirstAnswer | None]:
    """The answers for all pieces, in order."""

    async def take() -> list[FirstAnswer | None]:
        reader: Any = brokers
        async with FirstAnswers(reader, splits, replica_id=-2, answer_bytes=ROOM) as answers:
            return [await answers.take(number) for number in range(len(splits))]

    return asyncio.run(take())


@pytest.mark.parametrize("leaders", [1, 3])
def test_small_logs_share_requests_and_each_piece_gets_its_own_records(leaders: int) -> None:
    sizes = [7 + number % 5 for number in range(60)]
    brokers = Brokers(sizes, leaders=leaders)
    found = taken(brokers, pieces(*((number, number % 3) for number in range(60))))
    for number, answer in enumerate(found):
        if answer is not None:
            whole = content_of(number, number % 3, sizes)
            assert bytes(answer.records) == whole[: len(answer.records)]
            assert len(answer.records) <= answer.room_bytes <= ROOM
            # an answer that ends early leaves no room, so that its reader asks for the other bytes
            assert bytes(answer.records) == whole or answer.room_bytes == len(answer.records)
    assert sum(answer is not None for answer in found) >= 50
    assert len(brokers.requests) < 30


def test_pieces_of_one_log_are_asked_for_one_after_another() -> None:
    found = taken(Brokers([90]), pieces((0, 0), (0, 40), (0, 80)))
    assert [answer is not None and len(answer.records) for answer in found] == [90, 50, 10]


def test_an_answer_with_an_error_or_without_records_is_left_to_the_caller() -> None:
    brokers = Brokers([10, 0, 10, 10])
    brokers.failing = {2: 6}
    found = taken(brokers, pieces((0, 0), (1, 0), (2, 0), (3, 0)))
    assert [answer is not None for answer in found] == [True, False, False, True]


def test_a_broker_that_does_not_answer_leaves_every_piece_to_the_caller() -> None:
    brokers = Brokers([10, 10])
    brokers.error = Unreachable("gone", node="node 0")
    assert taken(brokers, pieces((0, 0), (1, 0))) == [None, None]


def test_the_request_for_the_next_pieces_is_under_way_while_the_first_are_used() -> None:
    brokers = Brokers([60, 60, 60])

    async def take() -> list[list[int]]:
        reader: Any = brokers
        async with FirstAnswers(reader, pieces((0, 0), (1, 0), (2, 0)), replica_id=-2, answer_bytes=ROOM) as answers:
            await answers.take(0)
            return list(brokers.requests)

    assert asyncio.run(take()) == [[0, 1, 2], [2]]
