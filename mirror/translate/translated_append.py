"""AppendPort of a translate link: plain idempotent Produce, one batch of each partition a request,
many requests under way.

An entry of several batches becomes several requests where its batches are not small enough to be
merged (`produce_rounds.py`), sent one behind the other without waiting. Sequences keep them in
order at the broker: after one that failed, those behind it are refused. Only where the target may
not know our producer yet does the first batch go alone, since a broker takes any sequence from a
producer that it does not know.

A broker finds repetitions by its state of a producer, and Apache Kafka expires a producer by the
times in its records: a producer of records older than `producer.id.expiration.ms` (a day) is
removed every ten minutes, even while it is active. So an unanswered request of old records is not
sent again at once: the mirror waits until the request cannot arrive late, and then reads the
target's log.

More requests may be under way than the five batches that a broker remembers for finding
repetitions: a refusal for that reason starts the partition again from the target's log
(`tail_reader.py`), which knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from mirror.link.core.topic_naming import Naming
from mirror.link.ports import AppendAnswer, AppendPart
from mirror.sites.kafka_site import reached
from mirror.translate.core.translation import TargetWentBack
from mirror.translate.produce_rounds import OutgoingBatch, OutgoingPart, Round, all_of, answered, rounds_of, send_round
from mirror.translate.tail_reader import TailReader
from mirror.translate.translations import Translations
from runtime.clock import Clock
from wire.client.client_errors import error_code
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.produce_codec import PartitionProduced

OPENING_LASTS_MS = 60_000
"""Time (ms) without a write after which a partition is opened again, because the target may have
forgotten our sequence.
"""

SILENCE_MAX_MS = 3_600_000
"""Time (ms) without a write after which the target's log is read again first; brokers forget a
producer after a day.
"""

OLD_RECORDS_MS = 3_600_000
"""Records older than this may make a broker forget their producer at any moment."""

_SEQUENCE_TROUBLE = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.unknown_producer_id,
    }
)


@dataclass(slots=True)
class _Part(OutgoingPart):
    """A part whose calls are answered in their order."""

    is_soon_forgotten: bool = False
    # The partition's call before this one, and this one.
    before: asyncio.Event | None = None
    is_answered: asyncio.Event = field(default_factory=asyncio.Event)


class TranslatedAppend:
    """Appends of one producer; a partition belongs to one producer, so its translation has no other
    writer meanwhile.
    """

    def __init__(
        self,
        client: KafkaClient,
        *,
        naming: Naming,
        translations: Translations,
        tails: TailReader,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._client = client
        self._naming = naming
        self._translations = translations
        self._tails = tails
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._turns: dict[int, asyncio.Lock] = {}
        self._opened_at_ms: dict[TopicPartition, float] = {}
        self._last_call: dict[TopicPartition, asyncio.Event] = {}

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
        with_records = [part for part in parts if part.records]
        answers = [self._nothing_to_append(part) for part in parts if not part.records]
        if not with_records:
            return answers
        planned: list[_Part] = []
        try:
            # Only one call at a time for each broker, so that calls reach it in the order of the
            # sequences.
            async with self._turns.setdefault(node_id, asyncio.Lock()):
                connection = await reached(self._client.connection(node_id))
                planned += [self._plan(part) for part in with_records]
                sending = await self._start_sending(connection, planned)
            if sending:
                await all_of(sending)
            return [*answers, *[await self._answer(part) for part in planned]]
        except BaseException:
            for part in planned:
                part.translation.break_off()
            raise
        finally:
            for part in planned:
                part.is_answered.set()

    async def _start_sending(self, connection: Connection, planned: Sequence[_Part]) -> list[asyncio.Task[None]]:
        rounds = rounds_of(planned)
        if rounds and any(self._is_unopened(part.part.key) for part, _ in rounds[0]):
            # This batch goes alone and first, because a broker accepts any sequence from a producer
            # that it does not know.
            await self._send(connection, rounds.pop(0))
            rounds = [[one for one in row if one[0].error is ErrorCode.none] for row in rounds]
        loop = asyncio.get_running_loop()
        return [loop.create_task(self._send(connection, row)) for row in rounds if row]

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    def _nothing_to_append(self, part: AppendPart) -> AppendAnswer:
        """Handle the report of an idle partition: such a target accepts no reports, so only the
        source's log start is noted.
        """
        self._translations.note_source_start(part.key, part.source_log_start_offset)
        translation = self._translations.of(part.key)
        end = translation.position.source_next
        return answered(part.key, ErrorCode.none, "", min(end, part.expected_log_end_offset))

    def _plan(self, part: AppendPart) -> _Part:
        planned = _Part(part, self._translations.of(part.key), before=self._last_call.get(part.key))
        self._last_call[part.key] = planned.is_answered
        oldest_ms = min(header.max_timestamp for header in planned.headers)
        planned.is_soon_forgotten = oldest_ms < self._clock.now_ms() - OLD_RECORDS_MS
        if not self._translations.may_write(part.key):
            # A broker that has forgotten our producer would accept batches that another daemon has
            # already written.
            planned.fail(
                ErrorCode.request_timed_out,
                "this daemon's lease or share is not confirmed: another daemon may mirror the partition",
            )
            return planned
        if part.key in self._tails.unanswered_at_ms:
            planned.fail(
                ErrorCode.offset_out_of_range,
                "earlier records got no answer: the target's log is read before more is sent",
            )
            return planned
        if self._was_silent_for_long(part.key):
            planned.fail(
                ErrorCode.offset_out_of_range, "nothing was written for a long time: the target's log is read again"
            )
            return planned
        planned.plan(self._tails.producer_of)
        return planned

    def _was_silent_for_long(self, key: TopicPartition) -> bool:
        known_at_ms = max(self._opened_at_ms.get(key, -1), self._tails.looked_at_ms.get(key, -1))
        return self._clock.monotonic_ms() - known_at_ms > SILENCE_MAX_MS

    def _is_unopened(self, key: TopicPartition) -> bool:
        return self._clock.monotonic_ms() - self._opened_at_ms.get(key, -OPENING_LASTS_MS) >= OPENING_LASTS_MS

    async def _send(self, connection: Connection, sent: Round[_Part]) -> None:
        """Send one request and note its outcome with each part. `ports.Unreachable`: the outcome is
        unknown.
        """
        try:
            outcomes = await send_round(connection, sent, self._naming, timeout_ms=self._timeout_ms)
        except BaseException:
            for part, _ in sent:
                # The partition is opened again before the next batch, because it is unknown whether
                # this one arrived.
                self._opened_at_ms.pop(part.part.key, None)
                if part.is_soon_forgotten:
                    self._tails.unanswered_at_ms[part.part.key] = self._clock.monotonic_ms()
            raise
        for part, sent_batch, outcome in outcomes:
            self._note(part, sent_batch, outcome)

    def _note(self, part: _Part, sent: OutgoingBatch, outcome: PartitionProduced | None) -> None:
        key = part.part.key
        code = ErrorCode.unknown_server_error if outcome is None else error_code(outcome.error_code)
        if outcome is not None and code is ErrorCode.none and outcome.base_offset >= 0:
            self._opened_at_ms[key] = self._clock.monotonic_ms()
            self._translations.note_target_start(key, outcome.log_start_offset)
            # The offset is in the middle of the earlier log: the target has lost records.
            try:
                for plan, offset in sent.placed(outcome.base_offset):
                    part.translation.confirm(plan, offset)
            except TargetWentBack as error:
                part.fail(ErrorCode.offset_out_of_range, str(error))
            return
        self._opened_at_ms.pop(key, None)
        message = (outcome.error_message if outcome is not None else None) or code.name
        # Success without an offset: the broker recognises the batch, but does not remember its
        # offset.
        if code in _SEQUENCE_TROUBLE or code is ErrorCode.none:
            # Batches after a failed one are refused only because of the gap.
            if not part.translation.is_next(sent.plans[0]):
                part.fail(ErrorCode.request_timed_out, f"the target refused earlier batches: {message}")
                return
            self._tails.doubted.add(key)
            part.fail(ErrorCode.offset_out_of_range, f"the target refuses the sequence: {message}")
        else:
            part.refuse(code, message, sent)

    async def _answer(self, part: _Part) -> AppendAnswer:
        # Answers are processed in the order of the calls, because positions only move forward.
        if part.before is not None:
            await part.before.wait()
        if part.error is ErrorCode.none:
            part.translation.confirm()
            if part.translation.position.source_next < part.next_offset:
                # An earlier call failed, and this one had nothing to send.
                part.fail(ErrorCode.request_timed_out, "batches before these are not acknowledged")
        return answered(part.part.key, part.error, part.message, part.translation.position.source_next)
