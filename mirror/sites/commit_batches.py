"""Writes the offsets of groups at the target in batches: commits that come while a request is under
way go into the next one. A broker answers the requests of a connection one after the other, so with
a request for each group, each commit would wait until the log has those before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import PartitionKey

GROUPS_MAX: Final = 500
"""Groups in one batch: a request of tens of kilobytes."""

Outcomes = Mapping[PartitionKey, ErrorCode]


class _Claim(NamedTuple):
    link: str
    link_epoch: int


class _Waiting(NamedTuple):
    group: str
    offsets: Mapping[PartitionKey, CommittedOffset]
    claim: _Claim
    outcome: asyncio.Future[Outcomes]


class CommitBatches:
    """The commits of one mirror at one site."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def commit(
        self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], *, link: str, link_epoch: int
    ) -> Outcomes:
        """Write a group's offsets as the link's mirror; the outcome by partition.
        KafkaClientError.
        """
        outcome: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(group, offsets, _Claim(link, link_epoch), outcome))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await outcome

    async def close(self) -> None:
        """End the request under way; those who wait are cancelled."""
        if self._sending is not None:
            self._sending.cancel()
        for waiting in self._waiting:
            waiting.outcome.cancel()
        self._waiting.clear()

    async def _send_all(self) -> None:
        try:
            while batch := self._next():
                await self._send(batch)
        finally:
            self._sending = None

    def _next(self) -> list[_Waiting]:
        """The next batch: one commit of a group at most, in the order of their arrival."""
        batch: dict[str, _Waiting] = {}
        later: list[_Waiting] = []
        for waiting in self._waiting:
            if waiting.outcome.done():
                continue  # The caller was cancelled.
            is_of_batch = not batch or next(iter(batch.values())).claim == waiting.claim
            if is_of_batch and waiting.group not in batch and len(batch) < GROUPS_MAX:
                batch[waiting.group] = waiting
            else:
                later.append(waiting)
        self._waiting = later
        return list(batch.values())

    async def _send(self, batch: list[_Waiting]) -> None:
        link, link_epoch = batch[0].claim
        try:
            found = await self._client.mirror_group_offsets(
                {waiting.group: waiting.offsets for waiting in batch}, link=link, link_epoch=link_epoch
            )
        except BaseException as error:
            for waiting in batch:
                if not waiting.outcome.done():
                    if isinstance(error, Exception):
                        waiting.outcome.set_exception(error)
                    else:
                        waiting.outcome.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for waiting in batch:
            answer = found[waiting.group]
            if waiting.outcome.done():
                continue
            if isinstance(answer, KafkaClientError):
                waiting.outcome.set_exception(answer)
            else:
                waiting.outcome.set_result(answer)
