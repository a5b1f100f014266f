"""AppendPort of a translate link whose target is written to in transactions: nothing counts before
its transaction is committed.

Batches go as in `translated_append.py`, many requests under way, each with one batch a partition.
An append is answered when the transaction that carried its batches has ended: committed, and all
batches are in the log; aborted, and none counts. So no batch has to be recognised at the target,
and no reported offset belongs to a record that readers never see.

A caller that has `APPENDS_MAX` unanswered appends sends no more. The transaction then ends, even
inside a transaction of the source.

One producer writes everything, so the first sites of the records are not distinguishable
(`provenance.py`): where names do not prevent loops, records that were first written at a third site
are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from kio.schema.errors import ErrorCode

from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.link.ports import AppendAnswer, AppendPart
from mirror.sites.kafka_site import reached
from mirror.translate.core.translation import TargetWentBack
from mirror.translate.produce_rounds import OutgoingBatch, OutgoingPart, Round, all_of, answered, rounds_of, send_round
from mirror.translate.provenance import Provenance
from mirror.translate.transaction import FENCING, TakenOver, Transaction, is_fencing
from mirror.translate.transactions import Transactions
from mirror.translate.translations import Translations
from wire.batches.record_batch import BatchHeader
from wire.client.client_errors import error_code
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.protocol.messages.produce_codec import PartitionProduced

APPENDS_MAX = 4096
"""Appends to one broker that may wait for the end of a transaction: a transaction of the source
takes one for each of its batches when they arrive one by one.
"""


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
        # Appends without an answer, by the target's broker.
        self._unanswered: defaultdict[int, int] = defaultdict(int)
        self._turns: dict[int, asyncio.Lock] = {}

    async def append(
        self,
        node_id: int,
        *,
        link: str,  # noqa: ARG002
        link_epoch: int,  # noqa: ARG002
        parts: Sequence[AppendPart],
    ) -> Sequence[AppendAnswer]:
        """Append; calls made one after the other reach the broker in that order. Answers are in the
        source's offsets.
        """
        answers = [self._nothing_to_append(part) for part in parts if not part.records]
        with_records = [part for part in parts if part.records]
        if not with_records:
            return answers
        self._unanswered[node_id] += 1
        try:
            return [*answers, *await self._append(node_id, with_records)]
        except TakenOver as error:
            refused = [
                answered(part.key, ErrorCode.fenced_leader_epoch, str(error), part.expected_log_end_offset)
                for part in with_records
            ]
            return [*answers, *refused]
        finally:
            self._unanswered[node_id] -= 1

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    async def _append(self, node_id: int, parts: Sequence[AppendPart]) -> list[AppendAnswer]:
        async with self._turn(node_id) as transaction:
            ours = [part for part in parts if self._transactions.holds(part.key)]
            others = [_left_to_others(part) for part in parts if not self._transactions.holds(part.key)]
            try:
                planned = [self._plan(transaction, part) for part in ours]
                sending = await self._start_sending(node_id, transaction, planned)
            except BaseException as error:
                self._break_off(transaction, error)
                raise
        try:
            await all_of(sending)
        except BaseException as error:
            self._break_off(transaction, error)
            raise
        failed = [part for part in planned if part.error is not ErrorCode.none]
        if failed:
            first = failed[0]
            is_fenced = any(part.error in FENCING for part in failed)
            # an abort removes the parts that succeeded too, so all of them are sent again
            self._transactions.break_off(transaction, f"{first.part.key}: {first.message}", is_fenced=is_fenced)
            return [*others, *(self._not_written(part, first) for part in planned)]
        self._transactions.leave(transaction)
        if self._unanswered[node_id] >= APPENDS_MAX:
            self._transactions.fill(transaction)
        # shielded: all writers of the transaction share this future, and one may be cancelled
        await asyncio.shield(transaction.over)
        return [*others, *(answered(part.part.key, ErrorCode.none, "", part.next_offset) for part in planned)]

    @contextlib.asynccontextmanager
    async def _turn(self, node_id: int) -> AsyncIterator[Transaction]:
        """The open transaction, for one call after the other: a partition's batches leave in
        order.
        """
        with contextlib.ExitStack() as waiting:
            # `coming` delays the transaction's end while this caller waits for its turn
            waiting.enter_context(self._transactions.coming())
            async with self._turns.setdefault(node_id, asyncio.Lock()):
                transaction = await self._transactions.enter()
                waiting.close()
                yield transaction

    def _break_off(self, transaction: Transaction, error: BaseException) -> None:
        reason = str(error) or type(error).__name__
        self._transactions.break_off(transaction, reason, is_fenced=is_fencing(error))

    def _not_written(self, part: OutgoingPart, cause: OutgoingPart) -> AppendAnswer:
        error, message = part.error, part.message
        if error is ErrorCode.none:
            error = ErrorCode.request_timed_out
            message = f"the transaction was aborted because of {cause.part.key}: {cause.message}"
        return answered(part.part.key, error, message, self._translations.of(part.part.key).position.source_next)

    async def _start_sending(
        self, node_id: int, transaction: Transaction, planned: Sequence[OutgoingPart]
    ) -> list[asyncio.Task[None]]:
        if any(part.error is not ErrorCode.none for part in planned):
            return []
        written = [(self._target_name(part), part.part.key.partition) for part in planned if part.to_send]
        # before the first batch: a broker refuses batches of a partition that the transaction does
        # not have
        await self._transactions.add(transaction, written)
        connection = await reached(self._client.connection(node_id))
        rounds = rounds_of(planned)
        if rounds and not transaction.begun.issuperset(written):
            # For the first batch of each partition a broker verifies the transaction with the
            # coordinator (KIP-890), and it keeps only one such verification for each id.
            async with self._transactions.beginning(transaction, node_id):
                await self._send(connection, rounds.pop(0))
            if any(part.error is not ErrorCode.none for part in planned):
                return []
            transaction.begun.update(written)
        loop = asyncio.get_running_loop()
        return [loop.create_task(self._send(connection, row)) for row in rounds]

    def _target_name(self, part: OutgoingPart) -> str:
        return self._naming.target_name(part.part.key.topic)

    def _nothing_to_append(self, part: AppendPart) -> AppendAnswer:
        """Handle the report of an idle partition: note the source's log start, and detect that this
        daemon was replaced.
        """
        self._translations.note_source_start(part.key, part.source_log_start_offset)
        end = min(self._translations.of(part.key).position.source_next, part.expected_log_end_offset)
        if self._transactions.taken_over:
            return answered(part.key, ErrorCode.fenced_leader_epoch, self._transactions.taken_over, end)
        return answered(part.key, ErrorCode.none, "", end)

    def _plan(self, transaction: Transaction, part: AppendPart) -> OutgoingPart:
        planned = OutgoingPart(part, self._translations.of(part.key))
        stamp = transaction.stamp
        planned.translation.write_under(*stamp, instead_of=self._translations.writers)
        stranger = self._stranger_among(part, planned.headers)
        if stranger:
            planned.fail(ErrorCode.policy_violation, stranger)
        else:
            planned.plan(lambda _: stamp.producer_id, is_transactional=True)
        size = sum(one.size_bytes for one in planned.to_send)
        self._transactions.carry(transaction, part.key, planned.headers, skipped=part.skipped, size_bytes=size)
        return planned

    def _stranger_among(self, part: AppendPart, headers: Sequence[BatchHeader]) -> str:
        """Describe a batch of a third site, where only producer ids could keep it from returning;
        empty if there is none.
        """
        if self._naming.policy is NamingPolicy.PREFIX:
            return ""
        for header in headers:
            origin = self._provenance.origin_of(header.producer_id)
            if header.base_offset not in part.skipped and origin != self._naming.source_alias:
                return (
                    f"the batch at offset {header.base_offset} was first written at {origin}: with antipode.target.transactions "
                    "a link carries what its source wrote, or has topic.naming.policy=prefix"
                )
        return ""

    async def _send(self, connection: Connection, sent: Round[OutgoingPart]) -> None:
        """Send one request and note its outcome with each part. `ports.Unreachable`: the outcome is
        unknown.
        """
        outcomes = await send_round(
            connection,
            sent,
            self._naming,
            transactional_id=self._transactions.transactional_id,
            timeout_ms=self._timeout_ms,
        )
        for part, sent_batch, outcome in outcomes:
            _note(part, sent_batch, outcome)
            if outcome is not None and part.error is ErrorCode.none:
                self._translations.note_target_start(part.part.key, outcome.log_start_offset)


def _left_to_others(part: AppendPart) -> AppendAnswer:
    message = "another daemon of the link mirrors it"
    return answered(part.key, ErrorCode.request_timed_out, message, part.expected_log_end_offset)


def _note(part: OutgoingPart, sent: OutgoingBatch, outcome: PartitionProduced | None) -> None:
    if outcome is None:
        part.fail(ErrorCode.unknown_server_error, "the target's broker does not answer for the partition")
        return
    code = error_code(outcome.error_code)
    if code is not ErrorCode.none:
        part.refuse(code, outcome.error_message, sent)
        return
    try:
        part.translation.demand_growth(outcome.base_offset)
    except TargetWentBack as error:
        part.fail(ErrorCode.offset_out_of_range, str(error))
    else:
        for plan, offset in sent.placed(outcome.base_offset):
            plan.target_offset = offset
