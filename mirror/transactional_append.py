"""AppendPort of a translate link whose target is written to in transactions: nothing counts before its transaction is committed.

Batches go as in `translated_append.py`, many requests under way, each with one batch a partition. An answer comes when the
transaction that carried the batches is over: committed, and all of them are there; broken off, and none is. So nothing has to be
recognised at the target, and an offset is never told of a record that nobody will see.

One producer writes everything, so whose records they were at first is not kept apart (`provenance.py`): where names do not prevent loops,
records that came into being at a third site are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from kio.schema.errors import ErrorCode

from mirror.core.naming import Naming, NamingPolicy
from mirror.core.renumbering import renumber
from mirror.core.translation import BrokenOff, NotTheNextBatch, Planned, Translation
from mirror.kafka_site import reached
from mirror.ports import AppendAnswer, AppendPart
from mirror.provenance import Provenance
from mirror.transactions import TakenOver, Transaction, Transactions
from mirror.translated_append import all_of, answered, by_place
from mirror.translations import Translations
from wire import broker_requests as requests
from wire.client import KafkaClient
from wire.client_errors import error_code
from wire.connection import Connection
from wire.produce_codec import PartitionProduced, PartitionRecords, ProduceRequest, TopicRecords
from wire.record_batch import BatchHeader, InvalidBatch, iterate_headers


@dataclass(slots=True)
class _Part:
    """One partition of a call: what is sent for it, in order, and the first thing that went wrong."""

    part: AppendPart
    translation: Translation
    to_send: list[tuple[Planned, bytes]] = field(default_factory=list)
    next_offset: int = 0
    error: ErrorCode = ErrorCode.none
    message: str = ""

    def fail(self, error: ErrorCode, message: str) -> None:
        if self.error is ErrorCode.none:
            self.error, self.message = error, message


_Round = list[tuple[_Part, Planned, bytes]]


class TransactionalAppend:
    """Appends of one producer of the mirror; all of them share the link's transactions."""

    def __init__(
        self,
        client: KafkaClient,
        *,
        naming: Naming,
        translations: Translations,
        transactions: Transactions,
        provenance: Provenance,
        timeout_ms: int,
    ) -> None:
        self._client = client
        self._naming = naming
        self._translations = translations
        self._transactions = transactions
        self._provenance = provenance
        self._timeout_ms = timeout_ms
        self._turns: dict[int, asyncio.Lock] = {}

    async def append(
        self,
        node_id: int,
        *,
        link: str,  # noqa: ARG002
        link_epoch: int,  # noqa: ARG002
        parts: Sequence[AppendPart],
    ) -> Sequence[AppendAnswer]:
        """Append; calls made one after the other reach the broker in that order. Answers are in the source's offsets."""
        answers = [self._nothing_to_append(part) for part in parts if not part.records]
        with_records = [part for part in parts if part.records]
        if not with_records:
            return answers
        try:
            return [*answers, *await self._append(node_id, with_records)]
        except TakenOver as error:
            refused = [
                answered(part.key, ErrorCode.fenced_leader_epoch, str(error), part.expected_log_end_offset)
                for part in with_records
            ]
            return [*answers, *refused]

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    async def _append(self, node_id: int, parts: Sequence[AppendPart]) -> list[AppendAnswer]:
        async with self._turns.setdefault(node_id, asyncio.Lock()):
            transaction = await self._transactions.enter()
            try:
                planned = [self._plan(transaction, part) for part in parts]
                sending = await self._start_sending(node_id, transaction, planned)
            except BaseException as error:
                self._transactions.break_off(transaction, str(error) or type(error).__name__)
                raise
        try:
            await all_of(sending)
        except BaseException as error:
            self._transactions.break_off(transaction, str(error) or type(error).__name__)
            raise
        failed = [part for part in planned if part.error is not ErrorCode.none]
        if failed:
            first = failed[0]
            self._transactions.break_off(transaction, f"{first.part.key}: {first.message}")
            return [self._not_written(part, failed[0]) for part in planned]
        self._transactions.leave(transaction)
        await asyncio.shield(transaction.over)
        return [answered(part.part.key, ErrorCode.none, "", part.next_offset) for part in planned]

    def _not_written(self, part: _Part, cause: _Part) -> AppendAnswer:
        error, message = part.error, part.message
        if error is ErrorCode.none:
            error = ErrorCode.request_timed_out
            message = f"the transaction was broken off because of {cause.part.key}: {cause.message}"
        return answered(part.part.key, error, message, self._translations.of(part.part.key).position.source_next)

    async def _start_sending(
        self, node_id: int, transaction: Transaction, planned: Sequence[_Part]
    ) -> list[asyncio.Task[None]]:
        if any(part.error is not ErrorCode.none for part in planned):
            return []
        written = [(self._target_name(part), part.part.key.partition) for part in planned if part.to_send]
        await self._transactions.add(transaction, written)
        connection = await reached(self._client.connection(node_id))
        rounds = [
            [one for one in row if one is not None]
            for row in zip_longest(*([(part, *sent) for sent in part.to_send] for part in planned))
        ]
        if rounds and not transaction.begun.issuperset(written):
            # Brokers ask the coordinator about each partition's first batch, and of an id's questions keep the last one only.
            async with self._transactions.beginning(transaction, node_id):
                await self._send(connection, rounds.pop(0))
            if any(part.error is not ErrorCode.none for part in planned):
                return []
            transaction.begun.update(written)
        loop = asyncio.get_running_loop()
        return [loop.create_task(self._send(connection, row)) for row in rounds if row]

    def _target_name(self, part: _Part) -> str:
        return self._naming.target_name(part.part.key.topic)

    def _nothing_to_append(self, part: AppendPart) -> AppendAnswer:
        """An idle partition's report: where the source's log starts is noted, and who was replaced finds out."""
        self._translations.note_source_start(part.key, part.source_log_start_offset)
        end = min(self._translations.of(part.key).position.source_next, part.expected_log_end_offset)
        if self._transactions.taken_over:
            return answered(part.key, ErrorCode.fenced_leader_epoch, self._transactions.taken_over, end)
        return answered(part.key, ErrorCode.none, "", end)

    def _plan(self, transaction: Transaction, part: AppendPart) -> _Part:
        translation = self._translations.of(part.key)
        planned = _Part(part, translation)
        places = list(iterate_headers(part.records))
        headers = [header for _, header in places]
        planned.next_offset = headers[-1].next_offset
        stamp = transaction.stamp
        translation.write_under(*stamp)
        try:
            self._refuse_strangers(part, headers)
            plans = translation.plan(
                headers,
                expected=part.expected_log_end_offset,
                left_out=part.left_out,
                producer_of=lambda _: stamp.producer_id,
                log_start_offset=part.source_log_start_offset,
            )
            for (place, header), plan in zip(places, plans, strict=True):
                if plan is not None and plan.stamp is not None:
                    renumbered = renumber(part.records, place, header, plan.stamp, is_transactional=True)
                    plan.pieces = renumbered.pieces
                    planned.to_send.append((plan, renumbered.batch))
        except BrokenOff as error:
            planned.fail(ErrorCode.request_timed_out, str(error))
        except NotTheNextBatch as error:
            planned.fail(ErrorCode.offset_out_of_range, str(error))
        except InvalidBatch as error:
            planned.fail(ErrorCode.corrupt_message, str(error))
        except _Stranger as error:
            planned.fail(ErrorCode.policy_violation, str(error))
        size = sum(len(batch) for _, batch in planned.to_send)
        self._transactions.carry(transaction, part.key, headers, left_out=part.left_out, size_bytes=size)
        return planned

    def _refuse_strangers(self, part: AppendPart, headers: Sequence[BatchHeader]) -> None:
        if self._naming.policy is NamingPolicy.PREFIX:
            return
        for header in headers:
            origin = self._provenance.origin_of(header.producer_id)
            if header.base_offset not in part.left_out and origin != self._naming.source_alias:
                raise _Stranger(
                    f"the batch at offset {header.base_offset} came into being at {origin}: with antipode.target.transactions "
                    "a link carries what its source wrote, or has topic.naming.policy=prefix"
                )

    async def _send(self, connection: Connection, row: _Round) -> None:
        """One request; its outcome is noted with each part. `ports.Unreachable`: nobody knows the outcome."""
        by_topic: dict[str, list[PartitionRecords]] = {}
        for part, _, batch in row:
            by_topic.setdefault(self._target_name(part), []).append(PartitionRecords(part.part.key.partition, batch))
        listed = [TopicRecords(name, None, partitions) for name, partitions in by_topic.items()]
        request = ProduceRequest(self._transactions.transactional_id, -1, self._timeout_ms, listed)
        outcomes = by_place(await reached(requests.request_produce(connection, request)))
        for part, plan, _ in row:
            _note(part, plan, outcomes.get((self._target_name(part), part.part.key.partition)))
            if part.error is ErrorCode.none:
                start = outcomes[self._target_name(part), part.part.key.partition].log_start_offset
                self._translations.note_target_start(part.part.key, start)


class _Stranger(Exception):
    """A batch of a third site, where nothing but producer ids could keep it from coming back."""


def _note(part: _Part, plan: Planned, outcome: PartitionProduced | None) -> None:
    if outcome is None:
        part.fail(ErrorCode.unknown_server_error, "the target's broker says nothing of the partition")
        return
    code = error_code(outcome.error_code)
    if code is ErrorCode.none and outcome.base_offset >= part.translation.position.target_next:
        plan.target_offset = outcome.base_offset
    elif code is ErrorCode.none:
        end = part.translation.position.target_next
        part.fail(
            ErrorCode.offset_out_of_range,
            f"the target gave offset {outcome.base_offset}, its log had reached {end}",
        )
    elif code is ErrorCode.invalid_record:
        # What a broker says of records that a topic does not take, such as those without a key in a compacted one.
        part.fail(ErrorCode.policy_violation, f"{code.name}: {outcome.error_message}")
    else:
        part.fail(code, outcome.error_message or code.name)
