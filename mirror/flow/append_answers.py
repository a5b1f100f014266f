"""Handles the target's answers to appends: marks batches as acknowledged, sends them again, or
reports a refusal to the flow.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from mirror.flow.board import FlowBoard
from mirror.flow.core.answers import Appended, Refusal, SendAgain, judge_append
from mirror.flow.core.flow_events import Acknowledged, AppendRefused, TargetRefusal, TargetWaiting
from mirror.flow.core.window import QueuedBatches
from mirror.flow.lane import Lane
from mirror.flow.queue import ByteQueue
from mirror.link.ports import AppendAnswer
from wire.batches.record_batch import iterate_headers, verify_crc
from wire.protocol.ids import TopicPartition

OnAppended = Callable[[TopicPartition, QueuedBatches], None]
OnIdle = Callable[[TopicPartition], None]


class SentPart(Struct, frozen=True):
    """One partition's part of a request: the queue entry, None for an empty append."""

    key: TopicPartition
    generation: int
    entry: QueuedBatches | None
    expected_log_end_offset: int


class AppendAnswers:
    """The answers to one producer."""

    def __init__(
        self,
        lane: Lane,
        *,
        board: FlowBoard,
        queue: ByteQueue,
        suspect_link: Callable[[], None],
        pause: Callable[[int], None],
        on_appended: OnAppended,
        on_idle: OnIdle,
    ) -> None:
        """`pause` pauses the requests to a broker that could not accept batches; `on_appended` gets
        each entry that the target has acknowledged, and `on_idle` each partition about which a
        report alone was acknowledged without news.
        """
        self._on_idle = on_idle
        self._lane = lane
        self._board = board
        self._queue = queue
        self._suspect_link = suspect_link
        self._pause = pause
        self._on_appended = on_appended

    def take(self, node_id: int, sent: SentPart, answer: AppendAnswer | None) -> None:
        """Process the broker's answer for one partition; None if the answer lacks the partition."""
        if answer is None:
            self.send_again(sent, SendAgain(f"target broker {node_id} does not answer for {sent.key}"))
            return
        verdict = judge_append(
            answer.error,
            message=answer.message,
            expected_log_end_offset=sent.expected_log_end_offset,
            log_end_offset=answer.log_end_offset,
            link_epoch=answer.link_epoch,
            divergence_epoch=answer.divergence_epoch,
            divergence_end_offset=answer.divergence_end_offset,
        )
        match verdict:
            case Appended():
                self._appended(sent, answer.log_end_offset)
            case SendAgain():
                self._pause(node_id)
                self.send_again(sent, verdict)
            case Refusal(refusal=TargetRefusal.OFFSET_MISMATCH) if self._is_behind(sent):
                # They are sent again and not fetched again, because the source may meanwhile have
                # deleted them.
                self._pause(node_id)
                self.send_again(sent, SendAgain(f"the target refused earlier batches: {verdict.reason}"))
            case Refusal():
                self._refused(sent, verdict)
                if sent.entry is None and verdict.refusal is TargetRefusal.OFFSET_MISMATCH:
                    self._check_kept(sent, answer.log_end_offset)

    def send_again(self, sent: SentPart, verdict: SendAgain) -> None:
        """The target does not have the batches; they stay in the window and are sent again."""
        if verdict.is_link_suspected:
            self._suspect_link()
        waiting = TargetWaiting(generation=sent.generation, reason=verdict.reason)
        self._board.submit(sent.key, waiting)
        if sent.entry is not None:
            self._lane.window(sent.key).fail(sent.entry)
            self._lane.answered(sent.key)

    def _is_behind(self, sent: SentPart) -> bool:
        return sent.entry is not None and self._lane.window(sent.key).follows_a_failure(sent.entry)

    def _appended(self, sent: SentPart, log_end_offset: int) -> None:
        entry = sent.entry
        if entry is None:
            row = self._board.row(sent.key)
            if row.quiet is not None and log_end_offset == row.facts.progress.target_log_end_offset:
                self._on_idle(sent.key)
                return  # The answer has no news, so the flow gets no command.
            self._board.submit(sent.key, Acknowledged(generation=sent.generation, log_end_offset=log_end_offset))
            self._check_kept(sent, log_end_offset)
            return
        for done in self._lane.window(sent.key).acknowledge(entry, log_end_offset):
            self._queue.release(done.size_bytes)
            acknowledged = Acknowledged(
                generation=done.generation,
                log_end_offset=done.run.next_offset,
                size_bytes=done.run.carried_bytes,
                record_count=done.run.record_count,
                skipped_bytes=done.run.skipped_bytes,
                skipped_records=done.run.skipped_records,
                max_timestamp_ms=done.run.max_timestamp_ms,
                has_compared=done.run.repeated_bytes > 0,
            )
            self._on_appended(sent.key, done)
            self._board.submit(sent.key, acknowledged)
        self._lane.answered(sent.key)

    def _check_kept(self, sent: SentPart, log_end_offset: int) -> None:
        """Check that the target still has all acknowledged records. While the source is quiet, only
        a report shows a loss there.
        """
        acknowledged = self._board.row(sent.key).facts.progress.target_log_end_offset
        if 0 <= log_end_offset < min(acknowledged, sent.expected_log_end_offset):
            reason = f"the target's log ends at {log_end_offset}, it had acknowledged {acknowledged}"
            refused = AppendRefused(generation=sent.generation, refusal=TargetRefusal.OFFSET_MISMATCH, reason=reason)
            self._board.submit(sent.key, refused)

    def _refused(self, sent: SentPart, verdict: Refusal) -> None:
        reason = verdict.reason
        if sent.entry is None:
            if verdict.refusal is TargetRefusal.OFFSET_MISMATCH:
                return  # The log has grown since the request.
        else:
            self._lane.window(sent.key).fail(sent.entry)
            if verdict.refusal is TargetRefusal.CORRUPT:
                reason = f"{reason}; {blame(sent.entry)}"
        # The flow must get the refusal before the window settles, because it may start again after
        # that.
        self._board.submit(sent.key, AppendRefused(generation=sent.generation, refusal=verdict.refusal, reason=reason))
        if sent.entry is not None:
            self._lane.answered(sent.key)


def blame(entry: QueuedBatches) -> str:
    """The side whose copy of the refused batches is damaged, by the checksums of our own copy."""
    for position, header in iterate_headers(entry.records):
        if not verify_crc(entry.records, position, header):
            return f"the source's batch at offset {header.base_offset} fails its checksum here too"
    return "the batches are sound here, so they were damaged on the way to the target or there"
