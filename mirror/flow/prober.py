"""Answers the flows' two queries: where the target's log ends, and whether the source has that
history.

Questions are collected by broker and asked in batches, one batch at a time to each broker, so that
a thousand partitions start with a handful of requests and a broker that does not answer delays only
its own partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import (
    Command,
    SourceChecked,
    SourceNotFound,
    TargetDiffers,
    TargetFound,
    TargetNotFound,
)
from mirror.link.ports import Differs, Leader, LogAnswer, LogEnds, Refused, SitePort, SourceUnreachable, Unreachable
from runtime.invariants import InvariantBroken
from runtime.supervision import note_death, was_asked_to_end
from wire.batches.log_histories import EpochEnd
from wire.protocol.ids import NO_EPOCH, TopicPartition

_Question = tuple[int, int]  # generation, epoch


class Prober:
    """Runs in the background; `close` ends it."""

    def __init__(self, board: FlowBoard, *, source: SitePort, target: SitePort) -> None:
        self._board = board
        self._source = source
        self._target = target
        self._waiting: dict[tuple[bool, int], dict[TopicPartition, _Question]] = {}
        self._running: dict[tuple[bool, int], asyncio.Task[None]] = {}

    def find_target(self, key: TopicPartition, generation: int) -> None:
        """Ask the target; the answer is submitted to the board."""
        self._ask(key, self._board.row(key).target, generation, NO_EPOCH, is_source=False)

    def check_source(self, key: TopicPartition, generation: int, epoch: int) -> None:
        """Ask the source; the answer is submitted to the board."""
        self._ask(key, self._board.row(key).source, generation, epoch, is_source=True)

    async def close(self) -> None:
        """End all requests."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ask(self, key: TopicPartition, leader: Leader, generation: int, epoch: int, *, is_source: bool) -> None:
        place = (is_source, leader.node_id)
        # one request at a time for each broker; later questions are gathered for the next one
        self._waiting.setdefault(place, {})[key] = (generation, epoch)
        if place not in self._running:
            self._running[place] = asyncio.get_running_loop().create_task(self._drain(place))

    async def _drain(self, place: tuple[bool, int]) -> None:
        is_source, node_id = place
        try:
            while questions := self._waiting.pop(place, None):
                try:
                    await self._ask_now(questions, node_id, is_source=is_source)
                except InvariantBroken:
                    raise
                except (Exception, asyncio.CancelledError) as error:
                    if was_asked_to_end():
                        raise
                    # A flow without an answer would wait for ever, so an error is an answer as
                    # well; the flow then asks again.
                    note_death("prober", node=node_id)
                    why = f"the request failed: {type(error).__name__}: {error}"
                    self._no_answer(questions, why, is_source=is_source)
        finally:
            del self._running[place]

    async def _ask_now(self, questions: Mapping[TopicPartition, _Question], node_id: int, *, is_source: bool) -> None:
        if node_id < 0:
            await asyncio.sleep(0)  # The answer is deferred, because the board is still in the decision that asked.
            self._no_answer(questions, "it has no leader", is_source=is_source)
        elif is_source:
            await self._ask_source(self._on_board(questions))
        else:
            await self._ask_target(self._on_board(questions))

    def _on_board(self, questions: Mapping[TopicPartition, _Question]) -> dict[TopicPartition, _Question]:
        """Without deleted partitions that were forgotten meanwhile."""
        return {key: question for key, question in questions.items() if key in self._board}

    def _no_answer(self, questions: Mapping[TopicPartition, _Question], why: str, *, is_source: bool) -> None:
        with self._board.lines_together():
            for key, (generation, _) in self._on_board(questions).items():
                if is_source:
                    reason = f"the source does not answer for {key}: {why}"
                    self._board.submit(key, SourceNotFound(generation=generation, reason=reason))
                else:
                    reason = f"the target does not report the log end of {key}: {why}"
                    self._board.submit(key, TargetNotFound(generation=generation, reason=reason))

    async def _ask_target(self, questions: Mapping[TopicPartition, _Question]) -> None:
        # the epochs come with the ends, so both are of one moment at the leader
        ends = await self._target.log_ends({key: self._board.row(key).target for key in questions})
        with self._board.lines_together():
            for key, (generation, _) in self._on_board(questions).items():
                self._board.submit(key, _found_at_target(key, ends.get(key), generation))

    async def _ask_source(self, questions: Mapping[TopicPartition, _Question]) -> None:
        # before the request: the answer cannot be about anything later
        asked = self._board.moment()
        leaders = {key: self._board.row(key).source for key in questions}
        with_epoch = {key: (leaders[key], epoch) for key, (_, epoch) in questions.items() if epoch >= 0}
        # before the ends: a truncation in between then shows as an end below the epoch's end
        epoch_ends = await self._source.epoch_ends(with_epoch) if with_epoch else {}
        ends = await self._source.log_ends(leaders)
        with self._board.lines_together():
            for key, (generation, epoch) in self._on_board(questions).items():
                row = self._board.row(key)
                if row.source != leaders[key]:
                    # After an unclean election the next leader may have another history. A
                    # promotion changes the leaders of all partitions, so they are asked again
                    # together. A newer generation asks for itself.
                    if row.facts.generation == generation:
                        self._ask(key, row.source, generation, epoch, is_source=True)
                    continue
                log = ends.get(key)
                epoch_end = epoch_ends.get(key) if epoch >= 0 else EpochEnd(-1, -1)
                if isinstance(log, LogEnds) and isinstance(epoch_end, EpochEnd):
                    checked = SourceChecked(
                        generation=generation,
                        log_start_offset=log.log_start_offset,
                        high_watermark=log.end_offset,
                        epoch=epoch_end.epoch,
                        epoch_end_offset=epoch_end.end_offset,
                        asked_at_ms=self._board.as_of(asked),
                    )
                    self._board.submit(key, checked)
                else:
                    why = _why(epoch_end if isinstance(log, LogEnds) else log)
                    reason = f"the source does not answer for {key}: {why}"
                    self._board.submit(key, SourceNotFound(generation=generation, reason=reason))


def _found_at_target(key: TopicPartition, answer: LogAnswer | None, generation: int) -> Command:
    """The event for the flow of a partition whose log the target was asked for."""
    if isinstance(answer, LogEnds):
        return TargetFound(
            generation=generation,
            log_start_offset=answer.log_start_offset,
            log_end_offset=answer.end_offset,
            last_epoch=answer.last_epoch,
        )
    if isinstance(answer, Differs):
        return TargetDiffers(generation=generation, reason=answer.reason)
    is_for_source = isinstance(answer, SourceUnreachable)
    what = "is not known" if is_for_source else "is not reported by the target"
    reason = f"the log end of {key} {what}: {_why(answer)}"
    return TargetNotFound(generation=generation, reason=reason, is_for_source=is_for_source)


def _why(answer: object) -> str:
    match answer:
        case Refused(error=ErrorCode.not_leader_or_follower as error):
            return f"{error.name}, another broker leads it now, or its site is not active for it"
        case Refused(error=error):
            return error.name
        case Unreachable():
            return str(answer)
        case _:
            return "no answer"
