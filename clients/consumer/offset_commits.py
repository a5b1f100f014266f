"""Commits of a poll-loop consumer: one after the other, with outcomes that a later poll reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from clients.consumer.consumer_options import CommitRefused, ConsumerOptions
from clients.consumer.membership import Membership
from clients.reader.core.positions import Position
from clients.reader.core.readings import Start
from wire.client.client_errors import broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import NO_MEMBER, OFFSET_FETCH, CommittedOffset, Committer
from wire.protocol.ids import PartitionKey


class OffsetCommits:
    """The commits of one consumer."""

    def __init__(self, client: KafkaClient, options: ConsumerOptions) -> None:
        self._client = client
        self._group_id = options.group_id
        self._group_instance_id = options.group_instance_id
        self._order = asyncio.Lock()
        self._pending: dict[asyncio.Task[None], Callable[[Exception | None], None]] = {}

    @property
    def pending(self) -> int:
        """Commits whose `done` was not called yet."""
        return len(self._pending)

    async def starts(self, places: Sequence[PartitionKey]) -> dict[PartitionKey, Start]:
        """The starting positions of these partitions: the group's committed offsets.
        BrokerError.
        """
        if not places or self._group_id is None:
            return {}
        found = await self._client.committed(self._group_id, places)
        starts: dict[PartitionKey, Start] = {}
        for place in places:
            offset = found.get(place)
            if offset is not None and offset.error_code:
                raise broker_error(offset.error_code, message=f"{place[0]}-{place[1]}", api_key=OFFSET_FETCH)
            is_there = offset is not None and offset.offset >= 0
            starts[place] = Start(Position(offset.offset, offset.leader_epoch)) if is_there and offset else Start()
        return starts

    async def commit(self, offsets: Mapping[PartitionKey, Position], membership: Membership | None) -> None:
        """Commit these offsets and wait until it is done. CommitRefused; KafkaClientError."""
        if not offsets:
            return
        if self._group_id is None:
            raise CommitRefused("there is no group to commit for")
        wanted = {place: CommittedOffset(at.offset, at.leader_epoch, "") for place, at in offsets.items()}
        committer = NO_MEMBER
        if membership is not None:
            joined = membership.joined
            committer = Committer(joined.generation_id, joined.member_id, self._group_instance_id)
        async with self._order:
            outcomes = await self._client.commit(self._group_id, wanted, committer)
        refused = {place: code for place, code in outcomes.items() if code}
        if refused:
            listed = ", ".join(f"{topic}-{index}: {code.name}" for (topic, index), code in sorted(refused.items()))
            raise CommitRefused(f"group {self._group_id} cannot commit offsets of {listed}")

    def commit_soon(
        self,
        offsets: Mapping[PartitionKey, Position],
        membership: Membership | None,
        done: Callable[[Exception | None], None],
    ) -> None:
        """Commit in the background; `run_callbacks` calls `done` when it is over."""
        task = asyncio.get_running_loop().create_task(self.commit(offsets, membership))
        self._pending[task] = done

    def run_callbacks(self) -> None:
        """Call `done` of the commits that are over, in their order."""
        while self._pending and (task := next(iter(self._pending))).done():
            done = self._pending.pop(task)
            error = task.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            done(error)

    async def wait(self) -> None:
        """Wait until all commits have ended, with or without an error."""
        await asyncio.gather(*self._pending, return_exceptions=True)
