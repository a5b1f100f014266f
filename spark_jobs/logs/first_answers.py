"""The first answers for many pieces of logs: one request asks a broker for several of them, so that
small logs do not cost a round trip each.

A broker fills an answer with the logs in the order of the request, up to the bytes of the request.
Pieces that find no room are asked for again. An answer without records says nothing here, because
it has the same form as an answer without room, and the same holds for errors: the caller fetches
such a piece on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from clients.reader.single_fetches import records_of
from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.request_ahead import RequestAhead
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.fetch_codec import FetchResponse

LOGS_AT_FIRST: Final = 16
LOGS_MAX: Final = 256


class FirstAnswer(NamedTuple):
    """The bytes from a piece's first offset on, and where the log starts. `room_bytes` is the most
    that the piece could have got.
    """

    records: memoryview
    log_start_offset: int
    room_bytes: int


class FirstAnswers:
    """The answers for `splits` by their number, which are taken in order. The request for the next
    ones is under way while the caller uses those that are here.
    """

    def __init__(self, reader: KafkaClient, splits: Sequence[Split], *, replica_id: int, answer_bytes: int) -> None:
        self._reader = reader
        self._splits = splits
        self._replica_id = replica_id
        self._answer_bytes = answer_bytes
        self._logs_wanted = LOGS_AT_FIRST
        self._found: dict[int, FirstAnswer] = {}
        self._ahead: RequestAhead[dict[int, FirstAnswer]] = RequestAhead()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ahead.__aexit__(kind, error, trace)

    async def take(self, number: int) -> FirstAnswer | None:
        """The answer for this piece; None if the caller must ask on its own."""
        if number not in self._found:
            await self._ask(number)
            after = max(self._found, default=number) + 1
            if after < len(self._splits):
                await self._ahead.begin(self._answers(self._group(after)))
        return self._found.pop(number, None)

    async def _ask(self, number: int) -> None:
        """Get the answers that are under way, and ask for this piece if it is not among them."""
        if self._ahead.is_under_way:
            self._found |= await self._ahead.result()
        if number not in self._found:
            self._found |= await self._answers(self._group(number))

    def _group(self, first: int) -> list[int]:
        """The pieces to ask for together: different logs, since a request names a log once."""
        group: list[int] = []
        logs: set[PartitionKey] = set()
        for number in range(first, min(first + self._logs_wanted, len(self._splits))):
            split = self._splits[number]
            if (split.topic, split.partition) in logs:
                break
            logs.add((split.topic, split.partition))
            if number not in self._found:
                group.append(number)
        return group

    async def _answers(self, group: Sequence[int]) -> dict[int, FirstAnswer]:
        """One attempt at all leaders of these pieces."""
        try:
            by_leader: dict[int, list[int]] = {}
            for number in group:
                split = self._splits[number]
                by_leader.setdefault(await self._reader.leader(split.topic, split.partition), []).append(number)
            answers = await asyncio.gather(
                *(
                    self._answers_of(node, mine, self._answer_bytes // len(by_leader))
                    for node, mine in by_leader.items()
                )
            )
        except KafkaClientError:
            return {}
        found = {number: answer for one in answers for number, answer in one.items()}
        # A broker looks at every log of a request: more of them than find room waste its time.
        self._logs_wanted = min(LOGS_MAX, 2 * len(found) + 2)
        return found

    async def _answers_of(self, node: int, group: Sequence[int], answer_bytes: int) -> dict[int, FirstAnswer]:
        topics: dict[str, list[PartitionToFetch]] = {}
        for number in group:
            split = self._splits[number]
            wanted = PartitionToFetch(split.partition, split.first_offset, answer_bytes)
            topics.setdefault(split.topic, []).append(wanted)
        known = self._reader.cluster.topics
        request = FetchRequest(
            [
                TopicToFetch(topic, known[topic].topic_id if topic in known else None, partitions)
                for topic, partitions in topics.items()
            ],
            max_wait_ms=0,
            max_bytes=answer_bytes,
            replica_id=self._replica_id,
        )
        return self._with_records(group, await self._reader.fetch(node, request), answer_bytes)

    def _with_records(self, group: Sequence[int], response: FetchResponse, answer_bytes: int) -> dict[int, FirstAnswer]:
        names = {known.topic_id: name for name, known in self._reader.cluster.topics.items()}
        numbers = {(self._splits[number].topic, self._splits[number].partition): number for number in group}
        filled = [
            (numbers[place], one)
            for topic in response.topics
            for one in topic.partitions
            if (place := (topic.name or names.get(topic.topic_id, ""), one.partition_index)) in numbers
            and not one.error_code
            and records_of(one)
        ]
        left = max(0, answer_bytes - sum(len(records_of(one)) for _, one in filled))
        return {
            number: FirstAnswer(records_of(one), one.log_start_offset, len(records_of(one)) + left)
            for number, one in filled
        }
