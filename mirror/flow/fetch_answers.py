"""Submits the source's answers to fetches to the flows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_effects import QueueBatches
from mirror.flow.core.flow_events import BatchesFetched, FetchFailed, NothingFetched, SourceTrouble
from mirror.flow.core.flow_state import FlowFacts
from mirror.flow.core.window import QueuedBatches
from mirror.flow.rows import Moment
from mirror.link.core.partitions import MalformedBatches, survey
from mirror.link.ports import FetchAnswer, FetchPart, FetchParts
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition


class FetchAnswers:
    """The answers of one source broker."""

    def __init__(
        self, node_id: int, *, board: FlowBoard, clock: Clock, on_accepted: Callable[[TopicPartition], None]
    ) -> None:
        """`on_accepted` is called as soon as a flow has accepted batches; they are not queued
        yet.
        """
        self._node_id = node_id
        self._board = board
        self._clock = clock
        self._on_accepted = on_accepted

    def accept(
        self, parts: FetchParts, answers: Sequence[FetchAnswer], asked: Moment
    ) -> list[tuple[QueuedBatches, FlowFacts]]:
        """Submit to the flows; returns the batches that they accept with the facts before them.
        `asked` is when the request was sent.
        """
        may_have_more = may_lack_records(answers)
        with self._board.lines_together():
            taken = [
                self._accept(parts[answer.key], answer, asked, may_have_more=may_have_more)
                for answer in answers
                if answer.key in parts and answer.key in self._board
            ]
        return [entry for entry in taken if entry is not None]

    def none_came(self, parts: FetchParts, reason: str) -> None:
        """The broker has not answered a request for these partitions."""
        with self._board.lines_together():
            for key, part in parts.items():
                if key not in self._board:
                    continue
                trouble = SourceTrouble.UNREACHABLE
                self._board.submit(key, FetchFailed(generation=part.generation, trouble=trouble, reason=reason))

    def _accept(
        self, part: FetchPart, answer: FetchAnswer, asked: Moment, *, may_have_more: bool
    ) -> tuple[QueuedBatches, FlowFacts] | None:
        if answer.error is not ErrorCode.none:
            self._fail(answer, part.generation, _trouble(answer.error), answer.error.name)
            return None
        try:
            return self._take(answer, part, asked_at_ms=self._board.as_of(asked), may_have_more=may_have_more)
        except MalformedBatches as error:
            self._fail(answer, part.generation, SourceTrouble.MALFORMED, str(error))
            return None

    def _take(
        self, answer: FetchAnswer, part: FetchPart, *, asked_at_ms: int, may_have_more: bool
    ) -> tuple[QueuedBatches, FlowFacts] | None:
        before = self._board.row(answer.key).facts
        run = None
        if answer.records:
            run = survey(answer.records, skipped=answer.skipped, copied_below=before.chain_offset)
        if run is None:
            nothing = NothingFetched(
                generation=part.generation,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                asked_at_ms=asked_at_ms,
                may_have_more=may_have_more,
            )
            self._board.submit(answer.key, nothing)
            return None
        fetched = BatchesFetched(
            generation=part.generation,
            fetch_offset=part.offset,
            run=run,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start_offset,
            asked_at_ms=asked_at_ms,
        )
        decision = self._board.submit(answer.key, fetched)
        for effect in decision.effects:
            if isinstance(effect, QueueBatches):
                self._on_accepted(answer.key)
                entry = QueuedBatches(
                    key=answer.key,
                    generation=part.generation,
                    expected_log_end_offset=effect.expected_log_end_offset,
                    run=run,
                    # A Fetch response may end in an incomplete batch, which is not counted.
                    records=answer.records[: run.size_bytes],
                    fetched_at_ms=self._clock.now_ms(),
                    fetched_monotonic_ms=self._clock.monotonic_ms(),
                    skipped=answer.skipped,
                )
                return entry, before
        return None

    def _fail(self, answer: FetchAnswer, generation: int, trouble: SourceTrouble, what: str) -> None:
        reason = f"source broker {self._node_id} on {answer.key}: {what}"
        self._board.submit(answer.key, FetchFailed(generation=generation, trouble=trouble, reason=reason))


def may_lack_records(answers: Sequence[FetchAnswer]) -> bool:
    """True if the broker may have left records out that it has: only an answer without any records
    is sure to have had room for them.
    """
    return any(answer.records for answer in answers)


def _trouble(error: ErrorCode) -> SourceTrouble:
    if error is ErrorCode.offset_out_of_range:
        return SourceTrouble.OUT_OF_RANGE
    if error in (ErrorCode.corrupt_message, ErrorCode.invalid_record):
        return SourceTrouble.MALFORMED
    # For the flow this equals an unreachable source, because an administrator can change the ACLs
    # at any time.
    if error is ErrorCode.topic_authorization_failed:
        return SourceTrouble.UNREACHABLE
    return SourceTrouble.MOVED
