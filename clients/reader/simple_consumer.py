"""The simple consumer: reads one partition from the position that the caller gives. No group, no
background work.

Five steps in a loop: find the leader, find the position, fetch, yield the records, continue after
them; a failure returns to the first step. The policy decides what happens at a position that the
log does not have. After a change of leader the position is validated by its epoch before the next
fetch (KIP-320). The caller keeps the offsets, or commits them to the broker through
`KafkaClient.commit`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from clients.reader.core.positions import LogTruncated, Position, PositionLost, ResetPolicy, diverges_at, resolve, take
from clients.reader.single_fetches import NOTHING, fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from wire.client.client_errors import TRANSIENT, BrokerError, broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochQuery
from wire.protocol.ids import CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH, NO_OFFSET, PartitionKey
from wire.protocol.messages.fetch_codec import PartitionFetched


class NoSuchOffset(Exception):
    """No record of the partition is as new as the requested time."""


class SimpleConsumerOptions(Struct, frozen=True, kw_only=True):
    """Options of reading."""

    policy: ResetPolicy = ResetPolicy.FAIL
    fetch_bytes: int = 1024 * 1024
    max_wait_ms: int = 500
    min_bytes: int = 1
    isolation_level: int = 0
    replica_id: int = CONSUMER
    retry_budget_ms: float = 60_000
    attempts_max: int | None = None


class Batches(NamedTuple):
    """Raw batches of one partition; empty at the end of the log. The first may begin below the
    offset that was asked for.
    """

    place: PartitionKey
    fetch_offset: int
    records: memoryview
    next: Position
    high_watermark: int
    log_start_offset: int
    fetched: PartitionFetched


class SimpleConsumer:
    """One reader; the client stays the caller's. `on_step` gets each step, for tests and
    diagnosis.
    """

    def __init__(
        self,
        client: KafkaClient,
        options: SimpleConsumerOptions | None = None,
        *,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._options = options or SimpleConsumerOptions()
        self._on_step = on_step
        self._epochs: dict[PartitionKey, int] = {}

    async def offset_at(self, place: PartitionKey, timestamp: int) -> int:
        """The first offset at or after a time, EARLIEST_TIMESTAMP or LATEST_TIMESTAMP.
        NoSuchOffset; never a guess.
        """
        options = self._options
        found = await self._client.offsets_at(
            [place], timestamp, replica_id=options.replica_id, isolation_level=options.isolation_level
        )
        if found[place] == NO_OFFSET:
            raise NoSuchOffset(f"{place[0]}-{place[1]} has no record at {timestamp} or later")
        return found[place]

    async def fetch(self, place: PartitionKey, position: Position) -> Batches:
        """The batches at the position; retries until the leader answers. Raises KafkaClientError,
        PositionLost, and InvalidBatch for a damaged log.
        """
        attempts = jittered_backoff(
            retry_on=TRANSIENT, budget_ms=self._options.retry_budget_ms, attempts_max=self._options.attempts_max
        )
        found: Batches = await attempts(self._fetch_once, place, position)
        return found

    async def batches(
        self, place: PartitionKey, position: Position, *, until: int | None = None
    ) -> AsyncIterator[Batches]:
        """All batches from the position to the offset `until`, or without end. Raises the errors of
        `fetch`.
        """
        while until is None or position.offset < until:
            found = await self.fetch(place, position)
            position = found.next
            if found.records:
                yield found

    async def _fetch_once(self, place: PartitionKey, position: Position) -> Batches:
        self._on_step("leader")
        await self._client.leader(*place)
        epoch = self._client.cluster.topics[place[0]].partitions[place[1]].leader_epoch
        # a position that came from a time or a policy has no epoch, so there is nothing to compare
        if position.leader_epoch != NO_EPOCH and self._epochs.get(place, NO_EPOCH) != epoch:
            position = await self._validated(place, position, epoch)
        # only after the validation: one that fails is repeated by the next attempt
        self._epochs[place] = epoch
        self._on_step("fetch")
        options = self._options
        try:
            fetched = await fetch_at_leader(
                self._client,
                place,
                position.offset,
                max_bytes=options.fetch_bytes,
                max_wait_ms=options.max_wait_ms,
                min_bytes=options.min_bytes,
                isolation_level=options.isolation_level,
                replica_id=options.replica_id,
                leader_epoch=epoch,
            )
        except BrokerError as error:
            if error.code is not ErrorCode.offset_out_of_range:
                raise
            # no fetch in this attempt: the caller gets the new position before it reads from there
            position = await self._reset(place, position)
            return Batches(
                place=place,
                fetch_offset=position.offset,
                records=NOTHING,
                next=position,
                high_watermark=NO_OFFSET,
                log_start_offset=NO_OFFSET,
                fetched=PartitionFetched(place[1]),
            )
        records = records_of(fetched)
        taken = take(records, position)
        self._on_step("taken")
        return Batches(
            place=place,
            fetch_offset=position.offset,
            records=records[taken.start : taken.end] if taken is not None else NOTHING,
            next=taken.next if taken is not None else position,
            high_watermark=fetched.high_watermark,
            log_start_offset=fetched.log_start_offset,
            fetched=fetched,
        )

    async def _validated(self, place: PartitionKey, position: Position, epoch: int) -> Position:
        """The position, if the new leader's log still has the records that were read; else a
        position by the policy.
        """
        self._on_step("validate")
        query = EpochQuery(position.leader_epoch, epoch)
        leader = await self._client.leader(*place)
        try:
            end = (await self._client.epoch_ends(leader, {place: query}, replica_id=self._options.replica_id))[place]
        except TRANSIENT:
            self._client.forget_leaders([place[0]])
            raise
        if end.error_code:
            self._client.forget_leaders([place[0]])
            raise broker_error(end.error_code, message=f"{place[0]}-{place[1]}", api_key=23)
        at = diverges_at(position, epoch=end.leader_epoch, end_offset=end.end_offset)
        if at is None:
            return position
        if self._options.policy is ResetPolicy.FAIL:
            raise LogTruncated(place, position, None if at == NO_OFFSET else at)
        return Position(at, end.leader_epoch) if at != NO_OFFSET else await self._reset(place, position)

    async def _reset(self, place: PartitionKey, position: Position) -> Position:
        self._on_step("reset")
        start = await self.offset_at(place, EARLIEST_TIMESTAMP)
        end = await self.offset_at(place, LATEST_TIMESTAMP)
        offset = resolve(self._options.policy, position.offset, log_start=start, log_end=end)
        if offset is None:
            where = f"offset {position.offset} of {place[0]}-{place[1]} is not in the log, which is {start} to {end}"
            raise PositionLost(f"{where}, and the policy is to fail")
        return Position(offset)
